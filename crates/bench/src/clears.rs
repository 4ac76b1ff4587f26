//! Clears in an I/O tree alone, with no file system around it: what the seed of the trims is about,
//! in isolation.
//!
//! Sixty-four writers, as many as the seed's queue holds for each job, have a region each. A region
//! is delayed and dirty, which is one record, and loses its bits 4 KiB by 4 KiB: from its front
//! (the last record of each clear is trimmed), from its end (the first record is), or mixed, as
//! requests end in any order: a quarter from the middle, which cuts a record in two either way.
//!
//! `lock` is what a write pays for its range: locking and unlocking 4 KiB, with nothing else locked
//! and between sixty-four others.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use extant_extent_io_tree::{Bits, ByteRange, IoTree};
use extant_host::{Error, Result, Rng};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};

use crate::plan::Plan;
use crate::rows::Unit;
use crate::times;
use crate::variant::{Setup, is_about_trims};

/// Writers, over all threads.
const WRITERS: u64 = 64;
/// Pieces of a region.
const PIECES: u64 = 64;
const PIECE: u64 = 4096;
/// From one region to the next.
const STRIDE: u64 = 1 << 20;

/// The end from which a region loses its bits next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClearFrom {
    Front,
    End,
    Mixed,
}

pub(crate) fn cases() -> Vec<Case> {
    let unit = Unit::Nanoseconds;
    let case = |name: &str, from: ClearFrom, threads: u64, timed: bool| {
        let setup = if timed { Setup::TreeTimed } else { Setup::Tree };
        Case::randwrite(name, unit, setup, is_about_trims, move |_, bed, plan| {
            sample(from, threads, timed, bed, plan)
        })
    };
    let lock = |name: &str, others: u64| {
        let sample = move |_, bed: &mut TestBed, plan: &Plan| lock(others, bed, plan);
        Case::randwrite(name, unit, Setup::Tree, is_about_trims, sample)
    };
    vec![
        lock("lock/alone", 0),
        lock("lock/between", WRITERS),
        case("clear/first", ClearFrom::End, 1, false),
        case("clear/last", ClearFrom::Front, 1, false),
        case("clear/mixed", ClearFrom::Mixed, 1, false),
        case("clear/mixed/4", ClearFrom::Mixed, 4, false),
        case("clear/mixed/each", ClearFrom::Mixed, 1, true),
    ]
}

fn sample(
    from: ClearFrom,
    threads: u64,
    timed: bool,
    bed: &mut TestBed,
    plan: &Plan,
) -> Result<Outcome> {
    let tree = bed.tree()?;
    times::take();
    counted(bed, |_| {
        let all = Barrier::new(usize::try_from(threads)?);
        let cleared = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|number| {
                    let (tree, all) = (&tree, &all);
                    let mine = number * (WRITERS / threads)..(number + 1) * (WRITERS / threads);
                    scope.spawn(move || {
                        let mut rng = Rng::new(number);
                        let orders: Vec<_> = mine.map(|w| (w, order(from, &mut rng))).collect();
                        all.wait();
                        rounds(tree, &orders, plan.calls * 5)
                    })
                })
                .collect();
            let mut all = Cleared::default();
            for worker in workers {
                let more = worker.join().map_err(|_| Error::new("a thread panicked"))?;
                all.add(&more);
            }
            Ok::<_, Error>(all)
        })?;
        let times = times::take();
        let calls = cleared.clears;
        Ok(Outcome {
            value: match (timed, threads) {
                (true, _) => times.mean(),
                // Alone, what it costs undisturbed.
                (false, 1) => cleared.least,
                (false, _) => cleared.mean(),
            },
            calls,
            bytes: calls * PIECE,
            times: timed.then_some(times),
            ..Outcome::default()
        })
    })
}

/// Locks and unlocks ranges, between `others` that stay locked.
fn lock(others: u64, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let tree = bed.tree()?;
    let piece = |number: u64| range(number * PIECE, PIECE);
    let held: Vec<_> = (0..others)
        .map(|number| tree.lock(piece(2 * number), Bits::LOCKED))
        .collect();
    let outcome = counted(bed, |_| {
        let mut all = Cleared::default();
        while all.took < plan.calls * 5 {
            let mut round = Cleared::default();
            let start = Instant::now();
            for number in 0..PIECES * WRITERS {
                // All over them, in no order that helps.
                drop(tree.lock(piece(2 * (number * 37 % WRITERS) + 1), Bits::LOCKED));
            }
            round.took = start.elapsed();
            round.clears = PIECES * WRITERS;
            round.least = round.mean();
            all.add(&round);
        }
        Ok(Outcome {
            value: all.least,
            calls: all.clears,
            bytes: all.clears * PIECE,
            ..Outcome::default()
        })
    });
    drop(held);
    outcome
}

/// A range among the regions, which are far from the largest offset.
#[allow(clippy::expect_used, reason = "the bounds are those of the regions")]
fn range(at: u64, len: u64) -> ByteRange {
    ByteRange::from_len(at, len).expect("a range of some MiB")
}

/// Which piece of a region goes when.
fn order(from: ClearFrom, rng: &mut Rng) -> Vec<u64> {
    let mut rest: Vec<u64> = (0..PIECES).collect();
    let mut order = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let last = rest.len() - 1;
        let next = match (from, order.len() % 4) {
            (ClearFrom::Front, _) | (ClearFrom::Mixed, 0 | 2) => 0,
            (ClearFrom::End, _) | (ClearFrom::Mixed, 1) => last,
            (ClearFrom::Mixed, _) => rng.index(rest.len()),
        };
        order.push(rest.remove(next));
    }
    order
}

/// Time and counters of rounds of clears.
struct Cleared {
    took: Duration,
    clears: u64,
    /// Nanoseconds per clear in the fastest round.
    least: f64,
}

impl Default for Cleared {
    fn default() -> Self {
        Self {
            took: Duration::ZERO,
            clears: 0,
            least: f64::INFINITY,
        }
    }
}

impl Cleared {
    fn add(&mut self, more: &Self) {
        self.took += more.took;
        self.clears += more.clears;
        self.least = self.least.min(more.least);
    }

    /// Nanoseconds per clear.
    #[allow(clippy::cast_precision_loss, reason = "for display")]
    fn mean(&self) -> f64 {
        self.took.as_secs_f64() * 1e9 / self.clears as f64
    }
}

/// Fills and clears all regions, piece by piece and writer by writer, until the clears have taken
/// `long`.
fn rounds(tree: &IoTree, orders: &[(u64, Vec<u64>)], long: Duration) -> Cleared {
    let mut all = Cleared::default();
    while all.took < long {
        for (writer, _) in orders {
            let region = range(writer * STRIDE, PIECES * PIECE);
            tree.set(region, Bits::DELALLOC | Bits::DIRTY);
        }
        let mut round = Cleared::default();
        let start = Instant::now();
        for step in 0..orders.first().map_or(0, |(_, order)| order.len()) {
            for (writer, order) in orders {
                let at = writer * STRIDE + order[step] * PIECE;
                tree.clear(range(at, PIECE), Bits::CLEAR_ALL);
                round.clears += 1;
            }
        }
        round.took = start.elapsed();
        round.least = round.mean();
        all.add(&round);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_cleared_once() {
        for from in [ClearFrom::Front, ClearFrom::End, ClearFrom::Mixed] {
            let mut order = order(from, &mut Rng::new(1));
            order.sort_unstable();
            assert!(order.into_iter().eq(0..PIECES), "{from:?}");
        }
    }
}
