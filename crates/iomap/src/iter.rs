//! The iterator: a range of a file, one mapping at a time.

use extant_units::Pos;

use crate::map::Iomap;
use crate::ops::{IomapOp, IomapOps, Outcome};

/// What the body did with one mapping.
pub type Step = Outcome;

/// An operation that failed after some bytes.
#[derive(Debug)]
pub struct Stopped<E> {
    /// Bytes processed before the error.
    pub done: u64,
    /// The error.
    pub error: E,
}

impl<E> Stopped<E> {
    pub(crate) fn after(done: u64) -> impl FnOnce(E) -> Self {
        move |error| Self { done, error }
    }
}

/// Runs `body` over `[pos, pos + len)`, one mapping at a time, and returns the bytes processed. A body that
/// processes nothing ends the loop, unless it found its mapping stale.
///
/// # Errors
/// The first error of `begin`, of the body or of `end`, with the bytes processed before.
pub fn apply<O: IomapOps + ?Sized>(
    ops: &O,
    op: IomapOp,
    pos: Pos,
    len: u64,
    mut body: impl FnMut(&Iomap, Pos, u64) -> Result<Step, Stopped<O::Error>>,
) -> Result<u64, Stopped<O::Error>> {
    let mut done = 0;
    while done < len {
        let at = pos.saturating_add(done);
        ops.counters().begins.bump();
        let map = ops
            .begin(op, at, len - done)
            .map_err(Stopped::after(done))?;
        let part = map.clamp(at, len - done);
        debug_assert!(part > 0, "a pages covers the first byte asked for");
        let (step, failed) = match body(&map, at, part) {
            Ok(step) => (step, None),
            Err(stopped) => {
                let step = Step {
                    done: stopped.done,
                    ..Step::default()
                };
                (step, Some(stopped.error))
            }
        };
        debug_assert!(step.done <= part);
        let ended = ops.end(op, &map, at, part, step);
        done += step.done;
        if let Some(error) = failed {
            return Err(Stopped { done, error });
        }
        ended.map_err(Stopped::after(done))?;
        if step.stale {
            ops.counters().stale_retries.bump();
        } else if step.done == 0 {
            break;
        }
    }
    Ok(done)
}
