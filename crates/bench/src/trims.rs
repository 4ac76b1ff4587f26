//! The workload of the seed of the trims in its own size, and one in which trims act.
//!
//! `randwrite/sparse/4K` is fio's `randwrite` as the seed has it: 12 jobs, 64 requests of 4 KiB
//! each in flight, anywhere in a sparse file of 8 GiB, past the cache, on a device that forgets
//! data. A round has an empty file, and ends when as much is written as in the seed's run, 4.5 GiB
//! of the 8, or after 20 s in a full run: more than three of four writes meet no block, and
//! allocate one. `noslots` has a record in the file's I/O tree for each request, `noslots-notrim`
//! the same without trims. Each of these records is cleared as a whole.
//!
//! `randwrite/shared/4M` are 12 jobs with calls of 4 MiB anywhere in a file whose blocks lie in
//! pieces of 256 KiB. A call has one record for its range, and unlocks it piece by piece: all of
//! its clears but the last trim.
//!
//! The time of each clear is taken in the same samples: its mean is the row `clear`. That costs two
//! looks at the clock for each request of `noslots`, and hardly any with slots. Of the counters,
//! `processor_ns` is the time of all processors, and `clear_ns_at_median` the part of it that
//! clears take if each takes the median: the mean has the waits of threads that lost the processor.

use std::time::{Duration, Instant};

use extant::{Cred, FallocateMode};
use extant_host::{Result, Rng, ensure};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::fragments::take_all;
use crate::null_data::marked;
use crate::pinned::processor_time_of_all;
use crate::plan::Plan;
use crate::randwrite::{BLOCK, jobs, write};
use crate::rows::Unit;
use crate::times::{self, Times};
use crate::variant::{Setup, is_about_locks, is_about_trims};

/// As in the seed's run.
const JOBS: u64 = 12;
const DEPTH: usize = 64;

/// A call of `randwrite/shared/4M`.
const CALL: u64 = 4 << 20;
/// A piece of its file: as much as is worth a release.
const PIECE: u64 = 256 << 10;
/// The file is as long as so many calls of all jobs.
const CALLS: u64 = 4;

/// Free pieces beside those that it gets.
const SPARE: u64 = 8;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, fits, sample: fn(&mut TestBed, &Plan) -> Result<Outcome>| {
        let unit = Unit::MibPerSecond;
        let sample = move |_, bed: &mut TestBed, plan: &Plan| sample(bed, plan);
        Case::randwrite(name, unit, Setup::Sparse, fits, sample)
    };
    vec![
        case("randwrite/sparse/4K", is_about_locks, sparse),
        case("randwrite/shared/4M", is_about_trims, shared),
    ]
}

/// The length of the file in pieces.
fn shared_bytes() -> u64 {
    CALLS * JOBS * CALL
}

/// Writes anywhere in a file that is empty before.
fn sparse(bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let (name, len, long) = ("sparse", plan.sparse_bytes(), plan.sparse_sample());
    bed.fresh(name)?.set_len(len)?;
    let (volume, node) = bed.node(name)?;
    let outcome = measured(bed, BLOCK, |rng_of, all| {
        let mut rng = Rng::new(rng_of);
        all.wait();
        let end = Instant::now() + long;
        let most = len / BLOCK * 9 / 16 / JOBS;
        write(&volume, &node, DEPTH, |written| {
            let more = written == 0 || written < most && Instant::now() < end;
            more.then(|| rng.below(len / BLOCK))
        })
    })?;
    bed.clear(name)?;
    Ok(outcome)
}

/// Long calls that are released piece by piece.
fn shared(bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let name = "shared";
    if bed.is_new(name) {
        lay_out_pieces(bed, name)?;
    }
    let (volume, node) = bed.node(name)?;
    measured(bed, CALL, |job, all| {
        let (mut rng, cred) = (Rng::new(job), Cred::root());
        let bytes = marked(usize::try_from(CALL)?);
        all.wait();
        let end = Instant::now() + plan.sample;
        let mut calls = 0;
        while calls == 0 || Instant::now() < end {
            let at = rng.below((shared_bytes() - CALL) / PIECE + 1) * PIECE;
            let done = volume.write_direct(&node, at, &bytes, &cred)?;
            ensure!(done == bytes.len(), "{done} bytes at {at}");
            calls += 1;
        }
        Ok(calls)
    })
}

/// Makes a file of the pieces that are free in another one, which has all other space, and writes
/// it.
fn lay_out_pieces(bed: &mut TestBed, name: &str) -> Result<()> {
    let (ballast, cred) = ("ballast", Cred::root());
    bed.fresh(ballast)?;
    let (volume, node) = bed.node(ballast)?;
    take_all(&volume, &node)?;
    // Some are for the map.
    for piece in 0..shared_bytes() / PIECE + SPARE {
        let (mode, at) = (FallocateMode::PunchHole, 2 * piece * PIECE);
        volume.fallocate(&node, mode, at, PIECE, &cred)?;
    }
    drop(node);
    bed.fresh(name)?;
    // What was freed can be used once that is durable.
    volume.sync()?;
    let (_, node) = bed.node(name)?;
    let mode = FallocateMode::Allocate { keep_size: false };
    volume.fallocate(&node, mode, 0, shared_bytes(), &cred)?;
    let bytes = marked(usize::try_from(CALL)?);
    for at in (0..shared_bytes()).step_by(bytes.len()) {
        let done = volume.write_direct(&node, at, &bytes, &cred)?;
        ensure!(done == bytes.len(), "{done} bytes at {at}");
    }
    bed.clear(ballast)?;
    Ok(volume.sync()?)
}

/// Runs the jobs: the throughput of all, and beside it the requests and the mean clear.
fn measured(
    bed: &mut TestBed,
    bytes: u64,
    job: impl Fn(u64, &std::sync::Barrier) -> Result<u64> + Sync,
) -> Result<Outcome> {
    times::take();
    counted(bed, |_| {
        let before = processor_time_of_all();
        let (calls, took) = jobs(JOBS, job)?;
        let used = processor_time_of_all().saturating_sub(before);
        let times = times::take();
        let outcome = Outcome::throughput(calls, calls * bytes, took);
        Ok(with_clears(outcome, took, used, times))
    })
}

/// Adds the requests per second, the mean clear, and where the time went.
#[allow(clippy::cast_precision_loss, reason = "a count")]
fn with_clears(outcome: Outcome, took: Duration, used: Duration, times: Times) -> Outcome {
    let thousands = outcome.calls as f64 / took.as_secs_f64().max(1e-9) / 1e3;
    let used = u64::try_from(used.as_nanos()).unwrap_or(u64::MAX);
    let counters = [
        (
            "clear_ns_at_median".to_owned(),
            times.median() * times.count,
        ),
        ("processor_ns".to_owned(), used),
    ];
    Outcome {
        beside: vec![
            ("requests", Unit::ThousandPerSecond, thousands),
            ("clear", Unit::Nanoseconds, times.mean()),
        ],
        counters: counters.into(),
        times: Some(times),
        ..outcome
    }
}
