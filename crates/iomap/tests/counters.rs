//! Claims as counters: what is not done is not counted.

mod toy;

use std::sync::atomic::{AtomicBool, Ordering};

use extant_iomap::*;
use extant_pagecache::{PageCacheStats, Tag};
use extant_units::{BlockSize, PageIdx, Pos};
use toy::{Block, Rng, Setup};

#[test]
fn a_cached_overwrite_asks_no_map_at_any_offset_and_folio_size() {
    for order in [0, 3, 9] {
        let toy = Setup {
            order,
            ..Setup::default()
        }
        .build();
        toy.write(0, &vec![1; 4 << 20]).unwrap();
        let before = toy.stats.snapshot();
        let offsets = [0, 4096, 1_000_000, (2 << 20) - 1024, (4 << 20) - 1024];
        let put = |at, byte| {
            let bytes = [byte; 1024];
            assert!(try_overwrite(
                &*toy,
                &toy.recent,
                Pos::new(at),
                &bytes[..],
                || true
            ));
        };
        for at in offsets {
            put(at, 2);
        }
        toy.sync().unwrap();
        // Clean again, and still backed.
        for at in offsets {
            put(at, 3);
        }
        let after = toy.stats.snapshot();
        assert_eq!(after.begins, before.begins, "order {order}");
        assert_eq!(after.overwrites, before.overwrites + 10);
        assert_eq!(after.edge_reads, before.edge_reads);
    }
}

#[test]
fn a_cached_read_makes_an_overwrite_free_of_maps_too() {
    let toy = Setup::default().build();
    toy.write(0, &vec![1; 1 << 20]).unwrap();
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    assert_eq!(toy.read(0, 1 << 20).len(), 1 << 20);
    let before = toy.stats.snapshot();
    let at = Pos::new(12_288);
    assert!(try_overwrite(
        &*toy,
        &toy.recent,
        at,
        &[9; 5000][..],
        || true
    ));
    assert_eq!(toy.stats.snapshot().begins, before.begins);
}

#[test]
fn truncated_blocks_ask_for_space_again() {
    let toy = Setup::default().build();
    toy.write(0, &vec![1; 1 << 20]).unwrap();
    toy.sync().unwrap();
    toy.truncate(300_000);
    // The folio is still there, as large as before, but its end has no space any more.
    toy.write(600_000, &[2; 100]).unwrap();
    toy.check_idle();
    assert_eq!(toy.reserved(), 1);
    toy.sync().unwrap();
    assert_eq!(toy.on_disk()[600_000..], [2; 100]);
}

#[test]
fn appends_within_a_block_map_once() {
    let toy = Setup::default().build();
    toy.write(0, &[0; 1024]).unwrap();
    for i in 1..4u8 {
        let at = Pos::new(u64::from(i) * 1024);
        assert!(try_extend(&*toy, &toy.recent, at, &[i; 1024][..]));
    }
    let stats = toy.stats.snapshot();
    assert_eq!(stats.begins, 1);
    assert_eq!(stats.overwrites, 3);
    assert_eq!(toy.reserved(), 1);
}

fn order_of(stats: &PageCacheStats) -> Vec<u64> {
    stats.folios_by_order.to_vec()
}

#[test]
fn folio_orders_follow_the_length_of_the_write() {
    let toy = Setup::default().build();
    toy.write(0, &vec![1; 2 << 20]).unwrap();
    assert_eq!(order_of(&toy.cache.stats())[9], 1);
    // 5 pages from page 513: 1, 2, and behind these 4, of which a next small write has two.
    toy.write((2 << 20) + 4096, &vec![1; 5 * 4096]).unwrap();
    let orders = order_of(&toy.cache.stats());
    assert_eq!(orders[..5], [1, 1, 1, 0, 0]);
    // 17 pages from page 1041 are no small write: 1, 2, 4, 8, 2.
    toy.write((4 << 20) + 17 * 4096, &vec![1; 17 * 4096])
        .unwrap();
    let orders = order_of(&toy.cache.stats());
    assert_eq!(orders[..5], [2, 3, 2, 1, 0]);
}

#[test]
fn iomap_25_readahead_aligns_its_folios_and_ends_with_the_file() {
    let toy = Setup::default().build();
    toy.write(0, &[1; 21 * 4096]).unwrap();
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    for page in 0..21 {
        assert_eq!(toy.read(page * 4096, 4096).len(), 4096);
    }
    let mut folios = Vec::new();
    let mut at = Pos::ZERO;
    while let Some(folio) = toy.pages.next(at) {
        folios.push((folio.index().get(), folio.order()));
        at = folio.end();
    }
    // Windows of 4 pages (order 2) and 16 (order 4).
    assert_eq!(folios, [(0, 2), (4, 2), (8, 3), (16, 2), (20, 0)]);
}

#[test]
fn streams_use_few_mappings_and_large_writes() {
    let toy = Setup::default().build();
    for i in 0..16 {
        toy.write(i << 20, &vec![1; 1 << 20]).unwrap();
    }
    toy.sync().unwrap();
    let stats = toy.stats.snapshot();
    assert_eq!(stats.begins, 16, "one pages for each call");
    assert_eq!(stats.map_calls, 1, "one allocation for 16 MiB");
    assert_eq!(stats.ioends, 1);
    assert_eq!(stats.written_bytes, 16 << 20);
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    for i in 0..256 {
        toy.read(i << 16, 1 << 16);
    }
    let reads = toy.stats.snapshot().fill_reads;
    assert!(reads <= 36, "{reads} device reads for 16 MiB");
    // Windows of 128 pages that begin at odd multiples of 32: orders 5, 6 and 5.
    let made = order_of(&toy.cache.stats()).iter().sum::<u64>() - 16;
    assert!(made < 110, "{made} folios for 4096 pages");
}

