//! `O_DIRECT`: reads and overwrites of a file past every cache, by calls that are waited for.
//!
//! One thread goes through the file in order; in `/4` four threads have a quarter each, every one
//! with the file opened for itself. Through a mount each call is a request to the daemon.

use std::ops::Range;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use extant::IoBuf;
use extant_host::{Error, Result};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::target::Data;
use crate::variant::{Kind, Setup};

const MIB: usize = 1 << 20;
const SIZES: [(&str, usize); 3] = [("4K", 4 << 10), ("64K", 64 << 10), ("1M", MIB)];
const FILE: &str = "direct";

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Read,
    Write,
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (word, way) in [("read", Way::Read), ("write", Way::Write)] {
        for (size_word, size) in SIZES {
            all.push(case(format!("direct/{word}/{size_word}"), way, size, 1));
        }
        all.push(case(format!("direct/{word}/4K/4"), way, 4 << 10, 4));
    }
    all
}

fn case(name: String, way: Way, size: usize, threads: u32) -> Case {
    Case {
        bench: Bench::Direct,
        name,
        unit: Unit::MibPerSecond,
        setup: Setup::Cache,
        fits: |kind| !matches!(kind, Kind::Memcpy | Kind::Memset),
        sample: Box::new(move |bed, plan| sample(way, size, threads, bed, plan)),
    }
}

fn sample(way: Way, size: usize, threads: u32, bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let len = plan.stream_bytes;
    bed.file(FILE, |file| {
        file.stream_out(&vec![5; MIB], len, false, Duration::MAX)?;
        file.sync()
    })?;
    // A part is a multiple of each size, so that the calls of all parts are whole.
    let part = len / u64::from(threads);
    let files = (0..threads).map(|_| bed.past_cache(FILE));
    let mut files = files.collect::<Result<Vec<_>>>()?;
    counted(bed, |_| {
        let ready = Barrier::new(files.len());
        let start = Instant::now();
        let moved = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..)
                .zip(&mut files)
                .map(|(number, file)| {
                    let ready = &ready;
                    scope.spawn(move || {
                        let mut buf = IoBuf::zeroed(size);
                        ready.wait();
                        let from = number * part;
                        go(way, &mut **file, &mut buf, from..from + part, plan)
                    })
                })
                .collect();
            let moved = workers
                .into_iter()
                .map(|worker| worker.join().map_err(|_| Error::new("a thread panicked"))?);
            moved.sum::<Result<u64>>()
        })?;
        let (calls, took) = (moved / size as u64, start.elapsed());
        Ok(Outcome::throughput(calls, moved, took))
    })
}

/// Goes through a range of the file; returns how many bytes it has moved.
fn go(
    way: Way,
    file: &mut dyn Data,
    buf: &mut [u8],
    range: Range<u64>,
    plan: &Plan,
) -> Result<u64> {
    let step = buf.len() as u64;
    let start = Instant::now();
    let mut at = range.start;
    while at + step <= range.end && (at == range.start || start.elapsed() < plan.sample) {
        match way {
            Way::Read => file.pread(buf, at)?,
            Way::Write => file.pwrite(buf, at)?,
        }
        at += step;
    }
    Ok(at - range.start)
}
