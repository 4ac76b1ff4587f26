//! Views: snapshots for reading; edits, which reserve space before they lock a folio, beside
//! truncation and writeback.

mod toy;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use extant_blockdev::BlockDevice;
use extant_iomap::*;
use extant_pagecache::{AddressSpace, FolioLocked};
use extant_testkit::{Stop, patience, wait_until};
use extant_units::{BlockSize, Pos};
use toy::{Block, Rng, STALE, Setup, Toy, ToyError};

fn shown(view: &ReadView) -> Vec<u8> {
    view.chunks().flatten().copied().collect()
}

fn take(toy: &Toy, pos: u64, len: usize) -> ReadView {
    view(toy, &toy.readahead, Pos::new(pos), len).unwrap()
}

fn store(toy: &Toy, pos: u64, len: usize, byte: u8) -> Result<usize, Stopped<ToyError>> {
    edit(toy, &toy.readahead, Pos::new(pos), len, |_, bytes| {
        bytes.fill(byte);
    })
}

#[test]
fn a_read_view_is_a_snapshot_without_a_copy() {
    let toy = Setup::default().build();
    let data = Rng(5).bytes(700_000);
    toy.write(0, &data).unwrap();
    let all = take(&toy, 0, 1 << 30);
    assert_eq!((all.len(), all.shared()), (data.len(), data.len()));
    let part = take(&toy, 12_345, 54_321);
    assert!(shown(&part) == data[12_345..12_345 + 54_321]);
    toy.write(20_000, &[1; 100_000]).unwrap();
    store(&toy, 300_000, 1000, 2).unwrap();
    toy.truncate(400_000);
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    assert!(shown(&all) == data, "what came later does not show");
    assert_eq!(take(&toy, 20_000, 5).chunks().next(), Some(&[1; 5][..]));
    assert!(take(&toy, 400_000, 10).is_empty());
}

#[test]
fn holes_are_shown_without_folios() {
    let toy = Setup::default().build();
    toy.write(1 << 20, &[7; 4096]).unwrap();
    let view = take(&toy, 0, 2 << 20);
    assert_eq!(
        (view.len(), view.shared()),
        ((1 << 20) + 4096, (1 << 20) + 4096)
    );
    assert!(shown(&view)[..1 << 20].iter().all(|&byte| byte == 0));
    assert_eq!(toy.pages.folio_count(), 1);
}

/// Space is reserved before the folio is locked, since that may write back; the bytes are dirty
/// afterwards.
#[test]
fn iomap_18_an_edit_takes_space_with_no_folio_locked() {
    /// Low on space: whenever a write asks for some, everything dirty is written first.
    struct LowSpace(Arc<Toy>);
    impl IomapOps for LowSpace {
        type Error = ToyError;
        fn address_space(&self) -> &AddressSpace {
            &self.0.pages
        }
        fn device(&self) -> &dyn BlockDevice {
            &*self.0.device
        }
        fn counters(&self) -> &IomapCounters {
            &self.0.stats
        }
        fn size(&self) -> u64 {
            self.0.size()
        }
        fn raise_size(&self, locked: FolioLocked<'_>, end: u64) {
            self.0.raise_size(locked, end);
        }
        fn begin(&self, op: IomapOp, pos: Pos, len: u64) -> Result<Iomap, ToyError> {
            if op == IomapOp::Write {
                self.0.sync()?;
            }
            self.0.begin(op, pos, len)
        }
        fn end(
            &self,
            op: IomapOp,
            map: &Iomap,
            pos: Pos,
            len: u64,
            how: Outcome,
        ) -> Result<(), ToyError> {
            self.0.end(op, map, pos, len, how)
        }
        fn is_current(&self, map: &Iomap) -> bool {
            self.0.is_current(map)
        }
    }
    let (done, wait) = mpsc::channel();
    let low = LowSpace(Setup::default().build());
    low.0.write(0, &[1; 10_000]).unwrap();
    low.0.write(500_000, &[1; 10_000]).unwrap();
    let worker = thread::spawn(move || {
        let fill = |_: Pos, bytes: &mut [u8]| bytes.fill(9);
        let edited = edit(&low, &low.0.readahead, Pos::new(5000), 400_000, fill);
        done.send(edited.unwrap()).unwrap();
        low
    });
    let edited = wait.recv_timeout(patience(Duration::from_secs(30)));
    assert_eq!(
        edited,
        Ok(400_000),
        "no folio was locked while space was taken"
    );
    let low = worker.join().unwrap();
    assert!(low.0.pages.dirty_bytes() > 0);
    low.0.sync().unwrap();
    assert!(low.0.on_disk()[5000..405_000].iter().all(|&byte| byte == 9));
    assert!(!low.0.on_disk().contains(&STALE));
    low.0.check_idle();
}

#[test]
fn iomap_18_no_space_shows_when_the_edit_begins() {
    let setup = Setup {
        blocks: 20,
        ..Setup::default()
    };
    let toy = setup.build();
    toy.write(0, &[1; 4 * 4096]).unwrap();
    toy.truncate(1 << 20);
    // The hole needs more space than there is: the piece fails before it is shown.
    let mut calls = 0;
    let result = edit(
        &*toy,
        &toy.readahead,
        Pos::new(32 * 4096),
        1 << 19,
        |_, _| calls += 1,
    );
    let stopped = result.unwrap_err();
    assert!(matches!(stopped.error, ToyError::NoSpace));
    assert_eq!((stopped.done, calls), (0, 0));
    toy.check_idle();
    // What is there needs none.
    assert_eq!(store(&toy, 0, 4 * 4096, 5).unwrap(), 4 * 4096);
    assert_eq!(store(&toy, 4 * 4096, 4096, 6).unwrap(), 4096);
    toy.sync().unwrap();
    assert_eq!(toy.reserved(), 0);
    assert_eq!(
        toy.on_disk()[..5 * 4096]
            .iter()
            .map(|&byte| u64::from(byte))
            .sum::<u64>(),
        (4 * 5 + 6) * 4096
    );
}