#[test]
fn holes_are_read_without_folios() {
    let toy = Setup::default().build();
    toy.truncate(64 << 20);
    assert!(toy.read(5, 10 << 20).iter().all(|&byte| byte == 0));
    assert_eq!(toy.pages.folio_count(), 0);
    assert_eq!(toy.stats.snapshot().fill_reads, 0);
}

#[test]
fn zeroing_what_is_zero_dirties_nothing() {
    let toy = Setup {
        block: BlockSize::KIB1,
        ..Setup::default()
    }
    .build();
    toy.write(0, &[5; 1500]).unwrap();
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    // The tail behind the end is zero on the device: looking at it is enough.
    assert!(!toy::zero_block_rest(&*toy, 1500));
    assert_eq!(toy.pages.dirty_bytes(), 0);
    zero_range(&*toy, Pos::new(2048), 1 << 20).unwrap();
    assert_eq!(toy.pages.folio_count(), 1, "holes stay holes");
    assert!(toy.state(5).is_none());
}

/// A source that gives only so much at a time, or stops.
struct Dripping<'a> {
    data: &'a [u8],
    most: usize,
    end: usize,
}

impl Source for Dripping<'_> {
    fn copy_at(&mut self, offset: usize, into: &mut [u8]) -> usize {
        let stop = self.end.min(self.data.len());
        let rest = &self.data[offset.min(stop)..stop];
        let len = rest.len().min(into.len()).min(self.most);
        into[..len].copy_from_slice(&rest[..len]);
        len
    }
}

#[test]
fn short_copies_shrink_the_chunk_and_give_back_what_was_promised() {
    let data = Rng(4).bytes(1 << 20);
    let toy = Setup::default().build();
    let mut source = Dripping {
        data: &data,
        most: 10_000,
        end: usize::MAX,
    };
    let done = write(&*toy, Pos::ZERO, data.len(), &mut source).unwrap();
    assert_eq!(done, data.len());
    assert!(toy.read(0, data.len()) == data);
    toy.check_idle();

    let toy = Setup::default().build();
    let mut source = Dripping {
        data: &data,
        most: usize::MAX,
        end: 300_000,
    };
    let done = write(&*toy, Pos::ZERO, data.len(), &mut source).unwrap();
    assert!((290_000..=300_000).contains(&done), "{done}");
    assert_eq!(toy.size(), done as u64);
    toy.check_idle();
    assert_eq!(toy.reserved(), (done as u64).div_ceil(4096));
}

#[test]
fn readers_grow_their_window() {
    let toy = Setup::default().build();
    toy.write(0, &Rng(3).bytes(8 << 20)).unwrap();
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    let before = toy.stats.snapshot();
    for i in 0..(8 << 20) / 4096 {
        toy.read(i * 4096, 4096);
    }
    let reads = toy.stats.snapshot().fill_reads - before.fill_reads;
    assert!(reads < 40, "{reads} device reads instead of 2048");
}

#[test]
fn a_read_out_of_order_fills_what_it_asks_for() {
    let toy = Setup::default().build();
    toy.write(0, &Rng(4).bytes(1 << 20)).unwrap();
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    // Eight pages, and parts of two.
    for (pos, len, first, end) in [(160 << 10, 32 << 10, 40, 48), (84_000, 3000, 20, 22)] {
        let before = toy.stats.snapshot().fill_reads;
        toy.read(pos, len);
        assert_eq!(toy.stats.snapshot().fill_reads - before, 1, "at {pos}");
        let cached = |page: u64| toy.pages.get(PageIdx::new(page)).is_some();
        assert!(!cached(first - 1) && !cached(end), "no more than that");
        assert!((first..end).all(cached), "at {pos}");
    }
}

#[test]
fn a_joint_write_knows_whether_all_of_it_is_one_run_from_the_start() {
    for (writes, run) in [
        (&[(0, 10_000)][..], Some(12_288)),
        (&[(0, 4096), (4096, 4096)], Some(8192)),
        (&[(4096, 4096)], None),
        (&[(0, 4096), (12_288, 4096)], None),
    ] {
        // Folios of one page, so that a gap is one.
        let setup = Setup {
            order: 0,
            ..Setup::default()
        };
        let toy = setup.build();
        toy.set_size(64 << 10);
        for &(pos, len) in writes {
            toy.write(pos, &vec![7; len]).unwrap();
        }
        let pass = toy.pages.writeback_pass();
        let folios = toy.pages.tagged(Pos::ZERO, Pos::MAX, Tag::Dirty, 16);
        let joint = JointWrite::take(&*toy, pass, &folios).unwrap();
        assert_eq!(joint.run_from_start(), run, "{writes:?}");
        let bytes: usize = joint.slices().map(|slice| slice.len()).sum();
        assert!(run.is_none_or(|run| run == bytes as u64));
        joint.write_alone().unwrap();
        assert_eq!((toy.reserved(), toy.pages.dirty_bytes()), (0, 0));
    }
}

/// Set by one test alone.
static DONE: AtomicBool = AtomicBool::new(false);

#[test]
fn an_integrity_pass_ends_while_others_go_on_dirtying() {
    let toy = Setup::default().build();
    toy.write(0, &vec![1; 4 << 20]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = Rng(8);
            while !DONE.load(Ordering::Relaxed) {
                toy.write(rng.below(4 << 20) & !4095, &[2; 4096]).unwrap();
                let end = toy.size();
                if end < 40 << 20 {
                    toy.write(end, &[3; 4096]).unwrap();
                }
            }
        });
        for _ in 0..20 {
            toy.sync().unwrap();
        }
        DONE.store(true, Ordering::Relaxed);
    });
    assert!(matches!(toy.state(0), Some(Block::Written(_))));
}
