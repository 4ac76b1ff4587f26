//! Costs of a file system as it grows: by files of a directory, by the size of the volume, by
//! extents of a file; with peak memory beside the time.
//!
//! Images are files in RAM, read through the host's cache, so that the memory of the library and of
//! daemons is their own and not the image's. Linux's memory is the kernel's and has no figure. A
//! peer that would take longer than the plan allows at the next size is left out there, and listed.

mod extents;
mod figure;
mod files;
mod opened;
mod volumes;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use extant_host::{Context, Result};

use self::figure::{Figure, Step};
use crate::plan::{Bench, Plan, Size};
use crate::report::Run;
use crate::rows::Unit;
use crate::variant::Variant;

/// One of the three dimensions of growth.
struct Growth {
    /// Prefix of the names of its cases.
    name: &'static str,
    /// The sizes.
    steps: &'static [Step],
    /// Figures that are measured at each.
    calls: &'static [(&'static str, Unit)],
    /// Measures all calls once.
    measure: fn(&Variant, &Plan, Step) -> Result<Vec<Figure>>,
}

/// Sizes of everything, by the size of the plan.
fn growths(plan: &Plan) -> [Growth; 3] {
    const FILES: [Step; 4] = [
        ("1K", 1000),
        ("10K", 10_000),
        ("100K", 100_000),
        ("1M", 1_000_000),
    ];
    const VOLUMES: [Step; 5] = [
        ("1G", 1),
        ("16G", 16),
        ("256G", 256),
        ("4T", 4096),
        ("15T", 15360),
    ];
    const EXTENTS: [Step; 3] = [("100", 100), ("1K", 1000), ("10K", 10_000)];
    const TINY: [Step; 2] = [("20", 20), ("40", 40)];
    let (files, volumes, extents): (&'static [Step], &'static [Step], &'static [Step]) =
        match plan.size {
            Size::Tiny => (&TINY, &VOLUMES[..1], &TINY),
            Size::Quick => (&FILES[..2], &VOLUMES[..3], &EXTENTS[..2]),
            Size::Usual => (&FILES[..3], &VOLUMES[..4], &EXTENTS),
            Size::Full => (&FILES, &VOLUMES, &EXTENTS),
        };
    [
        Growth {
            name: "scale/files",
            steps: files,
            calls: files::CALLS,
            measure: files::measure,
        },
        Growth {
            name: "scale/volume",
            steps: volumes,
            calls: volumes::CALLS,
            measure: volumes::measure,
        },
        Growth {
            name: "scale/extents",
            steps: extents,
            calls: extents::CALLS,
            measure: extents::measure,
        },
    ]
}

fn case_of(growth: &Growth, call: &str, step: Step) -> String {
    format!("{}/{call}/{}", growth.name, step.0)
}

/// The names of all cases.
pub(crate) fn names(plan: &Plan) -> Vec<String> {
    let mut all = Vec::new();
    for growth in growths(plan) {
        for (call, _) in growth.calls {
            let steps = growth.steps.iter();
            all.extend(steps.map(|step| case_of(&growth, call, *step)));
        }
    }
    all
}

/// The longest that a variant may take at one size.
fn patience(plan: &Plan) -> Duration {
    Duration::from_secs(match plan.size {
        Size::Tiny => 60,
        Size::Quick => 10,
        Size::Usual => 60,
        Size::Full => 120,
    })
}

/// Measures `variants`, the library and mounts.
pub(crate) fn run(
    plan: &Plan,
    variants: &[Variant],
    report: &mut Run,
    progress: &mut dyn FnMut(&str),
) -> Result<()> {
    let mut variants = variants.to_vec();
    variants.retain(|v| v.differs_in(Bench::Scale, ""));
    report.variant("e2fsck", "e2fsprogs' check of the same image");
    let start = Instant::now();
    for round in 0..plan.runs.min(3) {
        for growth in growths(plan) {
            let wanted = |call: &str| {
                let mut steps = growth.steps.iter();
                steps.any(|step| plan.wants(&case_of(&growth, call, *step)))
            };
            if !growth.calls.iter().any(|(call, _)| wanted(call)) {
                continue;
            }
            let limit = plan.limit_of(Bench::Scale);
            if round > 0 && limit.is_some_and(|limit| start.elapsed() > limit) {
                return Ok(());
            }
            progress(&format!("{}, round {}", growth.name, round + 1));
            let mut order = variants.clone();
            if round % 2 == 1 {
                order.reverse();
            }
            grow(&growth, plan, &order, report)?;
        }
    }
    Ok(())
}

/// Measures every size once.
fn grow(growth: &Growth, plan: &Plan, variants: &[Variant], report: &mut Run) -> Result<()> {
    let patience = patience(plan);
    // How long each took at the size before, and how much that was.
    let mut before: BTreeMap<&str, (Duration, u32)> = BTreeMap::new();
    let mut over: Vec<&str> = Vec::new();
    for step in growth.steps {
        for variant in variants {
            if over.contains(&variant.name) {
                continue;
            }
            let longer = |(took, amount): &(Duration, u32)| *took * (step.1 / amount);
            if before.get(variant.name).map(longer) > Some(patience) {
                let (name, size) = (variant.name, step.0);
                report.missing(format!(
                    "{name} in {} from {size} on: too slow",
                    growth.name
                ));
                over.push(name);
                continue;
            }
            let start = Instant::now();
            match (growth.measure)(variant, plan, *step) {
                Ok(mut figures) => {
                    figures.retain(|f| plan.wants(&case_of(growth, f.call, *step)));
                    add(growth, *step, variant, figures, report);
                }
                Err(error) if variant.is_peer() => {
                    let (name, size) = (variant.name, step.0);
                    report.missing(format!("{name} in {} at {size}: {error}", growth.name));
                    over.push(name);
                }
                failed => return failed.map(drop).context(|| variant.name),
            }
            // What does not grow with the size is no reason to stop.
            if growth.name != "scale/volume" {
                before.insert(variant.name, (start.elapsed(), step.1));
            }
        }
    }
    Ok(())
}

fn add(growth: &Growth, step: Step, variant: &Variant, figures: Vec<Figure>, report: &mut Run) {
    let rows = report.rows(Bench::Scale);
    for figure in figures {
        let case = case_of(growth, figure.call, step);
        let unit = growth.calls.iter().find(|(call, _)| *call == figure.call);
        let column = figure.column.unwrap_or(variant.name);
        if let Some((_, unit)) = unit {
            rows.add(&case, *unit, column, figure.value);
        }
    }
}
