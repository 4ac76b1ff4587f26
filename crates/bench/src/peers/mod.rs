//! The everyday work of a mount beside its peers: small files, an archive, streams, an unmount.
//!
//! Each round of a variant begins on a fresh file system and does all of it in one order, with
//! remounts between; rounds go there and back again. e2fsck checks every image at the end of its
//! round. Beside the times stand the requests that the kernel sends to a FUSE daemon per operation.
//! `everyday` is a family of its own, in seconds.

pub(crate) mod everyday;
mod requests;
mod source;
mod work;

use std::time::Instant;

use extant_host::{Context, Need, Result};

use crate::plan::{Bench, Plan};
use crate::report::Run;
use crate::variant::Variant;

/// The names of all cases.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let work = work::CASES.iter().map(|(name, _)| *name);
    work.chain(requests::names())
}

/// Measures `variants`, those of them that are mounts.
pub(crate) fn run(
    plan: &Plan,
    variants: &[Variant],
    report: &mut Run,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut mounts: Vec<Variant> = variants.to_vec();
    mounts.retain(|v| v.driver(plan).is_some());
    if mounts.is_empty() {
        return Ok(());
    }
    let source = source::Source::make(work::Amount::of(plan).tree)?;
    let start = Instant::now();
    for round in 0..plan.runs {
        let limit = plan.limit_of(Bench::Peers);
        if round > 0 && limit.is_some_and(|limit| start.elapsed() > limit) {
            break;
        }
        let mut order = mounts.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        for variant in &order {
            progress(&format!(
                "peers, round {} of {}: {}",
                round + 1,
                plan.runs,
                variant.name
            ));
            let done = work::all(variant, &source, plan, report.rows(Bench::Peers));
            survive(variant, done, &mut mounts, report)?;
        }
    }
    match Need::Tool("strace").missing() {
        Some(why) => report.missing(format!("requests of daemons: {why}")),
        None => {
            let seen = |v: &&Variant| v.has_daemon() && !v.is_over_rings();
            for variant in mounts.clone().iter().filter(seen) {
                let done = requests::count(variant, plan, report.rows(Bench::Peers));
                survive(variant, done, &mut mounts, report)?;
            }
        }
    }
    Ok(())
}

/// The others go on without a peer that failed.
fn survive(
    variant: &Variant,
    done: Result<()>,
    mounts: &mut Vec<Variant>,
    report: &mut Run,
) -> Result<()> {
    match done {
        Err(error) if variant.is_peer() => {
            report.missing(format!(
                "{} from a round of peers on: {error}",
                variant.name
            ));
            mounts.retain(|v| v.name != variant.name);
            Ok(())
        }
        done => done.context(|| variant.name),
    }
}
