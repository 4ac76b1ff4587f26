//! Two threads that write one cached file, one behind the other: what it is worth to the second
//! that the first unlocks what it has passed.
//!
//! The leader writes the whole file by one call. Once it has locked its range, the follower writes
//! the same bytes from the front, by calls of 1 MiB. The figure is the time from then on until both
//! have ended, and `first` beside it the time that the follower's first call took. With a range
//! that is unlocked at its end (`nofronts`) one thread works after the other. `follow/1M/clear` is
//! the time of each clear in an I/O tree meanwhile.

use std::time::{Duration, Instant};

use extant::{Cred, Node, Volume};
use extant_host::{Error, Result, ensure};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::plan::Plan;
use crate::rows::Unit;
use crate::target::Data;
use crate::times;
use crate::variant::{Setup, is_about_fronts};

/// A call of the follower.
const CALL: usize = 1 << 20;
/// A folio of the file; the least that the leader unlocks at a time is as long.
const FOLIO: usize = 256 << 10;

pub(crate) fn cases() -> Vec<Case> {
    let case =
        |name: &str, unit, setup| Case::randwrite(name, unit, setup, is_about_fronts, sample);
    vec![
        case("follow/1M", Unit::Milliseconds, Setup::Cache),
        case("follow/1M/clear", Unit::Nanoseconds, Setup::CacheTimed),
    ]
}

fn sample(setup: Setup, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let name = "followed";
    let bytes = vec![7; usize::try_from(plan.stream_bytes)?];
    bed.file(name, |file| fill(file, &bytes))?;
    let (volume, node) = bed.node(name)?;
    times::take();
    counted(bed, |_| {
        let (mut all, mut laps) = (Lap::default(), 0_u32);
        while laps == 0 || all.both < plan.sample {
            let lap = follow(&volume, &node, &bytes)?;
            all.both += lap.both;
            all.first += lap.first;
            laps += 1;
        }
        let calls = u64::from(laps) * (1 + bytes.len().div_ceil(CALL) as u64);
        let mean = |sum: Duration| sum.as_secs_f64() * 1e3 / f64::from(laps);
        let outcome = Outcome {
            calls,
            bytes: 2 * u64::from(laps) * plan.stream_bytes,
            ..Outcome::default()
        };
        Ok(match setup {
            Setup::CacheTimed => outcome.or_mean_of(Some(times::take())),
            _ => Outcome {
                value: mean(all.both),
                beside: vec![("first", Unit::Milliseconds, mean(all.first))],
                ..outcome
            },
        })
    })
}

/// Makes the file of folios of one size, and has it on the device.
fn fill(file: &mut dyn Data, bytes: &[u8]) -> Result<()> {
    for (part, pos) in bytes.chunks(FOLIO).zip((0..).step_by(FOLIO)) {
        file.pwrite(part, pos)?;
    }
    file.sync()
}

/// The times of one run of both threads.
#[derive(Default)]
struct Lap {
    /// From when the leader had its range until both had ended.
    both: Duration,
    /// The follower's first call.
    first: Duration,
}

fn follow(volume: &Volume, node: &Node, bytes: &[u8]) -> Result<Lap> {
    let put = |pos: usize, part: &[u8]| {
        let done = volume.write(node, pos as u64, part, &Cred::root())?;
        ensure!(done == part.len(), "{done} bytes at {pos}");
        Ok::<_, Error>(())
    };
    let unlocked = locked_ranges(volume);
    std::thread::scope(|scope| {
        let leader = scope.spawn(|| put(0, bytes));
        while locked_ranges(volume) == unlocked && !leader.is_finished() {
            std::thread::yield_now();
        }
        let begun = Instant::now();
        let mut first = Duration::ZERO;
        for (number, part) in bytes.chunks(CALL).enumerate() {
            put(number * CALL, part)?;
            if number == 0 {
                first = begun.elapsed();
            }
        }
        let led = leader.join();
        led.map_err(|_| Error::new("a thread panicked"))??;
        let both = begun.elapsed();
        Ok(Lap { both, first })
    })
}

/// Ranges that have been locked in the volume so far.
fn locked_ranges(volume: &Volume) -> u64 {
    let stats = volume.stats().into_iter();
    let mut sets = stats.filter(|(name, _)| *name == "tree_sets");
    sets.next().map_or(0, |(_, sets)| sets)
}
