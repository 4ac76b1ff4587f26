//! TODO

pub(crate) mod allocator;
pub(crate) mod dirty_bound;
pub(crate) mod pending_frees;
pub(crate) mod request;
pub(crate) mod reservation;
pub(crate) mod space_counts;
pub(crate) mod trim_lock;
pub(crate) mod windows;

pub(crate) use self::allocator::{Allocator, AllocatorCore, Parts};
pub(crate) use self::dirty_bound::DirtyBound;
pub(crate) use self::pending_frees::Pending;
pub(crate) use self::request::{AllocRequest, InodeRequest, Run};
pub(crate) use self::reservation::Reservation;
pub(crate) use self::space_counts::{Claimant, SpaceCounts};
pub(crate) use self::trim_lock::Trimming;
pub(crate) use self::windows::{MAX_BYTES, Moving, Stream, Windows};
