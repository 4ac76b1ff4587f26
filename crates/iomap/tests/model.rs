//! Random operations against a vector of bytes: the same bytes for every block size and folio size,
//! and never a stale one, in the cache or on the device.

mod toy;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extant_iomap::*;
use extant_units::{BlockSize, Pos};
use toy::{Block, Rng, STALE, Setup, Toy};

struct Run {
    toy: Arc<Toy>,
    model: Vec<u8>,
    rng: Rng,
    span: u64,
}

impl Run {
    fn range(&mut self) -> (u64, u64) {
        let limit = match self.rng.below(4) {
            0 => 100,
            1 => 5000,
            2 => 70_000,
            _ => self.span / 2,
        };
        let pos = match self.rng.below(4) {
            0 => self.model.len() as u64,
            1 => self.rng.below(self.span) & !4095,
            _ => self.rng.below(self.span),
        };
        (pos, 1 + self.rng.below(limit))
    }

    fn write(&mut self) {
        let (pos, len) = self.range();
        let data = self.rng.bytes(usize::try_from(len).unwrap());
        let done = self.toy.write(pos, &data).unwrap();
        assert_eq!(done, data.len());
        let start = usize::try_from(pos).unwrap();
        if self.model.len() < start + data.len() {
            self.model.resize(start + data.len(), 0);
        }
        self.model[start..start + data.len()].copy_from_slice(&data);
    }

    fn read(&mut self) {
        let (pos, len) = self.range();
        let start = usize::try_from(pos).unwrap().min(self.model.len());
        let end = (start + usize::try_from(len).unwrap()).min(self.model.len());
        let got = self.toy.read(start as u64, usize::try_from(len).unwrap());
        assert!(got == self.model[start..end], "read {len} at {start}");
    }

    fn zero(&mut self) {
        let (pos, len) = self.range();
        let end = (pos + len).min(self.model.len() as u64);
        if pos < end {
            zero_range(&*self.toy, Pos::new(pos), end - pos).unwrap();
            self.model[usize::try_from(pos).unwrap()..usize::try_from(end).unwrap()].fill(0);
        }
    }

    fn truncate(&mut self) {
        let size = match self.rng.below(3) {
            0 => self.rng.below(self.span) & !1023,
            _ => self.rng.below(self.span),
        };
        self.toy.truncate(size);
        self.model.resize(usize::try_from(size).unwrap(), 0);
    }

    fn write_back(&mut self) {
        let (pos, len) = self.range();
        let control = match self.rng.below(3) {
            0 => WritebackControl::integrity(Pos::new(pos), Pos::new(pos + len)),
            1 => WritebackControl::background(len),
            _ => WritebackControl::integrity(Pos::ZERO, Pos::MAX),
        };
        write_back(
            &*self.toy,
            &self.toy.address_space().writeback_pass(),
            control,
        )
        .unwrap();
    }

    fn drop_cache(&mut self) {
        let (pos, len) = self.range();
        self.toy
            .pages
            .drop_clean(Pos::new(pos), Pos::new(pos + len));
    }

    /// Holes read as zero, and data is where data is.
    fn seek(&mut self) {
        let (pos, _) = self.range();
        let data = seek(&*self.toy, Whence::Data, Pos::new(pos)).unwrap();
        let hole = seek(&*self.toy, Whence::Hole, Pos::new(pos)).unwrap();
        if pos >= self.model.len() as u64 {
            assert_eq!((data, hole), (None, None));
            return;
        }
        let next = data.map_or(self.model.len() as u64, |at| at.get());
        let skipped = &self.model[usize::try_from(pos).unwrap()..usize::try_from(next).unwrap()];
        assert!(skipped.iter().all(|&byte| byte == 0), "no data was skipped");
        assert!(hole.is_some_and(|at| at.get() <= self.model.len() as u64));
    }

