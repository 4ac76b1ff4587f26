//! The state that all address spaces of a cache share: memory, accounts, limits, the dirty list.
//!
//! # Invariants
//! * `dirty_bytes` and `writeback_bytes` are the sums over all folios (J4).
//! * Folio memory stays within the budget; an allocation reclaims or waits instead.
//!
//! # Concurrency
//! The accounts are atomics. `progress` is signalled when memory or room below a limit may have
//! appeared. A waiter may miss a signal, as none is sent under the lock it waits with: so it looks
//! again every [`RECHECK`].
//!
//! No thread waits here with a folio locked or a journal handle open: writeback, which ends the
//! wait, may need either.

use extant_sync::time::Instant;
use std::sync::Arc;
use std::time::Duration;

use extant_units::PAGE_SHIFT;

use crate::arena::{Arena, FolioMemory};
use crate::clock::Clock;
use crate::config::Config;
use crate::counters::{CacheCounters, PageCacheStats, bump};
use crate::dirty_list::{
    DirtyFile, DirtyList, DirtyState, FILES_TOGETHER, SMALL_FILE_BYTES, Taken, WritebackReason,
};
use crate::folio::Folio;
use crate::folio_tree::FolioTree;
use crate::wakeup::FlusherWakeup;
use extant_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use extant_sync::{Condvar, Mutex};

/// How long a waiter sleeps before it looks again by itself.
const RECHECK: Duration = Duration::from_millis(20);
/// How much of one file is written before the next file's data is.
pub(crate) const FLUSH_BATCH_BYTES: u64 = 64 << 20;
/// The part of the budget that pins may share.
const PINNED_SHARE: u64 = 4;

pub(crate) struct CacheState {
    pub(crate) config: Config,
    arena: Arc<Arena>,
    clock: Clock,
    pub(crate) dirty: DirtyList,
    pub(crate) counters: CacheCounters,
    folios: AtomicUsize,
    /// Flusher threads that run; with none, a thread that waits writes by itself.
    flusher_threads: AtomicUsize,
    dirty_bytes: AtomicU64,
    writeback_bytes: AtomicU64,
    /// Bytes of folios that pins share, each folio counted for each pin.
    pinned_bytes: AtomicU64,
    /// A thread waits for memory: flushers work below the background limit as well.
    pressure: AtomicBool,
    progress_lock: Mutex<()>,
    progress: Condvar,
    pub(crate) flushers: FlusherWakeup,
}

/// Takes `bytes` off an account.
fn deduct(account: &AtomicU64, bytes: u64) {
    let before = account.fetch_sub(bytes, Ordering::SeqCst);
    debug_assert!(before >= bytes, "{bytes} of {before} accounted bytes (J4)");
}

