//! The iterator: a range of a file, one mapping at a time.

use extant_units::Pos;

use crate::map::Iomap;
use crate::ops::{IomapOp, IomapOps, Outcome};

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

/// Runs `body` over `[pos, pos + len)`, one mapping at a time, and returns the bytes processed. A
/// body that processes nothing ends the loop, unless it found its mapping stale.
///
/// # Errors
/// The first error of `begin`, of the body or of `end`, with the bytes processed before.
pub fn apply<O: IomapOps + ?Sized>(
    ops: &O,
    op: IomapOp,
    pos: Pos,
    len: u64,
    mut body: impl FnMut(&Iomap, Pos, u64) -> Result<Outcome, Stopped<O::Error>>,
) -> Result<u64, Stopped<O::Error>> {
    let mut done = 0;
    while done < len {
        let at = pos.plus(done);
        ops.counters().begins.bump();
        let map = ops
            .begin(op, at, len - done)
            .map_err(Stopped::after(done))?;
        let part = map.clamp(at, len - done);
        debug_assert!(part > 0, "a mapping covers the first byte asked for");
        let (outcome, failed) = match body(&map, at, part) {
            Ok(outcome) => (outcome, None),
            Err(stopped) => (Outcome::done(stopped.done), Some(stopped.error)),
        };
        debug_assert!(outcome.done <= part, "{outcome:?} of {part} bytes");
        let ended = ops.end(op, &map, at, part, outcome);
        done += outcome.done;
        if let Some(error) = failed {
            return Err(Stopped { done, error });
        }
        ended.map_err(Stopped::after(done))?;
        if outcome.stale {
            ops.counters().stale_retries.bump();
        } else if outcome.done == 0 {
            break;
        }
    }
    Ok(done)
}
