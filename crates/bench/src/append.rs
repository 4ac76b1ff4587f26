//! Threads that append small records to one file, as the seed of the cheap appends measured it: 32
//! of them, 1 KiB each time.
//!
//! The count is scaled so that a quarter of the plan's bytes is written; among the large cases it
//! is the seed's. Nothing is written back meanwhile.

use std::time::Instant;

use extant_host::{Error, Result};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::pinned::processor_nanos;

use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::variant::{Kind, Setup};

/// Threads, and bytes of an append.
const SHAPES: [(u64, usize); 3] = [(1, 1024), (8, 2048), (32, 1024)];

pub(crate) fn cases() -> Vec<Case> {
    let case = |(threads, size): (u64, usize)| {
        let each = move |plan: &Plan| plan.stream_bytes / 4 / threads / size as u64;
        case("append", threads, size, each)
    };
    SHAPES.into_iter().map(case).collect()
}

/// The seed's own sizes: 32 threads with 100,000 appends each, and 8 with half as many.
pub(crate) fn large_cases() -> Vec<Case> {
    let case = |(threads, size): (u64, usize)| {
        let share = if threads == 8 { 2 } else { 1 };
        Case {
            bench: Bench::Large,
            ..case("large/append", threads, size, move |plan| {
                u64::from(plan.appends) / share
            })
        }
    };
    SHAPES[1..].iter().copied().map(case).collect()
}

fn case(family: &str, threads: u64, size: usize, each: impl Fn(&Plan) -> u64 + 'static) -> Case {
    Case {
        bench: Bench::Append,
        name: format!("{family}/{threads}x{}KiB", size >> 10),
        unit: Unit::Milliseconds,
        setup: Setup::Cache,
        fits: |kind| !matches!(kind, Kind::Memcpy | Kind::Memset),
        sample: Box::new(move |bed, plan| sample(threads, size, each(plan).max(1), bed)),
    }
}

fn sample(threads: u64, size: usize, each: u64, bed: &mut TestBed) -> Result<Outcome> {
    let name = "appended";
    bed.fresh(name)?;
    let calls = threads * each;
    // Not bound to a processor: the threads are the point.
    let outcome = counted(bed, |bed| {
        let appender = bed.appender(name)?;
        let bytes = vec![3; size];
        let mut nanos = 0;
        let start = Instant::now();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|_| {
                    let all = || (0..each).try_for_each(|_| appender.append(&bytes));
                    scope.spawn(move || processor_nanos(all))
                })
                .collect();
            for worker in workers {
                nanos += worker
                    .join()
                    .map_err(|_| Error::new("a thread panicked"))??;
            }
            Ok::<_, Error>(())
        })?;
        Ok(Outcome {
            value: start.elapsed().as_secs_f64() * 1e3,
            calls,
            bytes: calls * size as u64,
            counters: [("processor_ns".to_owned(), nanos)].into(),
            ..Outcome::default()
        })
    })?;
    bed.clear(name)?;
    Ok(outcome)
}
