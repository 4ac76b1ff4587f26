//! The tree under a model checker that chooses every switch between threads (shuttle). Built with
//! `--cfg extant_shuttle` only: `cargo xtask test` does that.
//!
//! Each model has a broken twin that shows its use: a second test that leaves a step out and
//! expects the failure.
#![cfg(extant_shuttle)]

mod accounts;
mod locks;

use extant_extent_io_tree::ByteRange;
use extant_testkit::schedules;

/// Schedules of each kind for a model.
const SCHEDULES: usize = 1000;

fn check(model: impl Fn() + Send + Sync + Copy + 'static) {
    schedules::check(SCHEDULES, model);
}

fn range(start: u64, last: u64) -> ByteRange {
    ByteRange::new(start, last).unwrap()
}
