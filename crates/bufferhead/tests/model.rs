//! Random operations against a vector of bytes, with walks that stop early and walks that do not:
//! the same bytes, and the same records.

mod rig;
#[path = "../../iomap/tests/toy/mod.rs"]
mod toy;

use std::sync::atomic::Ordering;

use extant_iomap::{Miss, WritebackControl, read};
use extant_units::{BlockSize, Pos};
use rig::{Dry, Rig};
use toy::{Rng, STALE, Setup, zero_block_rest};

struct Run {
    /// Two files that are treated alike: one stops its walks early, the other never.
    rigs: [Rig; 2],
    model: Vec<u8>,
    rng: Rng,
    span: u64,
}

fn at(pos: u64) -> usize {
    usize::try_from(pos).unwrap()
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
        let data = self.rng.bytes(at(len));
        // Now and then the source runs dry.
        let have = match self.rng.below(6) {
            0 => at(self.rng.below(len)),
            _ => data.len(),
        };
        let done = self.rigs.each_ref().map(|rig| {
            rig.write_from(pos, data.len(), &mut Dry(&data[..have]))
                .unwrap()
        });
        assert_eq!(done[0], done[1]);
        let done = done[0];
        assert!(done <= have);
        if done > 0 && self.model.len() < at(pos) + done {
            self.model.resize(at(pos) + done, 0);
        }
        if done > 0 {
            self.model[at(pos)..at(pos) + done].copy_from_slice(&data[..done]);
        }
    }

    fn read(&mut self) {
        let (pos, len) = self.range();
        let start = at(pos).min(self.model.len());
        let end = (start + at(len)).min(self.model.len());
        for rig in &self.rigs {
            let mut got = vec![0x55; at(len)];
            let miss = Miss::Fill(&rig.toy.readahead);
            let done = read(
                rig,
                &rig.toy.recent,
                miss,
                Pos::new(start as u64),
                &mut got[..],
            )
            .unwrap();
            assert!(
                got[..done] == self.model[start..end],
                "read {len} at {start}"
            );
        }
    }

    fn truncate(&mut self) {
        let size = self.rng.below(self.span);
        for rig in &self.rigs {
            if size < self.model.len() as u64 && zero_block_rest(rig, size) {
                let end = Pos::new(size).saturating_add(1);
                let control = WritebackControl::integrity(Pos::new(size), end);
                let pass = rig.toy.pages.writeback_pass();
                extant_bufferhead::write_back(rig, &pass, control).unwrap();
            }
            rig.toy.truncate(size);
        }
        self.model.resize(at(size), 0);
    }

    fn write_back(&mut self) {
        let (pos, len) = self.range();
        let control = match self.rng.below(3) {
            0 => WritebackControl::integrity(Pos::new(pos), Pos::new(pos + len)),
            1 => WritebackControl::background(len),
            _ => WritebackControl::integrity(Pos::ZERO, Pos::MAX),
        };
        let credits = match self.rng.below(3) {
            0 => u32::try_from(1 + self.rng.below(4)).unwrap(),
            _ => u32::MAX,
        };
        for rig in &self.rigs {
            rig.credits.store(credits, Ordering::Relaxed);
            let pass = rig.toy.pages.writeback_pass();
            extant_bufferhead::write_back(rig, &pass, control).unwrap();
        }
    }

    fn drop_cache(&mut self) {
        let (pos, len) = self.range();
        for rig in &self.rigs {
            rig.toy.pages.drop_clean(Pos::new(pos), Pos::new(pos + len));
        }
    }

    fn switch_allocation(&mut self) {
        let at_once = self.rng.below(2) == 0;
        for rig in &self.rigs {
            rig.at_once.store(at_once, Ordering::Relaxed);
        }
    }

    fn check(&self) {
        for rig in &self.rigs {
            rig.check_rings();
            let disk = rig.toy.on_disk();
            assert!(!disk.contains(&STALE), "stale bytes after a crash");
        }
        assert!(
            self.rigs[0].folios() == self.rigs[1].folios(),
            "walks that stop early and walks that do not leave the same state"
        );
    }

    fn finish(&self) {
        for rig in &self.rigs {
            rig.sync().unwrap();
            rig.check_rings();
            rig.toy.check_idle();
            assert_eq!(rig.toy.reserved(), 0);
            assert_eq!(rig.toy.pages.dirty_bytes(), 0);
            let disk = rig.toy.on_disk();
            assert!(disk[..] == self.model[..disk.len()], "the device has it");
            assert_eq!(disk.len(), self.model.len());
        }
    }
}

fn run(block: BlockSize, order: u32, steps: u32, seed: u64) {
    let rig = |stop| {
        let setup = Setup {
            block,
            order,
            blocks: (64 << 20) >> block.log2(),
            ..Setup::default()
        };
        Rig::new(setup, stop)
    };
    let mut run = Run {
        rigs: [rig(true), rig(false)],
        model: Vec::new(),
        rng: Rng(seed),
        span: 600_000,
    };
    for step in 0..steps {
        match run.rng.below(20) {
            0..8 => run.write(),
            8..12 => run.read(),
            12 => run.truncate(),
            13..15 => run.write_back(),
            15..17 => run.drop_cache(),
            17 => run.switch_allocation(),
            _ => run.check(),
        }
        if step % 200 == 199 {
            run.finish();
        }
    }
    run.finish();
}

#[test]
fn tail_33_walks_that_stop_early_leave_the_same_state() {
    let mut seed = 1;
    for log2 in [10, 11, 12, 14, 16] {
        for order in [0, 3, 9] {
            seed += 1;
            run(
                BlockSize::from_log2(log2).unwrap(),
                order,
                600,
                0x9E37_79B9 * seed,
            );
        }
    }
}
