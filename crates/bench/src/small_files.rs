//! New small files: each is made and gets 4 KiB, and one sync writes all of them.
//!
//! The figure is the time of a file with its part of the sync; `processor_ns` among the counters is
//! what the calling thread itself used. The library writes new files together; with `nojoint` each
//! is written by itself.

use std::time::Instant;

use extant_host::Result;

use crate::bed::TestBed;
use crate::case::{Case, Outcome, counted};
use crate::pinned::processor_nanos;
use crate::plan::Bench;
use crate::rows::Unit;
use crate::variant::{Kind, Setup};

/// Files of a sample, unless the plan wants fewer.
const FILES: u32 = 10_000;
/// Bytes of a file.
const BYTES: [u8; 4096] = [b'x'; 4096];
/// Path of their directory.
const DIR: &str = "/small";

pub(crate) fn cases() -> Vec<Case> {
    vec![Case {
        bench: Bench::Meta,
        name: "small/4K".to_owned(),
        unit: Unit::Nanoseconds,
        setup: Setup::Names,
        // One file after the other takes fuse2fs longer the more there are.
        fits: |kind| !matches!(kind, Kind::Memcpy | Kind::Memset | Kind::Fuse2fs),
        sample: Box::new(|bed, plan| sample(bed, FILES.min(plan.most_names))),
    }]
}

fn sample(bed: &mut TestBed, files: u32) -> Result<Outcome> {
    let path = |number: u32| format!("{DIR}/file{number}");
    bed.names()?.make_dir(DIR)?;
    let outcome = counted(bed, |bed| {
        let names = bed.names()?;
        let start = Instant::now();
        let nanos = processor_nanos(|| {
            for file in (0..files).map(path) {
                names.create(&file)?;
                names.write(&file, &BYTES)?;
            }
            names.sync()
        })?;
        Ok(Outcome {
            value: start.elapsed().as_secs_f64() * 1e9 / f64::from(files),
            calls: files.into(),
            bytes: u64::from(files) * BYTES.len() as u64,
            counters: [("processor_ns".to_owned(), nanos)].into(),
            ..Outcome::default()
        })
    })?;
    let names = bed.names()?;
    (0..files)
        .map(path)
        .try_for_each(|file| names.unlink(&file))?;
    names.remove_dir(DIR)?;
    // The blocks are free for the next sample, and nothing is left to be done beside it.
    names.sync()?;
    Ok(outcome)
}
