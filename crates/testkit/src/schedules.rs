//! Models of concurrent code, run under a checker that chooses every switch between threads
//! (shuttle). Built with `--cfg extant_shuttle` only.
//!
//! Each model runs under random schedules and under ones with few, well-placed switches. The
//! checker prints one that fails, to be replayed.

use std::sync::Arc;
use std::thread;

/// Schedules of each kind in which a broken model has to fail. Most fail in one of the first ten.
const TO_FAIL: usize = 40_000;

/// A model. The checker is compiled once for all of them, not once for each.
type Model = Arc<dyn Fn() + Send + Sync>;

fn random(model: &Model, schedules: usize) {
    let model = Arc::clone(model);
    shuttle::check_random(move || model(), schedules);
}

fn few_switches(model: &Model, schedules: usize) {
    let model = Arc::clone(model);
    shuttle::check_pct(move || model(), schedules, 3);
}

/// Runs `model` under `usual` schedules of each kind, or as many as `EXTANT_SCHEDULES` says.
///
/// # Panics
/// As the model does.
pub fn check(usual: usize, model: impl Fn() + Send + Sync + 'static) {
    let given = std::env::var("EXTANT_SCHEDULES").ok();
    let schedules = given.and_then(|n| n.parse().ok()).unwrap_or(usual);
    let model: Model = Arc::new(model);
    random(&model, schedules);
    few_switches(&model, schedules);
}

/// Runs a broken `model`, which must fail under one of many schedules.
///
/// The checker fails a schedule at the first panic that leaves a task, also while another task
/// unwinds. It leaves that one's stack where it is, and the thread is panicking from then on: so
/// each run has a thread of its own.
///
/// # Panics
/// It does not fail.
pub fn check_fails(model: impl Fn() + Send + Sync + 'static) {
    let model: Model = Arc::new(model);
    let fails = |run: fn(&Model, usize)| {
        let model = Arc::clone(&model);
        thread::spawn(move || run(&model, TO_FAIL)).join().is_err()
    };
    assert!(
        fails(random) || fails(few_switches),
        "no schedule shows what is broken"
    );
}
