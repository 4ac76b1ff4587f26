//! TODO

pub(crate) mod block_mapping;
pub(crate) mod delayed_space;
pub(crate) mod extent_status;
pub(crate) mod map_lock;
pub(crate) mod map_view;

pub(crate) use self::block_mapping::{AllocateMode, BlockMapping, MapState};
pub(crate) use self::delayed_space::{DelayedSpace, DelayedTrees, ReservationFate};
pub(crate) use self::extent_status::{ExtentStatus, Status, StatusCache, StatusGuard};
pub(crate) use self::map_lock::MapLock;
pub(crate) use self::map_view::{KnownBlocks, MapView, SharedMaps};
