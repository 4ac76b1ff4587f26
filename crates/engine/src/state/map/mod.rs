//! Knowledge of a file's map in memory: the cached part of the map on disk, the delayed blocks,
//! and both under one lock, [`KnownBlocks`].

mod block_mapping;
mod delayed_clusters;
mod delayed_space;
mod extent_status;
mod map_view;
mod shared_clusters;

pub(crate) use self::block_mapping::{AllocateMode, BlockMapping, MapState, WriteSpan};
pub(crate) use self::delayed_space::{DelayedSpace, DelayedTrees, MapChange, ReservationFate};
pub(crate) use self::extent_status::{ExtentStatus, Status, StatusCache, StatusGuard};
pub(crate) use self::map_view::{KnownBlocks, MapView, SharedMaps};
