//! Threads that append small records to one file, as the seed of the cheap appends measured it: 32 of them, 1 KiB each time.
//!
//! The count is scaled so that the plan's bytes are written. Nothing is written back meanwhile.

use std::time::Instant;

use extant_host::{Error, Result};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::pinned::processor_nanos;

use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::variant::{Kind, Setup};

pub(crate) fn cases() -> Vec<Case> {
    let shapes = [(1, 1024), (8, 2048), (32, 1024)];
    let case = |(threads, size): (u64, usize)| Case {
        bench: Bench::Append,
        name: format!("append/{threads}x{}KiB", size >> 10),
        unit: Unit::Milliseconds,
        setup: Setup::Cache,
        fits: |kind| !matches!(kind, Kind::Memcpy | Kind::Memset),
        sample: Box::new(move |bed, plan| sample(threads, size, bed, plan)),
    };
    shapes.into_iter().map(case).collect()
}

fn sample(threads: u64, size: usize, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let name = "appended";
    bed.fresh(name)?;
    let each = (plan.stream_bytes / 4 / threads / size as u64).max(1);
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
