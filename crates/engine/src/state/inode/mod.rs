//! Inodes in memory: the [`Inode`], counted references to it, the cache of all by number, and the
//! queue of unlinked ones.

mod deferred_times;
mod inode_cache;
pub(crate) mod inode_ref;
mod locks;
mod object;
mod reaper;
mod write_access;

pub(crate) use self::deferred_times::{Deferred, LAZY, NEVER, Noted, SOON};
pub(crate) use self::inode_cache::{CacheSlot, InodeCache};
pub(crate) use self::inode_ref::InodeRef;
pub(crate) use self::locks::{CoreLock, InodeLock, MapLock, XattrLock};
pub(crate) use self::object::{Inode, InodeHome, OrphanRecord, TidCell};
pub(crate) use self::reaper::{EvictionQueue, Reaper};
pub(crate) use self::write_access::WriterCount;
