//! Models of concurrent code, run under a checker that chooses every switch between threads
//! (shuttle). Built with `--cfg extant_shuttle` only.
//!
//! Each model runs under random schedules and under ones with few, well-placed switches. The
//! checker prints one that fails, to be replayed.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Schedules of each kind in which a broken model has to fail. Most fail in one of the first ten.
const TO_FAIL: usize = 40_000;

/// Runs `model` under `usual` schedules of each kind, or as many as `EXTANT_SCHEDULES` says.
///
/// # Panics
/// As the model does.
pub fn check(usual: usize, model: impl Fn() + Send + Sync + Copy + 'static) {
    let given = std::env::var("EXTANT_SCHEDULES").ok();
    let schedules = given.and_then(|n| n.parse().ok()).unwrap_or(usual);
    shuttle::check_random(model, schedules);
    shuttle::check_pct(model, schedules, 3);
}

/// Runs a broken `model`, which must fail under one of many schedules.
///
/// # Panics
/// It does not fail.
pub fn check_fails(model: impl Fn() + Send + Sync + Copy + 'static) {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let fails = |run: &dyn Fn()| catch_unwind(AssertUnwindSafe(run)).is_err();
    let failed = fails(&|| shuttle::check_random(model, TO_FAIL))
        || fails(&|| shuttle::check_pct(model, TO_FAIL, 3));
    std::panic::set_hook(quiet);
    assert!(failed, "no schedule shows what is broken");
}
