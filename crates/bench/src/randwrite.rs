//! Random direct writes of 4 KiB to one file, many in flight: fio's `randwrite` with `direct=1`.
//! The sizes of the seed of the trims are in [`trims`](crate::trims).
//!
//! Four jobs (in `randwrite/4K/1` one, in `randwrite/4K/64` sixty-four, many more than processors)
//! keep sixteen requests each in flight, in this process, on a device that has no cost: requests of
//! the queue end at once, and data that is written back is forgotten. `randwrite/4K` overwrites a
//! file that has its blocks. `randwrite/4K/unlock` does the same while the time is taken in which
//! each request gives back its range: its lock slot, or the record's bits in the file's I/O tree.
//! `randwrite/fill/4K` writes each block of a sparse file once, in random order.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use extant::{Cred, IoBuf, Node, Volume};
use extant_host::{Error, Result, Rng, ensure};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::null_data::marked;
use crate::plan::{Plan, Size};
use crate::rows::Unit;
use crate::target::Data;
use crate::times;
use crate::variant::{LONGER, Setup, is_about_locks};

const JOBS: u64 = 4;
/// Many more than processors.
const MANY: u64 = 64;
const DEPTH: usize = 16;
pub(crate) const BLOCK_BYTES: usize = 4096;
pub(crate) const BLOCK: u64 = BLOCK_BYTES as u64;
/// A sample lasts longer than others, 15 s, as does the file ([`LONGER`]).
const SLOWER: u32 = 10;
/// The same where a run of everything has to end in time.
const SLOWER_IN_FULL: u32 = 2;

pub(crate) fn cases() -> Vec<Case> {
    let overwrite = |name: &str, jobs, unit, setup| {
        Case::randwrite(
            name,
            unit,
            setup,
            is_about_locks,
            move |setup, bed, plan| overwrite(setup, jobs, bed, plan),
        )
    };
    vec![
        overwrite("randwrite/4K", JOBS, Unit::MibPerSecond, Setup::Direct),
        overwrite("randwrite/4K/1", 1, Unit::MibPerSecond, Setup::Direct),
        overwrite("randwrite/4K/64", MANY, Unit::MibPerSecond, Setup::Direct),
        overwrite(
            "randwrite/4K/unlock",
            JOBS,
            Unit::Nanoseconds,
            Setup::DirectTimed,
        ),
        Case::randwrite(
            "randwrite/fill/4K",
            Unit::MibPerSecond,
            Setup::Cache,
            is_about_locks,
            |_, bed, plan| fill(bed, plan),
        ),
    ]
}

fn overwrite(setup: Setup, number: u64, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let len = plan.stream_bytes * LONGER;
    let name = "random";
    bed.file(name, |file| lay_out(file, len))?;
    let (volume, node) = bed.node(name)?;
    times::take();
    counted(bed, |_| {
        let long = match plan.size {
            Size::Full => plan.sample * SLOWER_IN_FULL,
            _ => plan.sample * SLOWER,
        };
        let (calls, took) = jobs(number, |job, all| {
            let mut rng = Rng::new(job);
            all.wait();
            let end = Instant::now() + long;
            write(&volume, &node, DEPTH, |finished| {
                let more = finished == 0 || Instant::now() < end;
                more.then(|| rng.below(len / BLOCK))
            })
        })?;
        let times = (setup == Setup::DirectTimed).then(times::take);
        Ok(Outcome::throughput(calls, calls * BLOCK, took).or_mean_of(times))
    })
}

fn fill(bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let name = "sparse";
    let blocks = (plan.stream_bytes / BLOCK).next_power_of_two();
    bed.fresh(name)?.set_len(blocks * BLOCK)?;
    let (volume, node) = bed.node(name)?;
    let outcome = counted(bed, |_| {
        let (calls, took) = jobs(JOBS, |job, all| {
            let mut next = scattered(blocks, job, JOBS);
            all.wait();
            write(&volume, &node, DEPTH, |_| next.next())
        })?;
        ensure!(calls == blocks, "{calls} writes of {blocks}");
        Ok(Outcome::throughput(calls, calls * BLOCK, took))
    })?;
    bed.clear(name)?;
    Ok(outcome)
}

/// Writes every block of a new file in large pieces, and leaves nothing in the cache.
fn lay_out(file: &mut dyn Data, len: u64) -> Result<()> {
    let piece = vec![1; 2 << 20];
    for pos in (0..len).step_by(piece.len()) {
        file.pwrite(&piece, pos)?;
    }
    file.sync()?;
    file.cool()
}

/// The part of job `job` of `jobs` of the blocks up to `blocks`, a power of two, in an order that
/// looks random: odd steps through a power of two reach all.
pub(crate) fn scattered(blocks: u64, job: u64, jobs: u64) -> impl Iterator<Item = u64> {
    let step = move |at: u64| at.wrapping_mul(0x9e37_79b1) % blocks;
    (0..)
        .map(move |nth| job + nth * jobs)
        .take_while(move |at| *at < blocks)
        .map(step)
}

/// Runs `number` jobs, a thread each; each returns how many writes it made. Returns their sum, and
/// the time from when all had begun.
pub(crate) fn jobs(
    number: u64,
    job: impl Fn(u64, &Barrier) -> Result<u64> + Sync,
) -> Result<(u64, Duration)> {
    let all = Barrier::new(usize::try_from(number)? + 1);
    std::thread::scope(|scope| {
        let (job, barrier) = (&job, &all);
        let workers: Vec<_> = (0..number)
            .map(|number| scope.spawn(move || job(number, barrier)))
            .collect();
        all.wait();
        let start = Instant::now();
        let mut calls = 0;
        for worker in workers {
            calls += worker
                .join()
                .map_err(|_| Error::new("a thread panicked"))??;
        }
        Ok((calls, start.elapsed()))
    })
}

/// Writes the blocks that `next` names, which is told how many have been written, until it names
/// none; keeps `depth` in flight. Returns how many there were.
pub(crate) fn write(
    volume: &Volume,
    node: &Node,
    depth: usize,
    mut next: impl FnMut(u64) -> Option<u64>,
) -> Result<u64> {
    let mut queue = volume.direct_queue(depth, &Cred::root());
    let mut free: Vec<IoBuf> = (0..depth).map(|_| marked(BLOCK_BYTES)).collect();
    let (mut finished, mut written, mut more) = (Vec::with_capacity(depth), 0, true);
    while more || queue.outstanding() > 0 {
        while more && let Some(buf) = free.pop() {
            match next(written) {
                Some(block) => queue.write(node, block * BLOCK, buf, block)?,
                None => {
                    free.push(buf);
                    more = false;
                }
            }
        }
        queue.wait_into(1, &mut finished);
        for over in finished.drain(..) {
            let done = over.result?;
            ensure!(done as u64 == BLOCK, "{done} bytes of block {}", over.tag);
            written += 1;
            free.push(over.buf);
        }
    }
    Ok(written)
}