impl CacheState {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            arena: Arena::new(config.budget_bytes, config.min_order),
            clock: Clock::default(),
            dirty: DirtyList::default(),
            counters: CacheCounters::default(),
            folios: AtomicUsize::new(0),
            flusher_threads: AtomicUsize::new(0),
            dirty_bytes: AtomicU64::new(0),
            writeback_bytes: AtomicU64::new(0),
            pinned_bytes: AtomicU64::new(0),
            pressure: AtomicBool::new(false),
            progress_lock: Mutex::new(()),
            progress: Condvar::new(),
            flushers: FlusherWakeup::default(),
            config,
        }
    }

    /// Notes how many flusher threads were started.
    pub(crate) fn set_flusher_threads(&self, count: usize) {
        self.flusher_threads.store(count, Ordering::Relaxed);
    }

    fn has_flushers(&self) -> bool {
        self.flusher_threads.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn max_order(&self) -> u32 {
        let least = self.config.min_order;
        self.config.max_order.max(least).min(self.arena.max_order())
    }

    pub(crate) fn stats(&self) -> PageCacheStats {
        PageCacheStats {
            budget_bytes: self.arena.budget_bytes(),
            used_bytes: self.arena.used_bytes(),
            held_bytes: self.arena.held_bytes(),
            peak_bytes: self.arena.peak_bytes(),
            dirty_bytes: self.dirty_bytes.load(Ordering::Relaxed),
            writeback_bytes: self.writeback_bytes.load(Ordering::Relaxed),
            ..self.counters.snapshot()
        }
    }

    /// Has the flushers write everything that is dirty now, without waiting for them.
    pub(crate) fn start_writeback(&self) {
        if self.has_flushers() && self.dirty_bytes.load(Ordering::Relaxed) > 0 {
            self.pressure.store(true, Ordering::Relaxed);
            self.flushers.kick();
        }
    }

    /// Frees folios, and gives unused memory back to the host, until at most `keep_bytes` are held.
    pub(crate) fn shrink(&self, keep_bytes: u64) {
        let used = self.arena.used_bytes();
        if used > keep_bytes {
            self.reclaim(used - keep_bytes);
        }
        self.arena.trim(keep_bytes);
    }

    fn reclaim(&self, want: u64) -> u64 {
        self.clock.reclaim(want, &self.counters)
    }

    /// Counts `folio`, which has entered `_index`: before another thread can remove it from there.
    pub(crate) fn added(&self, _index: &mut FolioTree<Arc<Folio>>, folio: &Arc<Folio>) {
        let live = self.folios.fetch_add(1, Ordering::Relaxed) + 1;
        bump(&self.counters.folios_by_order[folio.order() as usize]);
        self.clock.push(folio, live);
    }

    /// `folios` have left their index.
    pub(crate) fn removed(&self, folios: usize) {
        let before = self.folios.fetch_sub(folios, Ordering::Relaxed);
        debug_assert!(before >= folios, "{folios} of {before} folios are removed");
    }

    /// `bytes` of `file` became dirty.
    #[inline]
    pub(crate) fn dirtied(&self, file: &impl DirtyFile, bytes: u64) {
        self.dirty_bytes.fetch_add(bytes, Ordering::SeqCst);
        self.dirty.add(file);
    }

    /// `bytes` ceased to be dirty; `written` of them are under writeback now.
    pub(crate) fn cleaned(&self, bytes: u64, written: u64) {
        debug_assert!(written <= bytes);
        // In this order, so that a writer at the limit never counts less than there is.
        if written > 0 {
            self.writeback_bytes.fetch_add(written, Ordering::SeqCst);
        }
        deduct(&self.dirty_bytes, bytes);
    }

    /// `bytes` have arrived on the device.
    pub(crate) fn written(&self, bytes: u64) {
        deduct(&self.writeback_bytes, bytes);
        self.made_progress();
    }

    /// Takes a file off the list of dirty ones.
    pub(crate) fn forget(&self, file: &DirtyState) {
        self.dirty.remove(file);
        self.made_progress();
    }

    pub(crate) fn made_progress(&self) {
        self.progress.notify_all();
    }

    /// Flushers work although no file's dirty data has expired.
    pub(crate) fn is_over_background(&self) -> bool {
        self.dirty_bytes.load(Ordering::Relaxed) > self.config.background_bytes
            || self.pressure.load(Ordering::Relaxed)
    }

    pub(crate) fn clear_pressure(&self) {
        self.pressure.store(false, Ordering::Relaxed);
    }

    fn dirty_and_writeback(&self) -> u64 {
        self.dirty_bytes.load(Ordering::SeqCst) + self.writeback_bytes.load(Ordering::SeqCst)
    }

    /// Makes a writer of `file` wait if too much is dirty.
    #[inline]
    pub(crate) fn throttle(&self, file: &DirtyState) {
        let dirty = self.dirty_bytes.load(Ordering::Relaxed);
        if dirty > self.config.background_bytes {
            self.throttle_slow(file);
        }
    }

    #[cold]
    fn throttle_slow(&self, file: &DirtyState) {
        if self.has_flushers() {
            self.flushers.kick();
        }
        if !self.is_too_dirty(file) {
            return;
        }
        bump(&self.counters.throttled);
        while self.is_too_dirty(file) {
            if self.dirty.len() == 0 && self.writeback_bytes.load(Ordering::SeqCst) == 0 {
                // The dirty data belongs to owners that are being dropped: it is never written.
                return;
            }
            self.wait_for_progress();
        }
    }

    /// Returns whether a writer of `file` waits now. At the limit every writer does. Halfway
    /// between the background limit and the limit, a writer waits if its file has more than an
    /// equal share of what may be dirty: so a file that is written a lot leaves room for files
    /// written little.
    fn is_too_dirty(&self, file: &DirtyState) -> bool {
        let (limit, background) = (self.config.dirty_limit_bytes, self.config.background_bytes);
        let total = self.dirty_and_writeback();
        if total > limit {
            return true;
        }
        if total <= limit.midpoint(background) {
            return false;
        }
        let files = self.dirty.len().max(1) as u64;
        file.bytes() > limit / files
    }

    /// Sleeps until a flusher got something done. Without flushers, does their work.
    fn wait_for_progress(&self) {
        if !self.has_flushers() && self.flush_one(WritebackReason::Background) {
            return;
        }
        self.flushers.kick();
        let mut held = self.progress_lock.lock();
        self.progress.wait_for(&mut held, RECHECK);
    }

    /// Writes a batch of the file that has been dirty longest; false if there is none.
    fn flush_one(&self, reason: WritebackReason) -> bool {
        let Some(taken) = self.dirty.take(None) else {
            return false;
        };
        self.write(
            self.with_small_files(taken, None),
            reason,
            FLUSH_BATCH_BYTES,
        );
        true
    }

    /// `first`, and where that is a small file, others that have been dirty since `before`.
    pub(crate) fn with_small_files(&self, first: Taken, before: Option<Instant>) -> Vec<Taken> {
        let mut files = Vec::new();
        if first.dirty_bytes() <= SMALL_FILE_BYTES {
            files = self.dirty.take_small(before, FILES_TOGETHER - 1);
        }
        files.push(first);
        files
    }

    /// Writes `files` back, of one file about `max_bytes`, and puts them back. Returns whether less
    /// of them is dirty now.
    pub(crate) fn write(&self, files: Vec<Taken>, reason: WritebackReason, max_bytes: u64) -> bool {
        let dirty = |files: &[Taken]| files.iter().map(Taken::dirty_bytes).sum::<u64>();
        let before = dirty(&files);
        match files.as_slice() {
            [one] => one.owner.clone().write_back(reason, max_bytes),
            many => {
                let owners: Vec<_> = many.iter().map(|taken| taken.owner.clone()).collect();
                if let Some(first) = owners.first() {
                    first.write_back_all(&owners, reason);
                }
            }
        }
        let written = dirty(&files) < before;
        files
            .into_iter()
            .for_each(|taken| self.dirty.put_back(taken));
        written
    }

    /// Memory for a folio of at most `order` and at least `min_order`. Reclaims if there is none.
    /// If `wait`, waits for writeback until there is some.
    pub(crate) fn allocate(&self, order: u32, min_order: u32, wait: bool) -> Option<FolioMemory> {
        let order = order.min(self.arena.max_order()).max(min_order);
        loop {
            if let Some(memory) = self.arena.allocate(order) {
                return Some(memory);
            }
            self.reclaim(1 << (order + PAGE_SHIFT));
            for smaller in (min_order..=order).rev() {
                if let Some(memory) = self.arena.allocate(smaller) {
                    return Some(memory);
                }
            }
            if !wait {
                return None;
            }
            bump(&self.counters.memory_waits);
            self.pressure.store(true, Ordering::Relaxed);
            self.wait_for_progress();
        }
    }

    /// Counts `bytes` as pinned; false if pins would share more than their part of the budget.
    pub(crate) fn reserve_pin(&self, bytes: u64) -> bool {
        let limit = self.arena.budget_bytes() / PINNED_SHARE;
        let reserve = |pinned: u64| Some(pinned + bytes).filter(|&sum| sum <= limit);
        self.pinned_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, reserve)
            .is_ok()
    }

    pub(crate) fn release_pin(&self, bytes: u64) {
        deduct(&self.pinned_bytes, bytes);
        self.made_progress();
    }
}
