//! The whole engine under one seed: threads, locks, condition variables, atomics, time and the
//! device are steps that a seeded scheduler picks. Built with `--cfg extant_shuttle` only:
//!
//! ```text
//! RUSTFLAGS='--cfg extant_shuttle' cargo test -p extant-engine --test schedules \
//!     --target-dir target/interleavings
//! ```
//!
//! A seed draws a volume, a few calls that one thread makes first, and two or three threads with
//! up to three calls each; and it draws each step of some schedules of that program. What the calls
//! returned must be explained by an order of their parts ([`history`]), the accounts in memory must
//! be right when all threads have ended, the bytes must be the same from the device, the image must
//! be clean after the unmount, and what a power cut leaves must be what was promised ([`crash`]).
//! A failing program is shortened, and a line repeats it.
#![cfg(extant_shuttle)]

mod cases;
mod cells;
mod crash;
mod data;
mod device;
mod drawer;
mod history;
mod mixes;
mod model;
mod names;
mod planted;
mod program;
mod protection;
mod round;
mod run;
mod scheduler;
mod shrink;
mod states;
mod world;

use std::time::{Duration, Instant};

use extant_failpoint::Failpoint;
use program::Program;
use round::Round;
use run::run;
use shrink::{Failing, shrink};

/// Schedules of a short round.
const SCHEDULES: u64 = 300;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// The failpoint that is switched on by hand.
fn failpoint() -> Option<Failpoint> {
    let name = std::env::var("EXTANT_FAILPOINT").ok()?;
    Some(Failpoint::named(&name).unwrap_or_else(|| panic!("no failpoint is called {name}")))
}

/// A seed that no run had before.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::from(now.unwrap_or_default().subsec_nanos()) << 20
}

/// The words that repeat a failure.
fn told(seed: u64, failing: &Failing) -> String {
    let Failing {
        program,
        without,
        schedule,
        why,
    } = failing;
    let without: Vec<_> = without.iter().map(ToString::to_string).collect();
    let (failpoint, steps) = (program.setup.failpoint, program.steps);
    let failpoint = failpoint.map_or(String::new(), |one| {
        format!("EXTANT_FAILPOINT={} ", one.name())
    });
    format!(
        "{why}\n{program}  {failpoint}EXTANT_SEED={seed} EXTANT_WITHOUT={} \
         EXTANT_SCHEDULE={schedule} EXTANT_STEPS={steps} RUSTFLAGS='--cfg extant_shuttle' \
         cargo test -p extant-engine --test schedules --target-dir target/interleavings \
         one_schedule",
        without.join(",")
    )
}

/// Schedules of fresh seeds: some hundred, or as many as `EXTANT_SCHEDULES` says, or for
/// `EXTANT_SECONDS`; from `EXTANT_SEED` on.
#[test]
fn every_schedule() {
    let first = number("EXTANT_SEED").unwrap_or_else(fresh_seed);
    let begin = Instant::now();
    let count = number("EXTANT_SCHEDULES").unwrap_or(SCHEDULES);
    let until = number("EXTANT_SECONDS").map(Duration::from_secs);
    let mut round = Round::default();
    let mut failed = 0;
    let mut seed = first;
    while until.map_or(round.all.schedules < count, |until| begin.elapsed() < until) {
        if let Err(failing) = round.run(seed, failpoint()) {
            failed += 1;
            println!("seed {seed}: {}\n", told(seed, &shrink(*failing)));
            if failed == number("EXTANT_FAILURES").unwrap_or(1) {
                break;
            }
        }
        seed += 1;
    }
    let Round { all, undecided, .. } = round;
    println!(
        "{} schedules from seed {first}, {failed} failed, {undecided} undecided, {} steps, \
         {} calls, {:?}",
        all.schedules,
        all.steps,
        all.calls,
        begin.elapsed()
    );
    assert_eq!(failed, 0, "schedules fail");
}

/// The schedule that a failure's line names; without one, a schedule that goes well.
#[test]
fn one_schedule() {
    let seed = number("EXTANT_SEED").unwrap_or(1);
    let schedule = number("EXTANT_SCHEDULE").unwrap_or(seed);
    let without = std::env::var("EXTANT_WITHOUT").unwrap_or_default();
    let without = without.split(',').filter_map(|call| call.parse().ok());
    let mut program = without.fold(Program::draw(seed, failpoint()), |program, call: usize| {
        program.without(call)
    });
    program.steps = number("EXTANT_STEPS").unwrap_or(0);
    match run(&program, schedule) {
        Ok(count) => println!("{program}{count:?}"),
        Err(why) => panic!("{why}\n{program}"),
    }
}

/// One seed is one schedule, step by step.
#[test]
fn a_seed_repeats_its_schedule() {
    for seed in 1..=6 {
        let program = Program::draw(seed, None);
        assert_eq!(run(&program, seed), run(&program, seed), "seed {seed}");
    }
}
