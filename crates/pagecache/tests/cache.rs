//! The cache as a whole: its budget, its limits, its flushers, and what truncation leaves.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use extant_pagecache::*;
use extant_units::{BlockSize, PageIdx, Pos};

/// A file whose writeback only cleans.
struct Sink {
    mapping: Arc<AddressSpace>,
    passes: AtomicU64,
    written: AtomicU64,
}

impl Sink {
    fn new(cache: &PageCache, block_size: BlockSize) -> Arc<Self> {
        Arc::new_cyclic(|this: &Weak<Self>| Self {
            mapping: AddressSpace::new(
                cache,
                this.clone(),
                AddressSpaceParams {
                    block_size,
                    max_order: 9,
                },
            ),
            passes: AtomicU64::new(0),
            written: AtomicU64::new(0),
        })
    }

    /// Dirties `len` bytes at `pos`, as a write would.
    fn dirty(&self, pos: u64, len: u64) {
        let mut done = 0;
        while done < len {
            self.mapping.throttle();
            let at = Pos::new(pos + done);
            let folio = self.mapping.get_or_create(at, len - done);
            let Some(mut guard) = self.mapping.lock_stable(&folio) else {
                continue;
            };
            let from = folio.offset_of(at);
            let to = folio.offset_of(Pos::new(pos + len));
            guard.bytes_mut()[from..to].fill(7);
            guard.mark_uptodate(from..to);
            guard.mark_dirty(from..to);
            done += (to - from) as u64;
        }
    }

    fn clean(&self, pos: u64) {
        let folio = self.mapping.get_or_create(Pos::new(pos), 4096);
        if let Some(mut guard) = self.mapping.lock(&folio) {
            guard.mark_uptodate(0..folio.len());
        }
    }
}

impl Writeback for Sink {
    fn write_back(self: Arc<Self>, _: WritebackReason, max_bytes: u64) {
        self.passes.fetch_add(1, Ordering::Relaxed);
        let mut taken = 0;
        for folio in self
            .mapping
            .tagged(Pos::ZERO, Pos::MAX, Tag::Dirty, usize::MAX)
        {
            if taken >= max_bytes {
                break;
            }
            if let Some(mut guard) = self.mapping.lock(&folio) {
                guard.start_writeback(folio.len(), |run| taken += run.len() as u64);
                drop(guard);
                self.mapping.end_writeback([&folio]);
            }
        }
        self.written.fetch_add(taken, Ordering::Relaxed);
    }
}

fn config(budget: u64) -> Config {
    Config {
        flushers: 0,
        ..Config::with_budget(budget)
    }
}

#[test]
fn the_budget_holds_under_clean_and_dirty_load() {
    let cache = PageCache::new(config(8 << 20));
    let file = Sink::new(&cache, BlockSize::KIB4);
    for round in 0..4u64 {
        for i in 0..64 {
            file.dirty((round * 64 + i) << 20, 1 << 20);
            let stats = cache.stats();
            assert!(stats.held_bytes <= 8 << 20);
            assert!(stats.dirty_bytes <= (8 << 20) / 2 + (1 << 20));
        }
    }
    let stats = cache.stats();
    assert!(stats.reclaimed > 0 && stats.throttled > 0);
    assert!(file.written.load(Ordering::Relaxed) > 240 << 20);
}

#[test]
fn used_folios_get_a_second_chance() {
    let cache = PageCache::new(config(1 << 20));
    let file = Sink::new(&cache, BlockSize::KIB4);
    for page in 0..200 {
        file.clean(page * 4096);
    }
    let hot = file.mapping.get(PageIdx::new(3)).unwrap();
    let hot = Arc::downgrade(&hot);
    for page in 200..1000 {
        if let Some(folio) = hot.upgrade() {
            folio.mark_referenced();
        }
        file.clean(page * 4096);
    }
    assert!(hot.upgrade().is_some(), "the page in use stays");
    assert!(file.mapping.get(PageIdx::new(5)).is_none());
    assert!(cache.stats().reclaimed >= 700);
}

#[test]
fn dirty_folios_are_never_reclaimed() {
    let cache = PageCache::new(config(1 << 20));
    let (dirty, clean) = (
        Sink::new(&cache, BlockSize::KIB4),
        Sink::new(&cache, BlockSize::KIB4),
    );
    dirty.dirty(0, 100 << 10);
    for page in 0..2000 {
        clean.clean(page * 4096);
    }
    assert_eq!(dirty.mapping.dirty_bytes(), 100 << 10);
    assert_eq!(dirty.passes.load(Ordering::Relaxed), 0);
}