    fn crash_check(&self) {
        let disk = self.toy.on_disk();
        assert!(disk.len() <= self.model.len());
        assert!(
            !disk.contains(&STALE),
            "stale bytes would show after a crash"
        );
    }

    fn finish(&self) {
        self.toy.sync().unwrap();
        assert_eq!(self.toy.reserved(), 0);
        assert_eq!(self.toy.pages.dirty_bytes(), 0);
        let disk = self.toy.on_disk();
        assert!(
            disk == self.model,
            "after a sync everything is on the device"
        );
        self.toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
        assert_eq!(self.toy.pages.folio_count(), 0);
        let all = self.toy.read(0, self.model.len() + 10);
        assert!(all == self.model, "and comes back");
    }
}

/// Bytes of the device.
const DEVICE: u64 = 64 << 20;

fn run(block: BlockSize, order: u32, budget: u64, flaky: bool, steps: u32, seed: u64) {
    let span = 600_000;
    let toy = Setup {
        block,
        order,
        budget,
        blocks: DEVICE >> block.log2(),
        ..Setup::default()
    }
    .build();
    toy.flaky.store(flaky, Ordering::Relaxed);
    let mut run = Run {
        toy,
        model: Vec::new(),
        rng: Rng(seed),
        span,
    };
    for step in 0..steps {
        match run.rng.below(20) {
            0..6 => run.write(),
            6..12 => run.read(),
            12 => run.zero(),
            13 => run.truncate(),
            14..16 => run.write_back(),
            16..18 => run.drop_cache(),
            18 => run.seek(),
            _ => run.crash_check(),
        }
        if step % 16 == 0 {
            run.toy.check_idle();
        }
        if step % 500 == 499 {
            run.finish();
        }
    }
    run.finish();
}

#[test]
fn j43_same_bytes_for_every_block_and_folio_size() {
    let mut seed = 1;
    for log2 in [10, 11, 12, 13, 16] {
        for order in [0, 3, 9] {
            seed += 1;
            let block = BlockSize::from_log2(log2).unwrap();
            run(block, order, 64 << 20, false, 2000, 0x9E37_79B9 * seed);
        }
    }
}

#[test]
fn the_same_in_a_cache_smaller_than_the_file() {
    for (log2, seed) in [(10, 5), (12, 6), (13, 7), (16, 8)] {
        let block = BlockSize::from_log2(log2).unwrap();
        run(block, 9, 256 << 10, false, 1500, 0x1234_5677 * seed);
    }
}

#[test]
fn j17_a_stale_cookie_is_never_copied_through() {
    run(BlockSize::KIB1, 9, 64 << 20, true, 1500, 77);
}

#[test]
fn short_mappings_change_nothing() {
    let toy = Setup::default().build();
    toy.max_map.store(1, Ordering::Relaxed);
    let data = Rng(9).bytes(100_000);
    toy.write(12_345, &data).unwrap();
    toy.sync().unwrap();
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    assert!(toy.read(12_345, data.len()) == data);
}

#[test]
fn j31_bytes_past_the_end_are_zero_before_the_size_passes_them() {
    let toy = Setup {
        block: BlockSize::KIB4,
        ..Setup::default()
    }
    .build();
    toy.write(0, &[7; 4096]).unwrap();
    toy.sync().unwrap();
    // As a foreign writer may leave it: the block's tail is not zero on the device.
    toy.truncate(1000);
    let Some(Block::Written(at)) = toy.state(0) else {
        panic!("the block is written");
    };
    let tail = extant_units::DevOff::new(at * 4096 + 1000);
    toy.pages.drop_clean(Pos::ZERO, Pos::MAX);
    toy.device.write_at(tail, &[STALE; 3096]).unwrap();
    toy.write(10_000, &[9; 10]).unwrap();
    assert!(toy.read(0, 10_000)[1000..].iter().all(|&byte| byte == 0));
    toy.sync().unwrap();
    assert!(!toy.on_disk().contains(&STALE));
}
