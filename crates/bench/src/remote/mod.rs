//! Images in an object store over a line with a round trip: a start on a cold host, a push, a pull.
//!
//! The store is that of the plan's address, at the endpoint of the environment, or one in memory.
//! A proxy in between adds the round trip to each request, and counts. It has no limit of bytes per
//! second. A start reads a listed set of files through a mount with empty caches, in one thread;
//! beside it stand a pull of the whole image with a mount of the copy, and a mount of the same
//! image by NBD, whose line has the same round trip. Which files are read is chosen by a seed, so a
//! run of another commit reads the same ones: a real start reads files that lie together, and
//! touches fewer chunks.

mod amounts;
mod remote_store;
mod root_image;
mod starts;
mod transfers;

use std::time::Duration;

use extant_host::{Context, Result};

use self::amounts::{OTHERS, ROUNDS, mib};
use self::remote_store::RemoteStore;
use self::root_image::RootImage;
use self::starts::{STARTS, Start};
use crate::plan::{Bench, Plan, Size};
use crate::report::Run;
use crate::rows::Unit;

/// Figures of a start beside its time.
const BESIDE: [(&str, Unit); 3] = [
    ("/requests", Unit::RoundTrips),
    ("/bytes", Unit::Mebibytes),
    ("/chunks", Unit::Chunks),
];

/// A line that starts are measured on.
#[derive(Clone, Copy)]
struct LineKind {
    name: &'static str,
    round_trip: Duration,
    /// One request of a hundred is refused with 503.
    is_lossy: bool,
}

const fn line(name: &'static str, millis: u64, is_lossy: bool) -> LineKind {
    LineKind {
        name,
        round_trip: Duration::from_millis(millis),
        is_lossy,
    }
}

const LINES: [LineKind; 4] = [
    line("0ms", 0, false),
    line("5ms", 5, false),
    line("50ms", 50, false),
    line("5ms-lossy", 5, true),
];

/// The lines of a plan.
fn lines(plan: &Plan) -> &'static [LineKind] {
    match plan.size {
        Size::Tiny => &LINES[..2],
        _ => &LINES,
    }
}

fn case_of(line: &LineKind) -> String {
    format!("start/{}", line.name)
}

/// The names of all cases.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let starts = LINES.iter().flat_map(|line| {
        let beside = BESIDE.iter().map(|(what, _)| *what);
        [""].into_iter()
            .chain(beside)
            .map(|what| case_of(line) + what)
    });
    starts.chain(OTHERS.iter().map(|(name, _)| (*name).to_owned()))
}

/// The names of all variants.
pub(crate) fn variants() -> impl Iterator<Item = &'static str> {
    let starts = STARTS.iter().map(|start| start.name);
    starts.chain(transfers::PROGRAMS.iter().map(|(name, _)| *name))
}

/// Measures what is wanted.
pub(crate) fn run(plan: &Plan, report: &mut Run, progress: &mut dyn FnMut(&str)) -> Result<()> {
    progress("remote: the image");
    let image = RootImage::make(plan)?;
    let store = RemoteStore::open(plan)?;
    report.note(format!(
        "The image of remote has {} MiB in {} files, of which a start reads {}, {:.1} MiB.",
        image.bytes() >> 20,
        image.file_count(),
        image.listed().len(),
        mib(image.listed_bytes()),
    ));
    report.note(format!("The store of remote is {}.", store.about()));
    transfers::run(plan, &store, &image, report, progress)?;
    let starts = wanted_starts(plan, report);
    for line in lines(plan) {
        if !plan.wants(&case_of(line)) {
            continue;
        }
        let rounds = match line.round_trip.as_millis() {
            0..=5 => plan.runs.min(ROUNDS),
            _ => plan.runs.min(3),
        };
        for round in 0..rounds {
            let mut order = starts.clone();
            if round % 2 == 1 {
                order.reverse();
            }
            for start in order {
                let (case, name) = (case_of(line), start.name);
                progress(&format!("remote, {case}, round {}: {name}", round + 1));
                store.set_line(line.round_trip, line.is_lossy);
                let started = (start.measure)(plan, &store, &image, line.round_trip);
                store.set_line(Duration::ZERO, false);
                let started = started.context(|| format!("{case} of {name}"))?;
                let rows = report.rows(Bench::Remote);
                rows.add(&case, Unit::Milliseconds, name, started.millis);
                for ((what, unit), figure) in BESIDE.iter().zip(started.beside) {
                    if let Some(figure) = figure {
                        rows.add(&format!("{case}{what}"), *unit, name, figure);
                    }
                }
            }
        }
    }
    Ok(())
}

/// The starts that are wanted and can be.
fn wanted_starts(plan: &Plan, report: &mut Run) -> Vec<&'static Start> {
    let mut all = Vec::new();
    for start in &STARTS {
        if !plan.variants.is_empty() && !plan.variants.iter().any(|name| name == start.name) {
            continue;
        }
        match start.needs.iter().find_map(|need| need.missing()) {
            Some(why) => report.missing(format!("{} in remote: {why}", start.name)),
            None => {
                report.variant(start.name, start.about);
                all.push(start);
            }
        }
    }
    all
}
