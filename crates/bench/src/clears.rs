//! Clears in an I/O tree alone, with no file system around it: what the seed of the trims is about, in isolation.
//!
//! Sixty-four writers, as many as the seed's queue holds for each job, have a region each. A region is delayed and dirty, which is one
//! record, and loses its bits 4 KiB by 4 KiB: from its front (the last record of each clear is trimmed), from its end (the first record is), or
//! mixed, as requests end in any order: a quarter from the middle, which cuts a record in two either way.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use extant_extent_io_tree::{Bits, ByteRange, IoTree};
use extant_testkit::{Error, Result, Rng};

use crate::place::Site;
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::runner::{Case, Outcome, counted};
use crate::times;
use crate::variant::{Setup, is_about_trims};

/// Writers, over all threads.
const WRITERS: u64 = 64;
/// Pieces of a region.
const PIECES: u64 = 64;
const PIECE: u64 = 4096;
/// From one region to the next.
const STRIDE: u64 = 1 << 20;

/// Where a region loses its bits next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Front,
    End,
    Mixed,
}

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, from: From, threads: u64, timed: bool| Case {
        bench: Bench::Randwrite,
        name: name.to_owned(),
        unit: Unit::Nanoseconds,
        setup: if timed { Setup::TreeTimed } else { Setup::Tree },
        fits: is_about_trims,
        sample: Box::new(move |site, plan| sample(from, threads, timed, site, plan)),
    };
    vec![
        case("clear/first", From::End, 1, false),
        case("clear/last", From::Front, 1, false),
        case("clear/mixed", From::Mixed, 1, false),
        case("clear/mixed/4", From::Mixed, 4, false),
        case("clear/mixed/each", From::Mixed, 1, true),
    ]
}

fn sample(from: From, threads: u64, timed: bool, site: &mut Site, plan: &Plan) -> Result<Outcome> {
    let tree = site.tree()?;
    times::take();
    counted(site, |_| {
        let all = Barrier::new(usize::try_from(threads)?);
        let took = std::thread::scope(|scope| {
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
            let mut sum = (Duration::ZERO, 0);
            for worker in workers {
                let (took, clears) = worker.join().map_err(|_| Error::new("a thread panicked"))?;
                sum = (sum.0 + took, sum.1 + clears);
            }
            Ok::<_, Error>(sum)
        })?;
        let (took, calls) = took;
        let times = times::take();
        #[allow(clippy::cast_precision_loss, reason = "for people to read")]
        let mean = took.as_secs_f64() * 1e9 / calls as f64;
        Ok(Outcome {
            value: if timed { times.mean() } else { mean },
            calls,
            bytes: calls * PIECE,
            times: timed.then_some(times),
            ..Outcome::default()
        })
    })
}

/// Which piece of a region goes when.
fn order(from: From, rng: &mut Rng) -> Vec<u64> {
    let mut rest: Vec<u64> = (0..PIECES).collect();
    let mut order = Vec::with_capacity(rest.len());
    while !rest.is_empty() {
        let last = rest.len() - 1;
        let next = match (from, order.len() % 4) {
            (From::Front, _) | (From::Mixed, 0 | 2) => 0,
            (From::End, _) | (From::Mixed, 1) => last,
            (From::Mixed, _) => rng.index(rest.len()),
        };
        order.push(rest.remove(next));
    }
    order
}

/// Fills and clears all regions, piece by piece and writer by writer, for `long`. Returns the time that the clears took, and how many
/// there were.
fn rounds(tree: &IoTree, orders: &[(u64, Vec<u64>)], long: Duration) -> (Duration, u64) {
    let (mut took, mut clears) = (Duration::ZERO, 0);
    while took < long || clears == 0 {
        for (writer, _) in orders {
            if let Some(region) = ByteRange::from_len(writer * STRIDE, PIECES * PIECE) {
                tree.set(region, Bits::DELALLOC | Bits::DIRTY);
            }
        }
        let start = Instant::now();
        for step in 0..PIECES {
            for (writer, order) in orders {
                let piece = order.get(usize::try_from(step).unwrap_or(0));
                let at = writer * STRIDE + piece.copied().unwrap_or(0) * PIECE;
                if let Some(range) = ByteRange::from_len(at, PIECE) {
                    tree.clear(range, Bits::CLEAR_ALL);
                    clears += 1;
                }
            }
        }
        took += start.elapsed();
    }
    (took, clears)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_is_cleared_once() {
        for from in [From::Front, From::End, From::Mixed] {
            let mut order = order(from, &mut Rng::new(1));
            order.sort_unstable();
            assert!(order.into_iter().eq(0..PIECES), "{from:?}");
        }
    }
}
