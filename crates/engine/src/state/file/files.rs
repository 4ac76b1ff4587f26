//! State that all files of a mount share: the page cache, counters, failures.

use std::sync::Arc;

use extant_bufferhead::BufferCounters;
use extant_iomap::IomapCounters;
use extant_pagecache::{Config, PageCache, WritebackErrors};
use extant_range_lock::Totals;
use extant_units::{BlockSize, PAGE_SHIFT};

use crate::config::{Tuning, page_cache_budget};
use crate::state::file::LoggedDevice;

/// State that all files of a mount share.
pub(crate) struct Files {
    /// The page cache.
    pub(crate) pages: Arc<PageCache>,
    /// Counters of the buffered path.
    pub(crate) stats: IomapCounters,
    /// The device behind the journal.
    pub(crate) logged: LoggedDevice,
    /// Counters of the buffer-head path.
    pub(crate) buffers: BufferCounters,
    /// Counters of the range locks of files that are not in memory any more.
    pub(crate) past_ranges: Arc<Totals>,
    /// Failures of any file's writeback.
    pub(crate) errors: WritebackErrors,
}

impl Files {
    /// The page cache as `tuning` says, with its flushers running.
    pub(crate) fn new(tuning: &Tuning, block_size: BlockSize, logged: LoggedDevice) -> Self {
        let budget = tuning.page_cache_bytes.unwrap_or_else(page_cache_budget);
        Self {
            pages: PageCache::new(Config {
                max_order: u32::from(tuning.max_folio_order),
                // A folio holds a block at least.
                min_order: block_size.log2().saturating_sub(PAGE_SHIFT),
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
