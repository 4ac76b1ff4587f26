//! What all files of a mount share: the page cache, counters, failures.

use std::sync::Arc;

use extant_blockdev::memory_share;
use extant_bufferhead::BufferCounters;
use extant_iomap::IomapCounters;
use extant_pagecache::{Config, PageCache, WritebackErrors};
use extant_range_lock::Totals;

use crate::config::Tuning;
use crate::file::mapping::logged_device::LoggedDevice;

/// Bounds of the page cache's budget where the caller does not set one.
const LEAST_BUDGET: u64 = 32 << 20;
const MOST_BUDGET: u64 = 8 << 30;

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
    /// Counters of the range locks of files that are not in memory any more.
    pub(super) past_ranges: Arc<Totals>,
    /// Failures of any file's writeback.
    pub(crate) errors: WritebackErrors,
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
