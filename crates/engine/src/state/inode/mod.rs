//! TODO

pub(crate) mod core_lock;
pub(crate) mod data_path_cell;
pub(crate) mod deferred_times;
pub(crate) mod inode_cache;
pub(crate) mod inode_lock;
pub(crate) mod inode_ref;
pub(crate) mod object;
pub(crate) mod reaper;

pub(crate) use self::core_lock::CoreLock;
pub(crate) use self::data_path_cell::{DataPath, DataPathCell};
pub(crate) use self::deferred_times::{Deferred, LAZY, NEVER, Noted, SOON};
pub(crate) use self::inode_cache::{CacheSlot, InodeCache};
pub(crate) use self::inode_lock::InodeLock;
pub(crate) use self::inode_ref::InodeRef;
pub(crate) use self::object::{Inode, InodeHome, TidCell};
pub(crate) use self::reaper::{EvictionQueue, Reaper};
