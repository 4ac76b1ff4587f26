//! The page cache as a whole: memory budget, dirty limits, counters.
//!
//! # Concurrency
//! [`Shared`] is what mappings and flushers hold; [`PageCache`] is the file system's handle and ends the
//! flushers when it goes. The accounts are atomics; `progress` is signalled whenever memory
//! or room below a limit may have appeared, and waiters look again after a short time in any case.

use crate::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use crate::sync::{Condvar, Mutex};

use crate::AddressSpace;
use crate::config::Config;
use crate::dirty_list::{DirtyList, Writeback, WritebackReason};
use crate::flusher::{FLUSH_BATCH, Flushers};
use crate::folio::Folio;
use crate::memory::{Arena, FolioMemory};
use crate::reclaim::Clock;
use crate::stats::{Counters, PageCacheStats};

/// How long a waiter sleeps before it looks again by itself.
const RECHECK: Duration = Duration::from_millis(20);

/// The page cache of a file system.
pub struct PageCache {
    shared: Arc<Shared>,
    flushers: Flushers,
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    arena: Arc<Arena>,
    pub(crate) clock: Clock,
    pub(crate) dirty: DirtyList,
    pub(crate) counters: Counters,
    folios: AtomicUsize,
    dirty_bytes: AtomicU64,
    writeback_bytes: AtomicU64,
    /// Bytes of folios that pins share, each folio counted for each pin.
    pub(crate) pinned_bytes: AtomicU64,
    /// Somebody waits for memory: flush below the background limit.
    pressure: AtomicBool,
    progress_lock: Mutex<()>,
    progress: Condvar,
    pub(crate) work: Work,
}

/// The flushers' alarm clock.
#[derive(Default)]
pub(crate) struct Work {
    pub(crate) state: Mutex<WorkState>,
    pub(crate) wake: Condvar,
    kicked: AtomicBool,
}

#[derive(Default)]
pub(crate) struct WorkState {
    pub(crate) stop: bool,
}

impl Work {
    pub(crate) fn kick(&self) {
        if !self.kicked.load(Ordering::Relaxed) && !self.kicked.swap(true, Ordering::AcqRel) {
            drop(self.state.lock());
            self.wake.notify_all();
        }
    }

    pub(crate) fn take_kick(&self) -> bool {
        self.kicked.swap(false, Ordering::AcqRel)
    }
}

impl PageCache {
    /// A cache with its flusher threads running.
    pub fn new(config: Config) -> Arc<Self> {
        let arena = Arena::new(config.budget_bytes);
        let shared = Arc::new(Shared {
            arena,
            clock: Clock::default(),
            dirty: DirtyList::default(),
            counters: Counters::default(),
            folios: AtomicUsize::new(0),
            dirty_bytes: AtomicU64::new(0),
            writeback_bytes: AtomicU64::new(0),
            pinned_bytes: AtomicU64::new(0),
            pressure: AtomicBool::new(false),
            progress_lock: Mutex::new(()),
            progress: Condvar::new(),
            work: Work::default(),
            config,
        });
        let flushers = Flushers::start(&shared);
        Arc::new(Self { shared, flushers })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Owners of mappings that are dirty now, for a sync of everything.
    pub fn dirty_owners(&self) -> Vec<Arc<dyn Writeback>> {
        self.shared.dirty.owners()
    }

    /// Has the flushers write everything that is dirty now, without waiting for them.
    pub fn start_writeback(&self) {
        if self.shared.config.flushers > 0 && self.shared.dirty_bytes.load(Ordering::Relaxed) > 0 {
            self.shared.pressure.store(true, Ordering::Relaxed);
            self.shared.work.kick();
        }
    }

    /// Frees folios and gives unused memory back to the host until at most `keep_bytes` are held, if so much is clean.
    pub fn shrink(&self, keep_bytes: u64) {
        let used = self.shared.arena.used_bytes();
        if used > keep_bytes {
            self.shared.reclaim(used - keep_bytes);
        }
        self.shared.arena.trim(keep_bytes);
    }

    /// Ends the flusher threads. Dirty data stays dirty.
    pub fn stop(&self) {
        self.flushers.stop(&self.shared);
    }

    /// Counters and accounts as of now.
    pub fn stats(&self) -> PageCacheStats {
        PageCacheStats {
            budget_bytes: self.shared.arena.budget_bytes(),
            used_bytes: self.shared.arena.used_bytes(),
            held_bytes: self.shared.arena.held_bytes(),
            peak_bytes: self.shared.arena.peak_bytes(),
            dirty_bytes: self.shared.dirty_bytes.load(Ordering::Relaxed),
            writeback_bytes: self.shared.writeback_bytes.load(Ordering::Relaxed),
            ..self.shared.counters.snapshot()
        }
    }
}

impl Drop for PageCache {
    fn drop(&mut self) {
        self.stop();
        // Owners hold their mappings, which hold what the list is part of.
        self.shared.dirty.clear();
    }
}

impl Shared {
    pub(crate) fn max_order(&self) -> u32 {
        self.config.max_order.min(self.arena.max_order())
    }

    pub(crate) fn budget_bytes(&self) -> u64 {
        self.arena.budget_bytes()
    }

