//! Mistakes of the server that the programs have to find.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use extant_testkit::{Need, Rng, need};

use super::shape::{MIB, Shape};
use super::{Mistake, run};

/// Programs in which a mistake has to be found.
const MOST: u64 = 60;

/// The end of the mount's patience with a mistake that leaves a request without an answer.
const SHORT: Duration = Duration::from_secs(4);

/// Runs programs with a mistake until one fails as `says` says. Returns how many were run.
fn programs_until(mistake: Mistake, says: &str, fit: impl Fn(Shape, &mut Rng) -> Shape) -> u64 {
    for seed in 1..=MOST {
        let mut rng = Rng::new(seed);
        let shape = Shape {
            aborts_after: None,
            patience: SHORT,
            ..Shape::chosen_by(&mut rng)
        };
        let shape = fit(shape, &mut rng);
        println!("{mistake:?} {seed} {shape:?}");
        let ran = catch_unwind(AssertUnwindSafe(|| run(&shape, rng, Some(mistake))));
        let Err(failure) = ran else {
            continue;
        };
        let text = failure.downcast_ref::<String>().map(String::as_str);
        let text = text.or(failure.downcast_ref::<&str>().copied());
        if text.is_some_and(|text| text.contains(says)) {
            println!("{mistake:?}: found in program {seed}");
            return seed;
        }
        println!("{mistake:?}: {text:?} in program {seed}");
    }
    panic!("{mistake:?} is not found");
}

/// A volume on which each write has to wait for the one before it.
fn tight(shape: Shape, rng: &mut Rng) -> Shape {
    Shape {
        mib: 16,
        free: rng.between(2, 4) * MIB,
        pace: Duration::from_millis(1),
        processes: 4,
        ..shape
    }
}

/// A volume that is full when the kernel has written back what it may hold dirty, which takes long:
/// a write that is let pass too early has no space.
fn slow(shape: Shape, rng: &mut Rng) -> Shape {
    Shape {
        mib: 16,
        free: rng.between(4, 7) * MIB,
        dirty_limit: 3 * MIB,
        pace: Duration::from_millis(4),
        processes: 4,
        whole_files: 90,
        operations: 10,
        ..shape
    }
}

/// One that is short now and then.
fn plenty(shape: Shape, rng: &mut Rng) -> Shape {
    Shape {
        mib: 128,
        free: 48 * MIB + rng.between(2, 6) * MIB,
        ..shape
    }
}

macro_rules! found {
    ($($(#[$meta:meta])* $name:ident: $mistake:ident, $says:literal, $fit:expr;)*) => { $(
        $(#[$meta])*
        #[test]
        fn $name() {
            if need(&[Need::Tool("mke2fs")]) {
                programs_until(Mistake::$mistake, $says, $fit);
            }
        }
    )* };
}

found! {
    a_drain_that_does_not_wait_is_found: DrainDoesNotWait, "were promised space", slow;
    files_that_are_armed_once_are_found: ArmedOnce, "and not asked about", plenty;
    a_signal_that_ends_a_drain_is_found: SignalEndsDrain, "drains failed", tight;
    a_writer_without_an_answer_is_found: InterruptedWriterUnanswered, "waits for ever", tight;
    a_loss_that_is_not_told_is_found: LossNotTold, "told", |shape, _| shape;
    blocks_that_are_not_shown_are_found: BlocksNotShown, "are old", plenty;
    blocks_that_are_due_and_forgotten_are_found: DueBlocksForgotten, "are old", plenty;
    lookups_that_are_not_forgotten_are_found: ForgetCountsOne, "lookups of node", |shape, _| shape;
}
