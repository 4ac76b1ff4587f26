//! The schedules that are tried.

use std::time::{Duration, Instant};

use super::actor::Call;
use super::shelf::Shelf;
use super::state::{QUARTER, Rules, State};
use super::{search, walk};

const GC: Call = Call::Gc { keep: None };
const KEEP_ONE: Call = Call::Gc { keep: Some(1) };

/// A store that calls have made one after the other, each so many quarters after the one before.
fn made_by(calls: &[(u64, Call)]) -> (Shelf, u64) {
    let (mut shelf, mut now) = (Shelf::default(), 1_000 * QUARTER);
    for (quarters, call) in calls {
        now += quarters * QUARTER;
        call.run_alone(&mut shelf, now);
    }
    (shelf, now)
}

/// Version 1 of an image has chunks that version 2 does not have. Both are old.
const TWO_VERSIONS: [(u64, Call); 2] = [(0, Call::Push("a", "xy")), (0, Call::Push("a", "y"))];

/// The store at the start of a schedule.
#[derive(Clone, Copy)]
enum Before {
    /// Version 1 is to be removed.
    Old,
    /// It was removed, and what it had is in a list that is to be swept.
    Listed,
    /// The list was swept, and is to be removed.
    Swept,
}

impl Before {
    fn shelf(self) -> (Shelf, u64) {
        let more: &[(u64, Call)] = match self {
            Self::Old => &[],
            Self::Listed => &[(4, KEEP_ONE)],
            Self::Swept => &[(4, KEEP_ONE), (4, GC)],
        };
        let (shelf, now) = made_by(&[&TWO_VERSIONS, more].concat());
        (shelf, now + 4 * QUARTER)
    }
}

fn all(before: Before, rules: &Rules) {
    let (shelf, now) = before.shelf();
    let searched = search(rules, State::new(rules, shelf, now));
    println!("{searched:?}");
    assert!(searched.states > 2000, "{searched:?}");
    assert!(searched.schedules > 4000.0, "{searched:?}");
    assert!(searched.ends > 1, "{searched:?}");
}

const PUSH: Call = Call::Push("b", "x");

#[test]
fn a_list_is_made_beside_a_push() {
    all(Before::Old, &Rules::new(&[KEEP_ONE, PUSH], 2, 2).with(1, 0));
}

#[test]
fn a_list_is_made_and_swept_beside_a_push() {
    all(
        Before::Old,
        &Rules::new(&[KEEP_ONE, GC, PUSH], 1, 2).with(1, 0),
    );
}

#[test]
fn a_list_is_swept_beside_a_push() {
    all(Before::Listed, &Rules::new(&[GC, PUSH], 2, 2).with(1, 0));
}

#[test]
fn a_list_is_swept_by_two() {
    all(Before::Listed, &Rules::new(&[GC, GC], 2, 2).with(1, 0));
}

#[test]
fn a_list_goes_beside_a_push() {
    all(Before::Swept, &Rules::new(&[GC, PUSH], 2, 2).with(1, 0));
}

#[test]
fn two_runs_beside_a_push_at_one_time() {
    all(Before::Swept, &Rules::new(&[GC, GC, PUSH], 0, 2));
}

#[test]
fn a_stopped_push_leaves_nothing() {
    all(Before::Listed, &Rules::new(&[PUSH, GC], 1, 2).with(0, 1));
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Two pushes of images that share chunks, four runs of gc, and a host that sleeps.
/// `EXTANT_SEED` is the first seed, `EXTANT_SECONDS` repeats the schedules with others.
#[test]
fn random_schedules_soak() {
    let from = number("EXTANT_SEED").unwrap_or(1);
    let until = Duration::from_secs(number("EXTANT_SECONDS").unwrap_or(0));
    let began = Instant::now();
    let calls = [
        GC,
        KEEP_ONE,
        GC,
        GC,
        Call::Push("b", "xz"),
        Call::Push("a", "xy"),
    ];
    let mut schedules = 0;
    for seed in from.. {
        if schedules >= 2500 && began.elapsed() >= until {
            break;
        }
        // The answers of all calls take memory.
        let rules = Rules::new(&calls, 16, 1000).with(4, 1);
        for seed in seed * 100..(seed + 1) * 100 {
            let before =
                [Before::Old, Before::Listed, Before::Swept][usize::try_from(seed % 3).unwrap()];
            let (shelf, now) = before.shelf();
            walk(&rules, State::new(&rules, shelf, now), seed);
            schedules += 1;
        }
    }
    println!("{schedules} schedules from the seed {from} on");
}

/// A run that sleeps between two removals. Minutes: only in a soak.
#[test]
fn a_sweeper_sleeps_while_its_list_goes_soak() {
    if number("EXTANT_SECONDS").is_none() {
        return;
    }
    let calls = [GC, GC, GC, PUSH];
    let mut rules = Rules::new(&calls, 1, 2).with(1, 0);
    rules.sleeper = Some(0);
    all(Before::Listed, &rules);
}
