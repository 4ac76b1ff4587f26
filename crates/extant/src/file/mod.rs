//! Regular files: their data between callers, the page cache and the device.
//!
//! `write` and `read` check limits and go through `data_path`, which chooses the way; `iomap_ops` answers what a range
//! of the file is mapped to; `writeback` gives dirty data its place and moves the size on disk; `truncate` changes
//! sizes; `direct` goes past the cache; `range` allocates, punches, zeroes and moves ranges; `sync` makes things durable.
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

mod buffer_ops;
mod change_way;
mod copy;
mod data_path;
mod defrag;
mod direct;
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
mod space;
mod sync;
mod tail;
#[cfg(test)]
mod tests;
mod through;
mod truncate;
mod turns;
mod view;
mod write;
mod writeback;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use extant_bufferhead::Stats as BufferStats;
use extant_extent_io_tree::{IoTree, Totals, TreeStats, TreeTuning};
use extant_iomap::{Stats as IomapStats, WritebackOps};
use extant_jbd2::Handle;
use extant_pagecache::{
    CachedRun, Config, ErrorCursor, Mapping, MappingParams, PageCache, Readahead, Recent,
    Writeback, WritebackErrors,
};
use extant_units::{Lblk, Pos};

use self::direct::Direct;
use self::iomap_ops::FileOps;
use self::ordered::{Flight, OrderedFile};
use self::tail::Tail;
use self::turns::Turns;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::inode::Inode;
use crate::map;
use crate::tuning::Tuning;
use crate::way::{Way, WayCell};

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
pub(crate) use self::read::{Reader, read, seek};
pub(crate) use self::sync::{flush_all, fsync, settle};
pub(crate) use self::truncate::truncate;
pub(crate) use self::view::{edit, view};
pub(crate) use self::write::{WriteAt, write, write_direct};
pub(crate) use extant_iomap::Whence;

/// Bounds of the page cache's budget where the caller does not set one.
const LEAST_BUDGET: u64 = 32 << 20;
const MOST_BUDGET: u64 = 8 << 30;
/// The largest readahead window.
const READAHEAD_BYTES: u64 = 2 << 20;

/// What all files of a mount share.
pub(crate) struct Files {
    /// The page cache.
    pub(crate) pages: Arc<PageCache>,
    /// Counters of the buffered path.
    pub(crate) stats: IomapStats,
    /// The device behind the journal.
    logged: LoggedDevice,
    /// Counters of the per-block path.
    pub(crate) buffers: BufferStats,
    /// Counters of the I/O trees of files that are not in memory any more.
    past_ranges: Arc<Totals>,
    /// Failures of any file's writeback.
    errors: WritebackErrors,
}

impl Files {
    /// The page cache as `tuning` says, with its flushers running.
    pub(crate) fn new(tuning: &Tuning, logged: LoggedDevice) -> Self {
        let budget = tuning.page_cache_bytes.unwrap_or_else(default_budget);
        Self {
            pages: PageCache::new(Config {
                max_order: u32::from(tuning.max_folio_order),
                flushers: usize::from(tuning.flushers),
                ..Config::with_budget(budget)
            }),
            stats: IomapStats::default(),
            buffers: BufferStats::default(),
            logged,
            past_ranges: Arc::default(),
            errors: WritebackErrors::default(),
        }
    }
}

/// A quarter of the memory that the host can give now.
fn default_budget() -> u64 {
    let info = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let available = info.lines().find_map(|line| {
        let rest = line.strip_prefix("MemAvailable:")?;
        rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    let bytes = available.unwrap_or(0).saturating_mul(1024);
    (bytes / 4).clamp(LEAST_BUDGET, MOST_BUDGET)
}

/// A file's data in memory: made at its first use.
pub(crate) struct FileData {
    pub(super) mapping: Arc<Mapping>,
    /// Which way the data takes.
    way: WayCell,
    /// Parts of the file that somebody changes.
    ranges: Arc<IoTree>,
    /// The queue of those who make the file longer.
    turns: Turns,
    /// What whoever has the turn has claimed.
    tail: Tail,
    /// What there was of direct I/O.
    direct: Direct,
    /// What commits wait for.
    ordered: Arc<OrderedFile>,
    /// What the per-block path has handed to the device.
    flight: Flight,
    /// For callers that have no state of their own.
    shared: OpenState,
}

impl FileData {
    /// The way that it takes now.
    pub(crate) fn way(&self) -> Way {
        self.way.get()
    }

    /// Whether some of it is not on the device.
    pub(crate) fn is_dirty(&self) -> bool {
        self.mapping.dirty_bytes() != 0
    }
}

/// What one opener of a file has: make one per open file with [`open`].
pub(crate) struct OpenState {
    readahead: Readahead,
    recent: Recent,
    errors: ErrorCursor,
}

impl OpenState {
    fn new(mapping: &Mapping) -> Self {
        Self {
            readahead: Readahead::new(READAHEAD_BYTES),
            recent: Recent::default(),
            errors: mapping.errors().cursor(),
        }
    }
}

/// The state of a new opener of `inode`, a regular file.
pub(crate) fn open(fs: &Fs, inode: &Arc<Inode>) -> OpenState {
    OpenState::new(&data(fs, inode).mapping)
}

/// The data of `inode`, a regular file.
#[inline]
fn data<'a>(fs: &Fs, inode: &'a Arc<Inode>) -> &'a FileData {
    inode.data.get_or_init(|| {
        let owner: Weak<dyn Writeback> = Arc::downgrade(inode) as Weak<dyn Writeback>;
        let params = MappingParams {
            block_size: fs.layout.block_size,
            max_order: u32::from(fs.tuning.max_folio_order),
        };
        let mapping = Mapping::new(&fs.files.pages, owner, params);
        let shared = OpenState::new(&mapping);
        FileData {
            mapping,
            way: WayCell::new(Way::of(fs, inode.flags())),
            ranges: new_ranges(fs),
            turns: Turns::default(),
            tail: Tail::default(),
            direct: Direct::default(),
            ordered: OrderedFile::new(inode),
            flight: Flight::default(),
            shared,
        }
    })
}

