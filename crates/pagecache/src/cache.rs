//! The page cache as a file system holds it.

use std::sync::Arc;

use crate::cache_state::CacheState;
use crate::config::Config;
use crate::counters::PageCacheStats;
use crate::dirty_list::Writeback;
use crate::flusher::Flushers;

/// The page cache of a file system. Dropping it ends its flushers.
pub struct PageCache {
    state: Arc<CacheState>,
    flushers: Flushers,
}

impl PageCache {
    /// A cache with its flusher threads running.
    pub fn new(config: Config) -> Arc<Self> {
        let state = Arc::new(CacheState::new(config));
        let flushers = Flushers::start(&state);
        Arc::new(Self { state, flushers })
    }

    pub(crate) fn state(&self) -> &Arc<CacheState> {
        &self.state
    }

    /// The owners of the address spaces that are dirty now, for a sync of everything.
    pub fn dirty_owners(&self) -> Vec<Arc<dyn Writeback>> {
        self.state.dirty.owners()
    }

    /// Has the flushers write everything that is dirty now, without waiting for them.
    pub fn start_writeback(&self) {
        self.state.start_writeback();
    }

    /// Frees folios, and gives unused memory back to the host, until at most `keep_bytes` are held.
    /// Dirty folios, folios in use and pinned ones stay.
    pub fn shrink(&self, keep_bytes: u64) {
        self.state.shrink(keep_bytes);
    }

    /// Ends the flusher threads. Dirty data stays dirty.
    pub fn stop(&self) {
        self.flushers.stop(&self.state);
    }

    /// Counters and accounts as of now.
    pub fn stats(&self) -> PageCacheStats {
        self.state.stats()
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.stop();
        // Breaks a circle of references: listed owners hold their address spaces, those the state,
        // and the state holds the list.
        self.state.dirty.clear();
    }
}
