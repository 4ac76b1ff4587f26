//! The volume's shape, its superblock, its counters and the latched failure.

mod cluster_layout;
pub(crate) mod edit_marks;
pub(crate) mod fault;
mod growing_size;
mod layout;
mod metadata_kind;
pub(crate) mod mmp;
pub(crate) mod mounted_superblock;
mod operation_recorder;
mod rename_lock;
mod stats;
mod system_zones;

pub(crate) use self::fault::{Event, Fault, Inner, StopLevel};
pub(crate) use self::growing_size::GrowingSize;
pub(crate) use self::layout::Layout;
pub(crate) use self::metadata_kind::CheckKind;
pub(crate) use self::mmp::Mmp;
pub(crate) use self::mounted_superblock::MountedSuperblock;
pub(crate) use self::operation_recorder::{EntryFate, NotedEntry, OperationRecorder, Operations};
pub(crate) use self::rename_lock::{RenameGuard, RenameLock};
pub(crate) use self::stats::Stats;
pub(crate) use self::system_zones::{SystemZones, Zone};
