//! TODO

pub(crate) mod edit_marks;
pub(crate) mod fault;
pub(crate) mod growing_size;
pub(crate) mod layout;
pub(crate) mod metadata_kind;
pub(crate) mod mmp;
pub(crate) mod mounted_superblock;
pub(crate) mod rename_lock;
pub(crate) mod stats;
pub(crate) mod system_zones;

pub(crate) use self::fault::{Event, Fault, Inner, StopLevel};
pub(crate) use self::growing_size::GrowingSize;
pub(crate) use self::layout::Layout;
pub(crate) use self::metadata_kind::CheckKind;
pub(crate) use self::mmp::Mmp;
pub(crate) use self::mounted_superblock::MountedSuperblock;
pub(crate) use self::rename_lock::{RenameGuard, RenameLock};
pub(crate) use self::stats::Stats;
pub(crate) use self::system_zones::{SystemZones, Zone};