#[test]
fn old_dirty_data_is_flushed_without_being_asked() {
    let cache = PageCache::new(Config {
        flush_interval: Duration::from_millis(2),
        dirty_expire: Duration::from_millis(4),
        flushers: 1,
        ..Config::with_budget(8 << 20)
    });
    let file = Sink::new(&cache, BlockSize::KIB4);
    file.dirty(0, 10_000);
    while file.mapping.dirty_bytes() > 0 {
        std::thread::yield_now();
    }
    // The list lets go of its owner: off the list, and then the flusher drops it.
    while Arc::strong_count(&file) > 1 {
        std::thread::yield_now();
    }
    assert!(cache.dirty_owners().is_empty());
    // And takes it again.
    file.dirty(0, 10);
    while file.mapping.dirty_bytes() > 0 {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_dirty_can_be_written_before_its_time() {
    let cache = PageCache::new(Config {
        flush_interval: Duration::from_secs(3600),
        dirty_expire: Duration::from_secs(3600),
        flushers: 1,
        ..Config::with_budget(8 << 20)
    });
    let files: Vec<_> = (0..3).map(|_| Sink::new(&cache, BlockSize::KIB4)).collect();
    for file in &files {
        file.dirty(0, 100_000);
    }
    cache.start_writeback();
    while files.iter().any(|file| file.mapping.dirty_bytes() > 0) {
        std::thread::yield_now();
    }
    // Without flushers there is no thread to wake, and nothing happens.
    let alone = PageCache::new(Config {
        flushers: 0,
        ..Config::with_budget(8 << 20)
    });
    let file = Sink::new(&alone, BlockSize::KIB4);
    file.dirty(0, 100_000);
    alone.start_writeback();
    file.dirty(100_000, 100_000);
    assert_eq!(file.passes.load(Ordering::Relaxed), 0);
}

#[test]
fn writers_wait_for_flushers_at_the_limit() {
    let cache = PageCache::new(Config {
        flushers: 2,
        ..Config::with_budget(4 << 20)
    });
    let files: Vec<_> = (0..4).map(|_| Sink::new(&cache, BlockSize::KIB1)).collect();
    std::thread::scope(|scope| {
        for file in &files {
            scope.spawn(|| {
                for i in 0..64 {
                    file.dirty(i * 300_000, 300_000);
                }
            });
        }
    });
    let stats = cache.stats();
    assert!(stats.flusher_passes > 0);
    assert!(stats.held_bytes <= stats.budget_bytes);
    for file in files {
        assert!(file.passes.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn a_file_written_little_does_not_wait_for_one_written_a_lot() {
    // Flushing begins at 1 MiB, all wait at 4 MiB, halfway is 2.5 MiB.
    let cache = PageCache::new(config(8 << 20));
    let heavy = Sink::new(&cache, BlockSize::KIB4);
    heavy.dirty(0, 3 << 20);
    assert_eq!(cache.stats().throttled, 0, "alone, all of it is its share");
    let light: Vec<_> = (0..3).map(|_| Sink::new(&cache, BlockSize::KIB4)).collect();
    for file in &light {
        file.dirty(0, 8192);
        file.dirty(8192, 8192);
    }
    assert_eq!(cache.stats().throttled, 0);
    heavy.dirty(3 << 20, 4096);
    assert_eq!(cache.stats().throttled, 1, "a quarter would be its share");
    assert_eq!(heavy.passes.load(Ordering::Relaxed), 1);
    assert!(
        light
            .iter()
            .all(|file| file.mapping.dirty_bytes() == 16_384)
    );
}

#[test]
fn a_working_set_of_ten_budgets_stays_within_one() {
    const BUDGET: u64 = 16 << 20;
    let cache = PageCache::new(Config {
        flushers: 2,
        ..Config::with_budget(BUDGET)
    });
    let files: Vec<_> = (0..40)
        .map(|_| Sink::new(&cache, BlockSize::KIB4))
        .collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let files = &files;
            scope.spawn(move || {
                let mut state = thread * 7919 + 1;
                let mut below = |limit: u64| {
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    state % limit
                };
                for _ in 0..400 {
                    let file = &files[usize::try_from(below(40)).unwrap()];
                    let pos = below(4 << 20) & !4095;
                    match below(4) {
                        0 => file.clean(pos),
                        1 => file.dirty(pos, 1 + below(5000)),
                        _ => file.dirty(pos, 1 + below(1 << 20)),
                    }
                }
            });
        }
    });
    let stats = cache.stats();
    let written: u64 = files
        .iter()
        .map(|f| f.written.load(Ordering::Relaxed))
        .sum();
    assert!(written > 10 * BUDGET, "{written} bytes passed through");
    assert!(
        stats.reclaimed > 0 && stats.peak_bytes <= BUDGET,
        "{stats:?}"
    );
}

#[test]
fn truncation_drops_whole_folios_and_zeroes_parts() {
    let cache = PageCache::new(config(16 << 20));
    let file = Sink::new(&cache, BlockSize::KIB1);
    file.dirty(0, 3 << 20);
    assert_eq!(file.mapping.folio_count(), 2);
    file.mapping.drop_range(
        &file.mapping.invalidate_lock().write(),
        Pos::new(5000),
        Pos::MAX,
    );
    assert_eq!(file.mapping.folio_count(), 1);
    assert_eq!(
        file.mapping.dirty_bytes(),
        5 * 1024,
        "the cut block stays dirty"
    );
    let folio = file.mapping.get(PageIdx::new(0)).unwrap();
    let guard = file.mapping.read(&folio).unwrap();
    assert!(guard.bytes()[..5000].iter().all(|&byte| byte == 7));
    assert!(guard.bytes()[5000..5120].iter().all(|&byte| byte == 0));
    assert_eq!(
        guard.next_uptodate(0, false),
        Some(5120),
        "the rest is to be filled again"
    );
    assert_eq!(guard.next_uptodate(5120, true), None);
    drop(guard);
    let clean = file.mapping.clean_ranges(Pos::ZERO, Pos::new(8192));
    assert_eq!(clean, [Pos::new(5120)..Pos::new(8192)]);
    drop(folio);
    file.mapping.evict();
    let stats = cache.stats();
    assert_eq!((stats.used_bytes, stats.dirty_bytes), (0, 0));
    assert!(cache.dirty_owners().is_empty());
}

#[test]
fn invalidation_loses_nothing_that_is_dirty() {
    let cache = PageCache::new(config(8 << 20));
    let file = Sink::new(&cache, BlockSize::KIB4);
    let kib = |n: u64| Pos::new(n << 10);
    let state = |at: Pos| {
        let folio = file.mapping.get(at.page());
        folio.map(|folio| {
            let guard = file.mapping.read(&folio).unwrap();
            let offset = folio.offset_of(at);
            (
                guard.is_uptodate(offset..offset + 1),
                guard.next_dirty(offset, true) == Some(offset),
            )
        })
    };
    // One folio of 64 KiB, of which the blocks from 16 KiB on are cleaned.
    file.dirty(0, 64 << 10);
    let folio = file.mapping.get(PageIdx::ZERO).unwrap();
    let mut guard = file.mapping.lock(&folio).unwrap();
    guard.start_writeback_of(std::iter::once(16 << 10..64 << 10));
    drop(guard);
    assert!(
        !file.mapping.invalidate(kib(32), kib(36), false),
        "it is under writeback"
    );
    file.mapping.end_writeback([&folio]);
    assert!(file.mapping.invalidate(kib(32), kib(36), false));
    assert!(!file.mapping.invalidate(kib(8), kib(20), false), "dirty");
    assert_eq!(state(kib(8)), Some((true, true)));
    assert_eq!(state(kib(16)), Some((true, false)));
    assert_eq!(state(kib(32)), Some((false, false)));
    assert_eq!(state(kib(36)), Some((true, false)));
    // A folio that is clean goes as a whole, and with nothing cached there is nothing to do.
    file.mapping
        .lock(&folio)
        .unwrap()
        .start_writeback(usize::MAX, |_| ());
    file.mapping.end_writeback([&folio]);
    for _ in 0..2 {
        assert!(file.mapping.invalidate(kib(8), kib(20), false));
        assert_eq!(file.mapping.folio_count(), 0);
    }
}

#[test]
fn a_dropped_address_space_takes_its_accounts_with_it() {
    let cache = PageCache::new(config(8 << 20));
    let file = Sink::new(&cache, BlockSize::KIB4);
    file.dirty(0, 1 << 20);
    // What keeps it alive is the list of dirty mappings.
    let weak = Arc::downgrade(&file);
    drop(file);
    assert!(weak.upgrade().is_some());
    drop(cache);
    assert!(weak.upgrade().is_none());
}

#[test]
fn unused_memory_goes_back_to_the_host() {
    let cache = PageCache::new(config(64 << 20));
    let file = Sink::new(&cache, BlockSize::KIB4);
    for i in 0..32 {
        file.clean(i << 21);
        file.dirty(i << 21, 1 << 20);
    }
    let before = cache.stats().held_bytes;
    file.mapping.evict();
    assert_eq!(cache.stats().held_bytes, before, "recycled at first");
    cache.shrink(4 << 20);
    assert!(cache.stats().held_bytes <= 4 << 20);
}

#[test]
fn seeking_in_the_cache_sees_blocks() {
    let cache = PageCache::new(config(8 << 20));
    let file = Sink::new(&cache, BlockSize::KIB1);
    file.dirty(10 << 10, 3 << 10);
    file.dirty(1 << 20, 100);
    let seek = |from: u64, cached| {
        let found = file
            .mapping
            .seek_cached(Pos::new(from), Pos::new(2 << 20), cached);
        found.map(Pos::get)
    };
    assert_eq!(seek(0, true), Some(10 << 10));
    assert_eq!(seek(11 << 10, true), Some(11 << 10));
    assert_eq!(seek(11 << 10, false), Some(13 << 10));
    assert_eq!(seek(13 << 10, true), Some(1 << 20));
    assert_eq!(seek((1 << 20) + 1024, true), None);
    assert_eq!(seek(0, false), Some(0));
}

/// Folios of 4 KiB, for calls of that size, would cost a writer in order as much as its copies.
#[test]
fn folios_of_a_writer_in_order_grow() {
    let cache = PageCache::new(config(8 << 20));
    let file = Sink::new(&cache, BlockSize::KIB4);
    let at = |page: u64| Pos::new(page << 12);
    let write = |page: u64| {
        let folio = file.mapping.get_or_create_in_order(at(page), 4096);
        file.dirty(page << 12, 4096);
        folio.order()
    };
    let orders: Vec<u32> = (0..80).map(write).collect();
    for (from, order) in [(1, 0), (2, 1), (4, 2), (8, 3), (16, 4), (32, 4), (48, 4)] {
        let until = (2 * from).min(from + 16);
        let grown = orders[from..until].iter().all(|&is| is == order);
        assert!(grown, "{from}: {orders:?}");
    }
    assert_eq!(write(112), 0, "behind a gap");
    let large = file.mapping.get_or_create_in_order(at(256), 1 << 20);
    assert_eq!(large.order(), 8, "as large as the call");
    // Behind what is clean, and while a pass would keep the next piece waiting, they do not.
    file.dirty(603 << 12, 4096);
    let pass = file.mapping.writeback_pass();
    assert_eq!(write(604), 0);
    drop(pass);
    assert_eq!(write(605), 0, "not aligned");
    assert_eq!(write(606), 1, "the pass has ended");
    file.clean(627 << 12);
    assert_eq!(write(628), 0);
}

/// A folio that is filled in part is no reason for a larger one behind it.
#[test]
fn folios_of_scattered_writes_do_not_grow() {
    let cache = PageCache::new(config(8 << 20));
    let file = Sink::new(&cache, BlockSize::KIB4);
    let write = |page: u64| {
        file.mapping
            .get_or_create_in_order(Pos::new(page << 12), 4096);
        file.dirty(page << 12, 4096);
    };
    (0..17).for_each(write);
    let before = cache.stats().used_bytes;
    (32..32 + 64 * 16).step_by(16).for_each(write);
    assert_eq!(cache.stats().used_bytes - before, 64 << 12);
}

/// A write may go without a block map where the bytes around it are known and their space is there.
#[test]
fn blocks_with_bytes_and_space_can_be_overwritten() {
    let cache = PageCache::new(config(8 << 20));
    let file = Sink::new(&cache, BlockSize::KIB1);
    let folio = file.mapping.get_or_create(Pos::ZERO, 4096);
    let mut guard = file.mapping.lock(&folio).unwrap();
    let can = |guard: &FolioGuard<'_>, bytes| guard.can_overwrite(bytes).is_some();
    assert!(!can(&guard, 0..1), "nothing is known");
    guard.mark_uptodate(0..3072);
    assert!(!can(&guard, 0..1024), "no space");
    guard.set_backed(1024..4096);
    assert!(can(&guard, 1024..3072) && can(&guard, 1500..1501));
    assert!(!can(&guard, 0..2048), "the first block has no space");
    assert!(can(&guard, 2048..4096), "the last as a whole");
    assert!(!can(&guard, 2048..4000), "the last has no bytes");
    assert!(!can(&guard, 3073..4096), "the same");
    let how = guard.can_overwrite(2048..4096).unwrap();
    assert!(guard.overwritten(2048..4096, how) && guard.is_uptodate(3072..4096));
    assert_eq!(guard.can_overwrite(2048..4096), Some(Overwrite::OfDirty));
    assert!(
        !guard.overwritten(2048..4096, Overwrite::OfDirty),
        "dirty already"
    );
    // What is dirty has its space, allocated or reserved.
    guard.mark_dirty(0..1024);
    assert!(can(&guard, 0..1024));
}
