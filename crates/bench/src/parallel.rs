//! Threads that overwrite disjoint parts of one cached file, 4 KiB at a time, each with the file
//! opened for itself.
//!
//! A quarter of the file is written by each thread, over and over in order; with fewer threads,
//! fewer quarters. A figure is the throughput of all threads together, from when all have begun
//! until all have ended, so what has several processors should have a multiple with several
//! threads. The plain copies beside it say what the machine has to give.

use std::sync::Barrier;
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use extant_host::{Error, Result};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::pinned::processor_nanos;
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::target::Data;
use crate::variant::{Kind, Setup};

const MIB: u64 = 1 << 20;
/// Four parts, each of whole folios of 2 MiB.
const FILE: u64 = 16 * MIB;
const PART: u64 = FILE / 4;
const CHUNK: usize = 4 << 10;

pub(crate) fn cases() -> Vec<Case> {
    let case = |threads: usize| Case {
        bench: Bench::Parallel,
        name: format!("parallel/overwrite/4K/{threads}"),
        unit: Unit::MibPerSecond,
        setup: Setup::Cache,
        fits: |kind| !matches!(kind, Kind::Memset),
        sample: Box::new(move |bed, plan| sample(threads, bed, plan)),
    };
    [1, 2, 4].into_iter().map(case).collect()
}

fn sample(threads: usize, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let name = "parallel";
    bed.file(name, fill)?;
    let mut openers = (0..threads)
        .map(|_| bed.opener(name))
        .collect::<Result<Vec<_>>>()?;
    let bytes = [7; CHUNK];
    // As many rounds as the time allows, by the first thread's speed.
    let mut rounds = 1;
    loop {
        let start = Instant::now();
        rewrite(&mut *openers[0], &bytes, 0, rounds)?;
        let took = start.elapsed();
        if took >= plan.calls / 4 || rounds >= 1 << 12 {
            rounds *= 4;
            break;
        }
        rounds *= 2;
    }
    // Not bound to a processor: the threads are the point.
    counted(bed, |_| {
        let ready = Barrier::new(threads);
        let samples = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..)
                .zip(&mut openers)
                .map(|(number, file)| {
                    let (ready, bytes) = (&ready, &bytes);
                    scope.spawn(move || {
                        let from = number * PART;
                        let warm = rewrite(&mut **file, bytes, from, 1);
                        ready.wait();
                        warm?;
                        let start = Instant::now();
                        let nanos = processor_nanos(|| rewrite(&mut **file, bytes, from, rounds))?;
                        Ok::<_, Error>((start, Instant::now(), nanos))
                    })
                })
                .collect();
            let join = |worker: ScopedJoinHandle<'_, Result<(Instant, Instant, u64)>>| {
                worker.join().map_err(|_| Error::new("a thread panicked"))?
            };
            workers.into_iter().map(join).collect::<Result<Vec<_>>>()
        })?;
        // By the clocks of the workers: this thread may come late.
        let begun = samples.iter().map(|(start, _, _)| *start).min();
        let ended = samples.iter().map(|(_, end, _)| *end).max();
        let took = begun
            .zip(ended)
            .map_or(Duration::ZERO, |(begun, ended)| ended - begun);
        let nanos = samples.iter().map(|(_, _, nanos)| nanos).sum();
        let written = threads as u64 * u64::from(rounds) * PART;
        Ok(Outcome {
            counters: [("processor_ns".to_owned(), nanos)].into(),
            ..Outcome::throughput(written / CHUNK as u64, written, took)
        })
    })
}

fn rewrite(file: &mut dyn Data, bytes: &[u8], from: u64, rounds: u32) -> Result<()> {
    file.rewrite(bytes, from, PART, rounds)
}

fn fill(file: &mut dyn Data) -> Result<()> {
    let chunk = vec![1; 2 << 20];
    for pos in (0..FILE).step_by(chunk.len()) {
        file.pwrite(&chunk, pos)?;
    }
    file.sync()
}