    pub(crate) fn folios(&self) -> usize {
        self.folios.load(Ordering::Relaxed)
    }

    pub(crate) fn added(&self, folio: &Arc<Folio>, order: u32) {
        self.folios.fetch_add(1, Ordering::Relaxed);
        self.counters.folios_by_order[order as usize].fetch_add(1, Ordering::Relaxed);
        self.clock.push(folio, self.folios());
    }

    pub(crate) fn removed(&self, folios: usize) {
        self.folios.fetch_sub(folios, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn dirtied(&self, mapping: &AddressSpace, bytes: u64) {
        self.dirty_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.dirty.add(mapping);
    }

    /// `bytes` ceased to be dirty; `written` of them are on their way to the device.
    pub(crate) fn cleaned(&self, bytes: u64, written: u64) {
        if written > 0 {
            self.writeback_bytes.fetch_add(written, Ordering::SeqCst);
        }
        self.dirty_bytes.fetch_sub(bytes, Ordering::SeqCst);
    }

    /// `bytes` have arrived on the device.
    pub(crate) fn written(&self, bytes: u64) {
        self.writeback_bytes.fetch_sub(bytes, Ordering::SeqCst);
        self.made_progress();
    }

    /// Takes a mapping off the list of dirty ones.
    pub(crate) fn forget(&self, mapping: &AddressSpace) {
        self.dirty.remove(mapping);
        self.made_progress();
    }

    pub(crate) fn made_progress(&self) {
        self.progress.notify_all();
    }

    /// Whether flushers should work although nothing has expired.
    pub(crate) fn over_background(&self) -> bool {
        self.dirty_bytes.load(Ordering::Relaxed) > self.config.background_bytes
            || self.pressure.load(Ordering::Relaxed)
    }

    pub(crate) fn clear_pressure(&self) {
        self.pressure.store(false, Ordering::Relaxed);
    }

    fn dirty_and_writeback(&self) -> u64 {
        self.dirty_bytes.load(Ordering::SeqCst) + self.writeback_bytes.load(Ordering::SeqCst)
    }

    /// Makes a writer of `mapping` wait if too much is dirty.
    #[inline]
    pub(crate) fn throttle(&self, mapping: &AddressSpace) {
        let dirty = self.dirty_bytes.load(Ordering::Relaxed);
        if dirty > self.config.background_bytes {
            self.throttle_slow(mapping);
        }
    }

    #[cold]
    fn throttle_slow(&self, mapping: &AddressSpace) {
        if self.config.flushers > 0 {
            self.work.kick();
        }
        if !self.is_too_dirty(mapping) {
            return;
        }
        self.counters.throttled.fetch_add(1, Ordering::Relaxed);
        while self.is_too_dirty(mapping) {
            if self.dirty.len() == 0 && self.writeback_bytes.load(Ordering::SeqCst) == 0 {
                // What is dirty belongs to owners on their way out: nobody will write it.
                return;
            }
            self.wait_for_progress();
        }
    }

    /// Whether a writer of `mapping` waits now. At the limit everybody does. Halfway from where flushing begins to the limit, those
    /// do whose file has more than its share of what may be dirty: so whoever writes a lot waits for the flushers, and
    /// leaves room for those who write little and need not wait for it.
    fn is_too_dirty(&self, mapping: &AddressSpace) -> bool {
        let (limit, background) = (self.config.dirty_limit_bytes, self.config.background_bytes);
        let total = self.dirty_and_writeback();
        if total > limit {
            return true;
        }
        if total <= limit.midpoint(background) {
            return false;
        }
        let files = self.dirty.len().max(1) as u64;
        mapping.dirty_bytes() > limit / files
    }

    /// Sleeps until a flusher got something done; without flushers, does their work.
    fn wait_for_progress(&self) {
        if self.config.flushers == 0 && self.flush_one(WritebackReason::Background) {
            return;
        }
        self.work.kick();
        let mut held = self.progress_lock.lock();
        self.progress.wait_for(&mut held, RECHECK);
    }

    /// Writes a batch of the mapping that has waited longest; false if there is none.
    fn flush_one(&self, reason: WritebackReason) -> bool {
        let Some(taken) = self.dirty.take(None) else {
            return false;
        };
        taken.owner.clone().write_back(reason, FLUSH_BATCH);
        self.dirty.put_back(taken);
        true
    }

    /// Memory for a folio of at most `order` and at least `min_order`. Reclaims; if `wait`, waits for writeback
    /// until there is some.
    pub(crate) fn allocate(&self, order: u32, min_order: u32, wait: bool) -> Option<FolioMemory> {
        let order = order.min(self.arena.max_order()).max(min_order);
        loop {
            if let Some(memory) = self.arena.allocate(order) {
                return Some(memory);
            }
            self.reclaim(1 << (order + extant_units::PAGE_SHIFT));
            for smaller in (min_order..=order).rev() {
                if let Some(memory) = self.arena.allocate(smaller) {
                    return Some(memory);
                }
            }
            if !wait {
                return None;
            }
            self.counters.memory_waits.fetch_add(1, Ordering::Relaxed);
            self.pressure.store(true, Ordering::Relaxed);
            self.wait_for_progress();
        }
    }
}
