//! What there is in memory of files: of one ([`FileData`]), for one opener ([`OpenState`]), and of
//! all of a mount ([`Files`]).
//!
//! [`FileData`] holds a piece of every part of this module, and is made when the file's data is
//! first used.

use std::sync::{Arc, Weak};

use extant_blockdev::memory_share;
use extant_bufferhead::BufferCounters;
use extant_iomap::IomapCounters;
use extant_pagecache::{
    AddressSpace, AddressSpaceParams, Config, ErrorCursor, PageCache, Readahead, RecentFolios,
    Writeback, WritebackErrors,
};
use extant_range_lock::{RangeLock, Totals, TreeTuning};

use crate::config::Tuning;
use crate::file::direct::Direct;
use crate::file::lock::append_queue::AppendQueue;
use crate::file::mapping::journalled_data::LoggedDevice;
use crate::file::mapping::ordered_data::{Flight, OrderedFile};
use crate::inode::Inode;
use crate::inode::path_choice::{DataPath, DataPathCell};
use crate::volume::Fs;

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
    pub(crate) stats: IomapCounters,
    /// The device behind the journal.
    pub(super) logged: LoggedDevice,
    /// Counters of the buffer-head path.
    pub(crate) buffers: BufferCounters,
    /// Counters of the I/O trees of files that are not in memory any more.
    pub(super) past_ranges: Arc<Totals>,
    /// Failures of any file's writeback.
    pub(super) errors: WritebackErrors,
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
            stats: IomapCounters::default(),
            buffers: BufferCounters::default(),
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
    // Limits of this process count where there are any.
    let share = memory_share().max(LEAST_BUDGET);
    (bytes / 4).clamp(LEAST_BUDGET, MOST_BUDGET).min(share)
}

/// A file's data in memory: made at its first use.
pub(crate) struct FileData {
    pub(super) address_space: Arc<AddressSpace>,
    /// Which way the data takes.
    pub(super) data_path: DataPathCell,
    /// Parts of the file that are locked.
    pub(super) ranges: RangeLock,
    /// Threads that extend the file.
    pub(super) append_queue: AppendQueue,
    /// What there was of direct I/O.
    pub(super) direct: Direct,
    /// What commits wait for.
    pub(super) ordered: Arc<OrderedFile>,
    /// What the buffer-head path has handed to the device.
    pub(super) flight: Flight,
    /// For callers that have no state of their own.
    pub(super) shared: OpenState,
}

impl FileData {
    /// The way that it takes now.
    pub(crate) fn data_path(&self) -> DataPath {
        self.data_path.get()
    }

    /// Whether some of it is not on the device.
    pub(crate) fn is_dirty(&self) -> bool {
        self.address_space.dirty_bytes() != 0
    }
}

/// What one opener of a file has: make one per open file with [`open`].
pub(crate) struct OpenState {
    pub(super) readahead: Readahead,
    pub(super) recent: RecentFolios,
    pub(super) errors: ErrorCursor,
}

impl OpenState {
    fn new(mapping: &AddressSpace) -> Self {
        Self {
            readahead: Readahead::new(READAHEAD_BYTES),
            recent: RecentFolios::default(),
            errors: mapping.errors().cursor(),
        }
    }
}

/// The state of a new opener of `inode`, a regular file.
pub(crate) fn open(fs: &Fs, inode: &Arc<Inode>) -> OpenState {
    OpenState::new(&data(fs, inode).address_space)
}

/// The data of `inode`, a regular file.
#[inline]
pub(super) fn data<'a>(fs: &Fs, inode: &'a Arc<Inode>) -> &'a FileData {
    inode.data.get_or_init(|| {
        let owner: Weak<dyn Writeback> = Arc::downgrade(inode) as Weak<dyn Writeback>;
        let params = AddressSpaceParams {
            block_size: fs.layout.block_size,
            max_order: u32::from(fs.tuning.max_folio_order),
        };
        let address_space = AddressSpace::new(&fs.files.pages, owner, params);
        let shared = OpenState::new(&address_space);
        let data_path = DataPath::of(fs, inode.flags());
        address_space.set_folios_in_handle(data_path.folios_in_handle());
        FileData {
            address_space,
            data_path: DataPathCell::new(data_path),
            ranges: new_ranges(fs),
            append_queue: AppendQueue::default(),
            direct: Direct::default(),
            ordered: OrderedFile::new(inode),
            flight: Flight::default(),
            shared,
        }
    })
}

fn new_ranges(fs: &Fs) -> RangeLock {
    let tuning = TreeTuning {
        trim_on_clear: fs.tuning.trim_on_clear,
        clear_probe: fs.tuning.clear_probe,
    };
    RangeLock::new(tuning, &fs.files.past_ranges)
}
