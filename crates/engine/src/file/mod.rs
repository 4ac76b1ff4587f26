//! Regular files: their data between callers, the page cache and the device.
//!
//! `write` and `read` check limits and go through `data_path`, which chooses the way; `iomap_ops` answers what a range
//! of the file is mapped to; `writeback` gives dirty data its place and moves the size on disk; `truncate` changes
//! sizes; `direct` goes past the cache; `range` allocates, punches, zeroes and moves ranges; `sync` makes things durable. `state` is
//! what there is in memory of a file and of all files.
//!
//! # Invariants
//! * A write starts no journal handle, unless space is so low that promises would be unwise. (J34)
//! * `disk_size` moves only after data is on the device, or with a truncation. (J1, J20)
//! * A dirty block is delayed or allocated; a delayed block is dirty, once idle. (J7, J8)
//!
//! # Locks
//! Writes and truncations hold the inode's `lock` shared and lock the range that they change (`range_lock`); on the per-block path
//! they hold `lock` exclusively. Reads hold nothing. Filling the cache takes
//! the mapping's invalidate lock shared, truncation exclusively. Writeback takes none of these. Handles are started with folios
//! held shared at most, and never before calling into `iomap`.

mod append_queue;
mod buffer_ops;
mod cached;
mod change_way;
mod copy;
#[cfg(test)]
mod crash_tests;
mod data_path;
mod defrag;
mod direct;
mod failure;
#[cfg(test)]
mod gate_tests;
mod iomap_ops;
mod logged;
mod move_extents;
mod ordered;
#[cfg(test)]
mod parallel_tests;
mod range;
mod range_lock;
mod read;
mod relocate;
#[cfg(test)]
mod row_tests;
mod size;
mod space;
mod state;
mod sync;
#[cfg(test)]
mod tests;
mod through;
mod truncate;
mod view;
mod write;
mod writeback;

pub(crate) use self::cached::{
    drop_caches, drop_clean, evict, hold_still, is_used, tree_stats, verify_cache,
    wait_for_range_locks,
};
pub(crate) use self::change_way::{
    buffered_path, convert_to_extents, set_buffered_path, set_journalled,
};
pub(crate) use self::copy::{Side, copy_range};
pub(crate) use self::defrag::defragment;
pub use self::direct::queue::Finished;
pub(crate) use self::direct::queue::{Job, Queue, What};
pub(crate) use self::direct::read as read_direct;
pub(crate) use self::logged::LoggedDevice;
pub(crate) use self::move_extents::move_extents;
pub(crate) use self::range::fallocate;
pub(crate) use self::range_lock::lock;
pub(crate) use self::read::{Reader, read, read_vectored, seek};
pub(crate) use self::size::{any_max_size, max_size};
pub(crate) use self::state::{FileData, Files, OpenState, open};
pub(crate) use self::sync::{flush_all, fsync, settle};
pub(crate) use self::truncate::truncate;
pub(crate) use self::view::{edit, view};
pub(crate) use self::write::{WriteAt, write, write_direct, write_vectored};
pub(crate) use extant_iomap::Whence;

// What the parts of this module share.
pub(crate) use self::failure::note_lost_writes;
use self::failure::{note_failure, report};
use self::iomap_ops::FileOps;
use self::ordered::settle_ordered;
use self::size::{blocks_of, set_sizes};
use self::state::data;
