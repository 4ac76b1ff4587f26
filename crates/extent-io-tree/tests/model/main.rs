//! Random operations on two trees, one that trims and one that splits, and on a model with a
//! word of bits per byte.
//!
//! After each operation both trees have the same records, answer alike, and have passed the same to
//! their owners what adds up to the same accounts; now and then all of it is held against the
//! model. `EXTANT_OPS` and `EXTANT_SEED` choose another length and another course.

mod accounts;
mod bytes;

use std::sync::Arc;

use accounts::Accounts;
use bytes::{BYTES, Bytes, end_of};
use extant_extent_io_tree::{Bits, ByteRange, Changeset, IoTree, OwnedRangeGuard, TreeTuning};
use extant_testkit::Rng;

fn given(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The three that are to agree, and what random operations remember.
struct Course {
    rng: Rng,
    trims: Arc<IoTree<Accounts>>,
    splits: Arc<IoTree<Accounts>>,
    bytes: Bytes,
    /// Locks that were taken, and not given back since.
    held: Vec<([OwnedRangeGuard<Accounts>; 2], Bits)>,
}

impl Course {
    fn new(seed: u64) -> Self {
        let tree = |trim_on_clear| {
            let tuning = TreeTuning {
                trim_on_clear,
                ..TreeTuning::default()
            };
            Arc::new(IoTree::with_hooks(tuning, Accounts::default()))
        };
        Self {
            rng: Rng::new(seed),
            trims: tree(true),
            splits: tree(false),
            bytes: Bytes::default(),
            held: Vec::new(),
        }
    }

    /// Some bytes: a few, many, or all to infinity.
    fn range(&mut self) -> ByteRange {
        let start = self.rng.below(BYTES);
        let longest = if self.rng.chance(30) { BYTES } else { 12 };
        let last = (start + self.rng.below(longest)).min(BYTES - 1);
        ByteRange::new(start, end_of(last)).unwrap()
    }

    /// Some state bits, some of them often, with a control bit now and then.
    fn bits(&mut self) -> Bits {
        let usual = [
            Bits::DELALLOC,
            Bits::DELALLOC | Bits::DIRTY,
            Bits::DELALLOC | Bits::NORESERVE,
            Bits::UPTODATE,
            Bits::DIRTY,
        ];
        let state = if self.rng.chance(80) {
            usual[self.rng.index(usual.len())]
        } else {
            let word = u32::try_from(self.rng.below(1 << 6)).unwrap_or(0);
            Bits::from_bits_retain(word)
        };
        let control = if self.rng.chance(10) {
            Bits::NOWAIT
        } else {
            Bits::empty()
        };
        (state - Bits::LOCKS) | control
    }

    fn set(&mut self) {
        let (range, bits) = (self.range(), self.bits());
        let flipped = self.bytes.set(range, bits);
        match self.rng.below(2) {
            0 => {
                let mut changes = [Changeset::new(), Changeset::new()];
                self.trims.set_with_changes(range, bits, &mut changes[0]);
                self.splits.set_with_changes(range, bits, &mut changes[1]);
                assert_eq!(changes[0], changes[1]);
                flipped.assert_are(&changes[0]);
            }
            _ => {
                self.trims.set(range, bits);
                self.splits.set(range, bits);
            }
        }
    }

    fn clear(&mut self) {
        let range = self.range();
        let bits = if self.rng.chance(40) {
            Bits::CLEAR_ALL
        } else {
            self.bits()
        };
        let flipped = self.bytes.clear(range, bits);
        match self.rng.below(2) {
            0 => {
                let mut changes = [Changeset::new(), Changeset::new()];
                self.trims.clear_with_changes(range, bits, &mut changes[0]);
                self.splits.clear_with_changes(range, bits, &mut changes[1]);
                assert_eq!(changes[0], changes[1]);
                flipped.assert_are(&changes[0]);
            }
            _ => {
                self.trims.clear(range, bits);
                self.splits.clear(range, bits);
            }
        }
    }

    fn lock(&mut self) {
        let range = self.range();
        let bits = [Bits::LOCKED, Bits::DIO_LOCKED, Bits::LOCKS][self.rng.index(3)];
        let locked = [&self.trims, &self.splits].map(|tree| tree.try_lock_owned(range, bits));
        let expected = self.bytes.lock(range, bits);
        assert!(locked.iter().all(|locked| locked.is_some() == expected));
        if let [Some(trims), Some(splits)] = locked {
            self.held.push(([trims, splits], bits));
        }
    }

    fn unlock(&mut self) {
        if self.held.is_empty() {
            return;
        }
        let held = self.rng.index(self.held.len());
        let (mut guards, bits) = self.held.swap_remove(held);
        let range = guards[0].range();
        let (first, last) = (range.start(), range.last().min(BYTES - 1));
        if self.rng.chance(10) && last > first {
            // First a part, so that the rest stays locked.
            let at = first + 1 + self.rng.below(last - first);
            guards.iter_mut().for_each(|guard| guard.release_before(at));
            self.held.push((guards, bits));
            self.bytes
                .unlock(ByteRange::new(first, at - 1).unwrap(), bits);
            return;
        }
        self.bytes.unlock(range, bits);
    }

    fn ask(&mut self) {
        let (range, bits) = (self.range(), self.bits() & Bits::STATE);
        let bits = bits | [Bits::empty(), Bits::LOCKED][self.rng.index(2)];
        if bits.is_empty() {
            return;
        }
        let (tree, bytes) = (&self.trims, &self.bytes);
        assert_eq!(
            tree.find_run(range.start(), bits),
            bytes.run(range.start(), bits)
        );
        assert_eq!(tree.count(range, bits), bytes.count(range, bits));
        let locked = bytes.first(range.start(), Bits::LOCKED);
        assert_eq!(
            tree.is_locked(range),
            locked.is_some_and(|at| at <= range.last())
        );
    }

    fn step(&mut self) {
        match self.rng.below(100) {
            0..30 => self.set(),
            30..65 => self.clear(),
            65..75 => self.lock(),
            75..88 => self.unlock(),
            _ => self.ask(),
        }
    }

    /// Trees and accounts agree with one another.
    fn compare(&self) {
        let records = self.trims.dump();
        assert_eq!(records, self.splits.dump());
        let accounts = self.trims.hooks(|hooks| *hooks);
        assert_eq!(accounts, self.splits.hooks(|hooks| *hooks));
        assert_eq!(accounts, Accounts::of(&records));
    }

    /// All agree with the model.
    fn verify(&self) {
        self.trims.verify();
        self.splits.verify();
        self.bytes.assert_are(&self.trims.dump());
    }
}

/// `ops` operations; a failure names the seed and the step.
fn run(seed: u64, ops: u64) {
    let mut course = Course::new(seed);
    for step in 0..ops {
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            course.step();
            course.compare();
            if step % 16 == 0 {
                course.verify();
            }
        }));
        if let Err(panic) = ran {
            eprintln!("EXTANT_SEED={seed}, operation {step}");
            std::panic::resume_unwind(panic);
        }
    }
    // Nothing is left when everything was given back.
    while !course.held.is_empty() {
        course.unlock();
    }
    course.bytes.clear(ByteRange::ALL, Bits::CLEAR_ALL);
    course.trims.clear(ByteRange::ALL, Bits::CLEAR_ALL);
    course.splits.clear(ByteRange::ALL, Bits::CLEAR_ALL);
    course.compare();
    course.verify();
    assert_eq!(course.trims.records(), 0);
    assert_eq!(course.trims.hooks(|hooks| *hooks), Accounts::default());

    let (trims, splits) = (course.trims.stats(), course.splits.stats());
    assert_eq!((splits.trim_first, splits.trim_last), (0, 0));
    if ops > 1000 {
        assert!(trims.trim_first > 0 && trims.trim_last > 0);
    }
    // Each trim saves cutting a record in two, and the record for it. Nothing else differs.
    let saved = trims.trim_first + trims.trim_last;
    assert_eq!(trims.splits + saved, splits.splits);
    assert_eq!(trims.prealloc_allocs + saved, splits.prealloc_allocs);
    assert_eq!(
        (trims.merges, trims.sets, trims.clears),
        (splits.merges, splits.sets, splits.clears)
    );
}

/// Rows 35, 37 and 38 of the invariants.
#[test]
fn j37_trimmed_and_split_trees_and_the_model_agree() {
    let ops = given("EXTANT_OPS").unwrap_or(1_000_000);
    let seed = given("EXTANT_SEED").unwrap_or(1);
    for part in 0..10 {
        run(seed.wrapping_add(part), ops / 10);
    }
}
