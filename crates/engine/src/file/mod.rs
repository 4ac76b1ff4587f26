//! Regular files: their data between callers, the page cache and the device.
//!
//! The memory of a file is [state](crate::state::file). A module uses those before it only:
//!
//! | module | what it has |
//! |---|---|
//! | `error_reporting` | damage that is latched, lost data that fsync reports |
//! | `file_state_init` | making a file's state in memory, at its first use |
//! | `range_lock` | which locks an operation takes |
//! | `size` | both sizes of a file, and their limits |
//! | `encoding` | the form in which the device has encrypted data |
//! | `verity` | the way from a file that fs-verity protects to its Merkle tree |
//! | `mapping` | what a range is mapped to, for both data paths; ordered and journalled data |
//! | `cached`, `data_path` | what is cached of a file; the code that moves its data |
//! | `writeback`, `callbacks` | writeback, and what the page cache and the journal call for it |
//! | `sync` | making things durable |
//! | `switch_path` | switching the data path; moving data from inside of the inode to a block |
//! | `inline_file` | changes of data inside of the inode |
//! | `read` | buffered reads, searches for data and holes, views |
//! | `truncate` | changing the size |
//! | `write_through`, `direct` | writes to the device at once; reads and writes past the cache |
//! | `write`, `direct_queue` | writes; queues of direct requests |
//! | `range`, `copy`, `relocate` | fallocate(2); copies; moving a file's blocks |
//! | `seal`, `measure` | beginning the protection by fs-verity; what it keeps of a file |
//!
//! # Invariants
//! * A write to blocks starts no journal handle, unless space is so low that it has to allocate at
//!   once. (J34) One to data inside of the inode is a transaction.
//! * `disk_size` moves only after data is on the device, with the data inside of the inode in one
//!   transaction, or with a truncation. (J1, J20)
//! * A dirty block is delayed or allocated; a delayed block is dirty, once idle. (J7, J8)
//!
//! # Locks
//! Writes and truncations hold the inode's `lock` shared and lock the range that they change
//! (`range_lock`); on the buffer-head path they hold `lock` exclusively. Reads hold nothing.
//! Filling the cache takes the mapping's invalidate lock shared, truncation exclusively. Writeback
//! takes none of these. Handles are started with folios held shared at most, and never before
//! calling into `iomap`.

mod cached;
mod callbacks;
mod copy;
mod data_path;
mod direct;
mod direct_queue;
mod encoding;
mod error_reporting;
mod file_state_init;
mod inline_file;
mod mapping;
mod measure;
mod range;
mod range_lock;
mod read;
mod relocate;
mod seal;
mod size;
mod switch_path;
mod sync;
#[cfg(test)]
mod tests;
mod truncate;
mod verity;
mod write;
mod write_through;
mod writeback;

pub(crate) use self::cached::{
    QuiescedFile, drop_caches, drop_clean, drop_data_for_eviction, has_file_state, quiesce,
    range_lock_stats, wait_for_range_locks,
};
pub(crate) use self::callbacks::callbacks;
pub(crate) use self::copy::{Side, copy_range};
pub(crate) use self::direct::fast_path::Direction;
pub(crate) use self::direct::read as read_direct;
pub use self::direct_queue::Finished;
pub(crate) use self::direct_queue::{Queue, QueuedRequest};
use self::file_state_init::file_state;
pub(crate) use self::file_state_init::{open, opened_before_file_state};
pub(crate) use self::measure::{is_verity, measure_verity, read_verity};
pub(crate) use self::range::fallocate;
pub(crate) use self::range_lock::WriteAt;
pub(crate) use self::range_lock::lock_whole_file;
pub(crate) use self::read::view::{edit, view};
pub(crate) use self::read::{ReadMode, read, read_hole, read_vectored, seek};
pub(crate) use self::relocate::defrag::defragment;
pub(crate) use self::relocate::move_extents::move_extents;
pub(crate) use self::seal::enable_verity;
pub(crate) use self::size::{max_size, max_size_of_any_map};
pub(crate) use self::switch_path::{
    buffered_path, convert_to_extents, set_buffered_path, set_journalled,
};
pub(crate) use self::sync::{fsync, note_lost_above, write_and_wait, writeback_all_files};
pub(crate) use self::truncate::{finish_truncation, truncate};
pub(crate) use self::write::{write, write_direct, write_vectored};
pub(crate) use extant_iomap::Whence;

// What the parts of this module share.
use self::error_reporting::latch_if_corrupt;
use self::mapping::iomap_ops::FileContext;
use self::mapping::ordered_data::write_ordered;
use self::size::{block_span, set_sizes};