#[test]
fn an_edit_ends_at_the_end_of_the_file_and_keeps_what_is_around_it() {
    for log2 in [10, 12] {
        let setup = Setup {
            block: BlockSize::from_log2(log2).unwrap(),
            ..Setup::default()
        };
        let toy = setup.build();
        let mut model = Rng(3).bytes(10_000);
        toy.write(0, &model).unwrap();
        toy.sync().unwrap();
        toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
        assert_eq!(store(&toy, 5001, 10_000, 8).unwrap(), 4999);
        model[5001..].fill(8);
        assert_eq!(store(&toy, 10_000, 1, 8).unwrap(), 0);
        assert!(toy.read(0, 20_000) == model);
        toy.sync().unwrap();
        assert!(toy.on_disk() == model);
    }
}

/// An edit of a hole whose mappings turn out stale is tried again, and neither reserves twice nor
/// loses the reservation.
#[test]
fn stale_mappings_are_taken_again() {
    let toy = Setup::default().build();
    toy.write(2 << 20, &[1; 10]).unwrap();
    // Each reservation makes the mappings before it stale.
    toy.max_map.store(3, Ordering::Relaxed);
    assert_eq!(store(&toy, 5000, 50_000, 4).unwrap(), 50_000);
    toy.check_idle();
    assert!(toy.stats.stale_retries.get() > 0);
    assert!(matches!(toy.state(1), Some(Block::Delayed)));
    toy.sync().unwrap();
    assert!(toy.on_disk()[5000..55_000].iter().all(|&byte| byte == 4));
}

fn read_past_the_cache(toy: &Toy, len: usize) -> Vec<u8> {
    let mut bytes = vec![3; len];
    let miss = Miss::Bypass(&toy.readahead);
    let done = read(toy, &toy.recent, miss, Pos::ZERO, &mut bytes[..]).unwrap();
    bytes.truncate(done);
    bytes
}

/// Bytes behind the end of a file are no part of it, not even as zeros: a truncation comes right
/// after the first look at the size.
#[test]
fn bytes_are_shown_up_to_the_size_that_the_file_has_then() {
    const LEN: usize = 16 << 10;
    let looks: [fn(&Toy) -> Vec<u8>; 3] = [
        |toy| shown(&take(toy, 0, LEN)),
        |toy| toy.read(0, LEN),
        |toy| read_past_the_cache(toy, LEN),
    ];
    for (nth, look) in looks.into_iter().enumerate() {
        for (cut, is_cached) in [0, 400, 4096, 9000]
            .iter()
            .flat_map(|cut| [(*cut, true), (*cut, false)])
        {
            let toy = Setup::default().build();
            toy.write(0, &[1; LEN]).unwrap();
            if !is_cached {
                toy.sync().unwrap();
                toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
            }
            toy.cut_after_look.store(cut, Ordering::SeqCst);
            let bytes = look(&toy);
            let ones = bytes.iter().filter(|&&byte| byte == 1).count() as u64;
            assert_eq!((bytes.len() as u64, ones), (cut, cut), "{nth}, {is_cached}");
        }
    }
}

/// Truncation, writeback, reads, views and edits at once: every view and read shows one edit's byte
/// in a block, and the accounts add up afterwards.
#[test]
fn edits_race_with_truncation_and_writeback() {
    const SIZE: u64 = 256 << 10;
    let setup = Setup {
        block: BlockSize::KIB1,
        flushers: 1,
        ..Setup::default()
    };
    let toy = setup.build();
    toy.write(0, &vec![1; usize::try_from(SIZE).unwrap()])
        .unwrap();
    let stop = AtomicBool::new(false);
    let looks = AtomicUsize::new(0);
    thread::scope(|scope| {
        for seed in 0..2 {
            let (toy, stop) = (&toy, &stop);
            scope.spawn(move || {
                let mut rng = Rng(seed + 11);
                while !stop.load(Ordering::Relaxed) {
                    let at = rng.below(SIZE / 1024) * 1024;
                    let byte = u8::try_from(2 + rng.below(100)).unwrap();
                    store(toy, at, 1024, byte).unwrap();
                }
            });
        }
        let (toy, stop, looks) = (&toy, &stop, &looks);
        scope.spawn(move || {
            let mut rng = Rng(99);
            while !stop.load(Ordering::Relaxed) {
                let at = rng.below(SIZE / 1024) * 1024;
                for bytes in [shown(&take(toy, at, 1024)), toy.read(at, 1024)] {
                    // Whole, or cut off by a truncation: zeros past the moving end.
                    let first = bytes.first().copied().unwrap_or(0);
                    assert!(bytes.iter().all(|&byte| byte == first || byte == 0));
                    assert!(!bytes.contains(&STALE));
                }
                looks.fetch_add(1, Ordering::Relaxed);
            }
        });
        let _stop = Stop::at_end(stop);
        let mut rng = Rng(7);
        for _ in 0..300 {
            toy.truncate(rng.below(SIZE));
            toy.truncate(SIZE);
            if rng.below(3) == 0 {
                toy.sync().unwrap();
            }
        }
        wait_until("100 looks", || looks.load(Ordering::Relaxed) >= 100);
    });
    toy.sync().unwrap();
    assert_eq!((toy.reserved(), toy.pages.dirty_bytes()), (0, 0));
    assert!(!toy.on_disk().contains(&STALE));
    let cached = toy.read(0, usize::try_from(SIZE).unwrap());
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    assert!(toy.read(0, usize::try_from(SIZE).unwrap()) == cached);
}
