//! Random buffered writes of 4 KiB to a new file by 64 threads, with writeback under way: delayed
//! blocks that are made one by one and cleared run by run.
//!
//! Each block of a sparse file is written once, in an order that looks random, and an fsync ends a
//! sample. The page cache has room for the file, so the dirty limit starts writeback long before
//! that. `buffered/4K/64/clear` takes the time of each clear in an I/O tree meanwhile: of the
//! writers' range locks, and of the delayed blocks that writeback allocates. The counters say how
//! many of each there were, and which of them trimmed a record.

use std::time::Instant;

use extant::Cred;
use extant_host::{Result, ensure};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::plan::Plan;
use crate::randwrite::{BLOCK, BLOCK_BYTES, jobs, scattered};
use crate::rows::Unit;
use crate::times;
use crate::variant::{Setup, is_about_trims};

const THREADS: u64 = 64;

pub(crate) fn cases() -> Vec<Case> {
    let case = |name: &str, unit, setup| Case::randwrite(name, unit, setup, is_about_trims, sample);
    vec![
        case("buffered/4K/64", Unit::MibPerSecond, Setup::Writeback),
        case(
            "buffered/4K/64/clear",
            Unit::Nanoseconds,
            Setup::WritebackTimed,
        ),
    ]
}

fn sample(setup: Setup, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let name = "buffered";
    let blocks = (plan.stream_bytes / BLOCK).next_power_of_two();
    bed.fresh(name)?.set_len(blocks * BLOCK)?;
    let (volume, node) = bed.node(name)?;
    times::take();
    let outcome = counted(bed, |_| {
        let begun = Instant::now();
        let (calls, _) = jobs(THREADS, |job, all| {
            let (cred, bytes) = (Cred::root(), [7; BLOCK_BYTES]);
            all.wait();
            let mut calls = 0;
            for block in scattered(blocks, job, THREADS) {
                let done = volume.write(&node, block * BLOCK, &bytes, &cred)?;
                ensure!(done == BLOCK_BYTES, "{done} bytes of block {block}");
                calls += 1;
            }
            Ok(calls)
        })?;
        volume.fsync(&node, false)?;
        let took = begun.elapsed();
        ensure!(calls == blocks, "{calls} writes of {blocks}");
        let times = (setup == Setup::WritebackTimed).then(times::take);
        Ok(Outcome::throughput(calls, calls * BLOCK, took).or_mean_of(times))
    })?;
    bed.clear(name)?;
    Ok(outcome)
}