fn new_ranges(fs: &Fs) -> Arc<IoTree> {
    let tuning = TreeTuning {
        trim_on_clear: fs.tuning.trim_on_clear,
        clear_probe: fs.tuning.clear_probe,
    };
    Arc::new(IoTree::counted(tuning, &fs.files.past_ranges))
}

/// What the I/O trees of all files did so far.
pub(crate) fn tree_stats(fs: &Fs) -> TreeStats {
    let mut sum = fs.files.past_ranges.get();
    for inode in fs.inodes.all() {
        if let Some(data) = inode.data.get() {
            sum += data.ranges.stats();
        }
    }
    sum
}

/// Whether the file's data has been used since the inode came into memory.
pub(crate) fn is_used(inode: &Inode) -> bool {
    inode.data.get().is_some()
}

/// Keeps writers, truncation, fills and writeback away from a file's data until it is dropped.
pub(crate) fn hold_still(inode: &Inode) -> impl Sized {
    let size = inode.lock.write();
    range_lock::drain(inode);
    let data = inode.data.get().map(|data| {
        let blocks = data.mapping.invalidate_lock().write();
        (blocks, data.mapping.writeback_pass())
    });
    (size, data)
}

/// Waits for what is under way in parts of files: direct requests may be in flight that nobody waits for.
pub(crate) fn settle_ranges(fs: &Fs) {
    let inodes = fs.inodes.all();
    inodes.iter().for_each(|inode| range_lock::drain(inode));
}

/// Checks a file's folios, which are [held still](hold_still), and shows each run of their blocks to `each`.
pub(crate) fn verify_cache(
    inode: &Inode,
    each: impl FnMut(CachedRun) -> Result<(), String>,
) -> Result<(), String> {
    let size = Pos::new(inode.size());
    let mapping = inode.data.get().map(|data| &data.mapping);
    mapping.map_or(Ok(()), |mapping| mapping.verify(size, each))
}

/// Drops what is cached and also on the device.
pub(crate) fn drop_clean(inode: &Inode) {
    if let Some(data) = inode.data.get() {
        data.mapping.drop_clean(Pos::ZERO, Pos::MAX);
    }
}

/// Drops the cached pages and the reservations of a file that is going to be deleted. Nobody else can reach it.
pub(crate) fn evict(fs: &Fs, inode: &Arc<Inode>) {
    if let Some(data) = inode.data.get() {
        settle_ordered(&FileOps::new(fs, inode), Pos::ZERO);
        data.mapping.evict();
    }
    map::drop_delayed(fs, inode, Lblk::ZERO, 1 << 32);
}

/// Drops what is cached of all files and not dirty, and gives the memory back.
pub(crate) fn drop_caches(fs: &Fs) {
    for inode in fs.inodes.all() {
        if let Some(data) = inode.data.get() {
            data.mapping.drop_clean(Pos::ZERO, Pos::MAX);
        }
    }
    fs.files.pages.shrink(0);
}

/// The largest size of any file: 2^32 - 1 blocks.
pub(crate) fn any_max_size(fs: &Fs) -> u64 {
    u64::from(u32::MAX) * fs.layout.block_size.bytes_u64()
}

/// The largest size of `inode`: of its kind of map.
pub(crate) fn max_size(fs: &Fs, inode: &Inode) -> u64 {
    map::most_blocks(fs, inode).saturating_mul(fs.layout.block_size.bytes_u64())
}

/// Sets both sizes. The inode's `lock` is held exclusively.
fn set_sizes(fs: &Fs, h: &mut Handle, inode: &Inode, size: u64) -> Result<()> {
    inode.update(fs, h, |core| {
        core.disk_size = size;
        inode.size.store(size, Ordering::Release);
    })
}

/// Latches damage that an operation met. Failed I/O of file data is no fault of the file system's.
fn report(fs: &Fs, error: &Error) {
    if let Error::Corrupt { .. } = error {
        fs.fault.report(fs, error);
    }
}

/// Notes that data of some file could not be written.
fn note_failure(fs: &Fs, error: &Error) {
    fs.files.errors.record(FileOps::fault_of(error));
    if fs.options.data_err_abort() && matches!(error, Error::Io(_)) {
        fs.fault.report(fs, error);
    }
}

/// Before data from `from` on is dropped: writes what a commit waits for, whose blocks would show what they held before
/// otherwise. The inode's `lock` is held, or nobody else can reach the file; no handle is open.
fn settle_ordered(ops: &FileOps<'_>, from: Pos) {
    if ops.data.ordered.is_waited_for()
        && let Err(error) = extant_bufferhead::write_ordered(ops, from, Pos::MAX)
    {
        note_failure(ops.fs, &error);
    }
}

/// The block that holds byte `pos`, and the number of blocks that `len` bytes from there touch.
fn blocks_of(fs: &Fs, pos: Pos, len: u64) -> Option<(Lblk, u32)> {
    let bs = fs.layout.block_size;
    let first = bs.lblk(pos)?;
    let inside = bs.offset_in_block(pos) as u64;
    let count = bs.blocks_for(inside.saturating_add(len)).get();
    let left = u64::from(u32::MAX - first.get());
    Some((
        first,
        u32::try_from(count.min(left).max(1)).unwrap_or(u32::MAX),
    ))
}
