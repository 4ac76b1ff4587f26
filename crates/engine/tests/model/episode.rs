//! One episode: run, and, if it fails, cut down.

use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use crate::config::Config;
use crate::ops::{Op, list};
use crate::world::World;

/// The seconds in which a failing list is cut down, unless `EXTANT_CUT_DOWN` has others.
const SHRINK_SECONDS: u64 = 60;

/// Runs the episode of `config`.
///
/// # Errors
/// Runs an episode. The error is what went wrong, the line that reproduces it, and the operations
/// that are needed for it.
pub(crate) fn run(config: Config) -> Result<(), String> {
    run_list(config, &list(config))
}

/// The same with operations of the caller's.
pub(crate) fn run_list(config: Config, ops: &[Op]) -> Result<(), String> {
    let Err((step, why)) = attempt(config, ops) else {
        return Ok(());
    };
    let mut text = format!("step {step}: {why}\nEXTANT_MODEL='{config}'\n");
    let (least, why) = shrink(config, ops[..ops.len().min(step + 1)].to_vec());
    let _ = writeln!(text, "cut down to {} operations: {why}", least.len());
    for op in least.iter().take(50) {
        let _ = writeln!(text, "  {op:?}");
    }
    Err(text)
}

/// Runs `ops`; the step that failed, and why.
pub(crate) fn attempt(config: Config, ops: &[Op]) -> Result<(), (usize, String)> {
    let mut step = 0;
    let run = || -> Result<(), String> {
        let mut world = World::new(config)?;
        for (number, op) in ops.iter().enumerate() {
            step = number;
            world.apply(op)?;
        }
        step = ops.len();
        world.finish()
    };
    let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    result.map_err(|why| (step, why))
}

/// A shorter list that fails as well, and how. Threads may make a failure come and go: then little
/// can be left out.
fn shrink(config: Config, mut ops: Vec<Op>) -> (Vec<Op>, String) {
    let seconds = crate::number("EXTANT_CUT_DOWN").unwrap_or(SHRINK_SECONDS);
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut why = String::from("only as a whole");
    let mut part = ops.len().div_ceil(2).max(1);
    loop {
        let mut at = 0;
        let before = ops.len();
        while at < ops.len() && Instant::now() < end {
            let mut fewer = ops.clone();
            fewer.drain(at..(at + part).min(ops.len()));
            match attempt(config, &fewer) {
                Err((step, how)) => {
                    fewer.truncate(step + 1);
                    (ops, why) = (fewer, how);
                }
                Ok(()) => at += part,
            }
        }
        if Instant::now() >= end || (part == 1 && ops.len() == before) {
            return (ops, why);
        }
        part = part.div_ceil(2).max(1);
    }
}
