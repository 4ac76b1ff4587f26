//! The protocol of the range lock under a model checker that chooses every switch between
//! threads (shuttle). Built with `--cfg extant_shuttle` only: `cargo xtask test` does that.
//!
//! `pairs` has each two of its users, `drain` the file's lock against all of them, `truncation`
//! the sequences that the lock is for. Each model has twins that leave out one step of the
//! protocol (`Step`) or of the user's part, in which the checker has to find the fault. A lost
//! wake ends as a deadlock, which the checker reports.
#![cfg(extant_shuttle)]

mod drain;
mod file;
mod pairs;
mod truncation;
mod users;

use extant_testkit::schedules;

/// Schedules of each kind for a model.
const SCHEDULES: usize = 600;

fn check(model: impl Fn() + Send + Sync + Copy + 'static) {
    schedules::check(SCHEDULES, model);
}
