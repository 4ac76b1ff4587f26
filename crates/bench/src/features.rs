//! Costs of features: the same calls on a plain volume and on volumes that have one feature more.
//!
//! `plain/create` beside `quota/create` is what quotas add to a file that is created, and so on.
//! Names (`create`, `stat`, `unlink`) are those of [`crate::meta`], in 10,000 files of one
//! directory. `write` is a new file, written and durable; `read` a file that is not cached, from a
//! device in RAM; both in pieces of 1 MiB. `fsync` is an append of 100 bytes that is made durable.
//! `cipher` is the limit for data that is encrypted: a copy and AES-256-XTS in memory.

use std::time::Instant;

use extant_host::{Error, Result};

use crate::bed::TestBed;
use crate::case::{Case, Outcome, timed};
use crate::feature::{DATA, Feature};
use crate::meta;
use crate::plan::{Bench, Plan};
use crate::rows::Unit;
use crate::variant::{Kind, Setup};

const MIB: usize = 1 << 20;

/// Bytes of each append that is made durable.
const RECORD: [u8; 100] = [b'r'; 100];

/// The cases of `plan`.
pub(crate) fn cases(plan: &Plan) -> Vec<Case> {
    Feature::ALL
        .into_iter()
        .flat_map(|feature| of(feature, plan))
        .collect()
}

/// The cases that show the cost of a feature.
fn of(feature: Feature, plan: &Plan) -> Vec<Case> {
    let mut all = Vec::new();
    if !matches!(feature, Feature::Verity | Feature::FastCommit) {
        all.extend(meta::feature_cases(feature, plan));
    }
    if matches!(feature, Feature::Plain | Feature::Quota | Feature::Encrypt) {
        all.push(case(feature, "write", Unit::MibPerSecond, write));
    }
    if matches!(feature, Feature::Plain | Feature::Encrypt | Feature::Verity) {
        all.push(case(feature, "read", Unit::MibPerSecond, read));
    }
    if matches!(feature, Feature::Plain | Feature::FastCommit) {
        all.push(case(feature, "fsync", Unit::Nanoseconds, fsync));
    }
    all
}

fn case(
    feature: Feature,
    what: &str,
    unit: Unit,
    sample: fn(&mut TestBed, &Plan) -> Result<Outcome>,
) -> Case {
    Case {
        bench: Bench::Features,
        name: format!("{}/{what}", feature.name()),
        unit,
        setup: Setup::Feature(feature),
        fits: |kind| !matches!(kind, Kind::Memcpy | Kind::Memset | Kind::Passthrough),
        sample: Box::new(sample),
    }
}

fn read(bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    let mut chunk = vec![9; MIB];
    let mut file = bed.reader(DATA, plan.stream_bytes)?;
    file.cool()?;
    timed(bed, |_| {
        let limit = plan.stream_limit(false);
        let (bytes, time) = file.stream_in(&mut chunk, plan.stream_bytes, limit)?;
        Ok(Outcome::throughput(bytes / MIB as u64, bytes, time))
    })
}

fn write(bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    const NEW: &str = "feature/new";
    let chunk = vec![6; MIB];
    bed.fresh(NEW)?;
    let outcome = timed(bed, |bed| {
        let file = bed.file(NEW, |_| Ok(()))?;
        let limit = plan.stream_limit(false);
        let (bytes, mut time) = file.stream_out(&chunk, plan.stream_bytes, false, limit)?;
        let start = Instant::now();
        file.sync()?;
        time += start.elapsed();
        Ok(Outcome::throughput(bytes / MIB as u64, bytes, time))
    })?;
    bed.clear(NEW)?;
    Ok(outcome)
}

fn fsync(bed: &mut TestBed, plan: &Plan) -> Result<Outcome> {
    const LOG: &str = "feature/log";
    let calls = plan.most_names.min(500);
    bed.fresh(LOG)?;
    timed(bed, |bed| {
        let file = bed.file(LOG, |_| Err(Error::new("no log")))?;
        let start = Instant::now();
        for number in 0..calls {
            file.pwrite(&RECORD, u64::from(number) * RECORD.len() as u64)?;
            file.sync()?;
        }
        #[allow(clippy::cast_precision_loss, reason = "some seconds at most")]
        let nanos = start.elapsed().as_nanos() as f64;
        Ok(Outcome {
            value: nanos / f64::from(calls),
            calls: calls.into(),
            bytes: u64::from(calls) * RECORD.len() as u64,
            ..Outcome::default()
        })
    })
}
