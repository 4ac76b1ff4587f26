//! State that the allocators share: free, reserved and held space, windows, and the bound of what
//! is dirty above the engine.

mod allocator;
pub(crate) mod dirty_bound;
mod request;
mod reservation;
pub(crate) mod space_counts;
mod windows;

pub(crate) use self::allocator::{Allocator, AllocatorCore, Parts};
pub(crate) use self::dirty_bound::DirtyBound;
pub(crate) use self::request::{AllocRequest, InodeRequest, Run};
pub(crate) use self::reservation::Reservation;
pub(crate) use self::space_counts::{Claimant, SpaceCounts};
pub(crate) use self::windows::{MAX_WINDOW_BYTES, Stream, StreamTable, WindowCheckout};
