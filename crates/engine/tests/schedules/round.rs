//! Rounds: programs from seeds, and schedules of each.

use extant_failpoint::Failpoint;

use crate::program::Program;
use crate::run::{Count, run};
use crate::shrink::Failing;

/// Schedules of a program. The first shows how many steps it has, from which the others draw the
/// moments at which they switch.
const PER_PROGRAM: u64 = 4;

/// Outcome of many schedules.
#[derive(Default)]
pub(crate) struct Round {
    pub(crate) all: Count,
    pub(crate) undecided: u64,
}

impl Round {
    /// Runs some schedules of the program of `seed`.
    pub(crate) fn run(
        &mut self,
        seed: u64,
        failpoint: Option<Failpoint>,
    ) -> Result<(), Box<Failing>> {
        let mut program = Program::draw(seed, failpoint);
        let first = seed.wrapping_mul(PER_PROGRAM);
        for schedule in first..first + PER_PROGRAM {
            self.all.schedules += 1;
            match run(&program, schedule) {
                Ok(count) => {
                    self.all.steps += count.steps;
                    self.all.calls += count.calls;
                    self.undecided += u64::from(count.undecided);
                    program.steps = count.steps.max(1);
                }
                Err(why) => {
                    return Err(Box::new(Failing {
                        program,
                        without: Vec::new(),
                        schedule,
                        why,
                    }));
                }
            }
        }
        Ok(())
    }
}
