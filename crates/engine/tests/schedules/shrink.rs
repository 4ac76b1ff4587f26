//! Shorter programs that fail as well.

use std::time::{Duration, Instant};

use crate::number;
use crate::program::Program;
use crate::run::run;

/// Schedules that are tried with a call left out.
const TRIES: u64 = 40;
/// Seconds after which the shortest program so far is shown, unless the environment says otherwise.
const PATIENCE: u64 = 60;

/// A program that fails, and how it came about.
pub(crate) struct Failing {
    pub(crate) program: Program,
    /// Calls that were left out of it, one after the other.
    pub(crate) without: Vec<usize>,
    /// The seed of the schedule.
    pub(crate) schedule: u64,
    /// The reason, with the history.
    pub(crate) why: String,
}

/// Leaves calls out of a program that fails, as long as what is left fails under some schedule.
pub(crate) fn shrink(mut failing: Failing) -> Failing {
    let begin = Instant::now();
    let patience = Duration::from_secs(number("EXTANT_PATIENCE").unwrap_or(PATIENCE));
    'shorter: loop {
        for call in (0..failing.program.len()).rev() {
            let program = failing.program.without(call);
            if program.threads.is_empty() {
                continue;
            }
            let first = failing.schedule;
            for schedule in std::iter::once(first).chain(first + 1..first + TRIES) {
                if begin.elapsed() > patience {
                    return failing;
                }
                if let Err(why) = run(&program, schedule) {
                    failing.without.push(call);
                    failing = Failing {
                        program,
                        schedule,
                        why,
                        ..failing
                    };
                    continue 'shorter;
                }
            }
        }
        return failing;
    }
}
