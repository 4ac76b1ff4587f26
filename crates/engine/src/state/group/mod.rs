//! Block groups: descriptors, bitmaps, free maps.
//!
//! The table is read once at mount and kept decoded: 131,072 groups (16 TiB) take some 15 MiB.
//! Every change takes one group's lock, marks the bitmap and the descriptor under the caller's
//! handle, and updates the group's hints, which searches read without a lock.
//!
//! # Invariants
//! Under a group's lock:
//! - `desc` is what the descriptor table holds in the running transaction; its counts equal the
//!   bitmaps'.
//! - A loaded [`FreeMap`] has every bit of the block bitmap set, and those of held blocks.
//! - `hints.usable` is the map's usable count, or the descriptor's free count while no map is
//!   loaded. `hints.longest` is at least the length of the longest usable run.
//!
//! # Locks
//! One lock per group, never two at once. A bitmap may be read from the device under it.

mod bitmaps;
mod free_map;
mod group_cells;
mod group_state;
mod group_table;
mod load_groups;
mod locked_group;
#[cfg(test)]
mod tests;

pub(crate) use self::bitmaps::Bitmaps;
pub(crate) use self::free_map::FreeMap;
pub(crate) use self::group_state::{GroupState, InodeLocation, locate};
pub(crate) use self::group_table::GroupTable;
pub(crate) use self::load_groups::Totals;
pub(crate) use self::locked_group::LockedGroup;
