//! The side-by-side run: the same work on every variant, interleaved (ABCD DCBA ...), so that
//! whatever else the machine does falls on all of them. Each turn begins on a fresh file system.

mod round_trips;
mod source;
mod variant;
mod work;

use extant_bench::machine;
use extant_bench::rows::{Rows, Unit};
use extant_testkit::{Need, Result, bail};
use serde_json::json;
use source::Source;
use std::path::PathBuf;
use variant::Variant;

/// What to run.
#[derive(Debug)]
pub(crate) struct Plan {
    quick: bool,
    runs: u32,
    json: Option<PathBuf>,
    variants: Vec<Variant>,
}

impl Plan {
    /// Reads the command line; `None` if it makes no sense.
    pub(crate) fn parse(args: &[String]) -> Option<Plan> {
        let mut plan = Plan {
            quick: false,
            runs: 5,
            json: None,
            variants: Variant::ALL.to_vec(),
        };
        let mut runs = None;
        let mut args = args.iter();
        while let Some(a) = args.next() {
            match a.as_str() {
                "--quick" => plan.quick = true,
                "--runs" => runs = Some(args.next()?.parse().ok()?),
                "--json" => plan.json = Some(args.next()?.into()),
                "--only" => {
                    let names = args.next()?.split(',');
                    plan.variants = names.map(Variant::named).collect::<Option<_>>()?;
                }
                _ => return None,
            }
        }
        plan.runs = runs.unwrap_or(if plan.quick { 1 } else { 5 });
        (plan.runs > 0).then_some(plan)
    }
}

/// Runs everything, prints the table, writes the JSON.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    for need in [Need::Root, Need::Fuse, Need::Loop, Need::Tool("mke2fs")] {
        if let Some(why) = need.missing() {
            bail!("{why}");
        }
    }
    let source = Source::make(if plan.quick { 2000 } else { 8900 })?;
    let mut rows = Rows::default();
    let mut usable = Vec::new();
    for v in &plan.variants {
        match v.missing() {
            None => usable.push(*v),
            Some(why) => rows.missing(format!("{}: {why}", v.name())),
        }
    }
    for run in 0..plan.runs {
        // The way there and back again.
        let order: Vec<Variant> = if run % 2 == 0 {
            usable.clone()
        } else {
            usable.iter().rev().copied().collect()
        };
        for v in order {
            eprintln!("run {} of {}: {}", run + 1, plan.runs, v.name());
            work::all(v, &source, plan.quick, &mut rows)?;
        }
    }
    match Need::Tool("strace").missing() {
        Some(why) => rows.missing(format!("round trips: {why}")),
        None => {
            for v in usable.iter().filter(|v| v.is_fuse()) {
                round_trips::count(*v, &mut rows)?;
            }
        }
    }
    println!("{}", rows.table());
    ratios(&rows);
    for v in &plan.variants {
        println!("{}: {}", v.name(), v.describe());
    }
    if let Some(path) = &plan.json {
        let all = json!({
            "machine": machine::describe(),
            "rows": rows.json("sidebyside"),
            "missing": rows.not_measured(),
        });
        std::fs::write(path, format!("{all}\n"))?;
    }
    Ok(())
}

/// How many times faster Extant is than each of the others.
fn ratios(rows: &Rows) {
    println!("Extant against (above 1: Extant is faster):");
    for (case, unit) in work::CASES {
        let Some(ours) = rows.median(case, Variant::Extant.name()) else {
            continue;
        };
        let mut line = format!("  {case:<22}");
        for v in [Variant::Fuse2fs, Variant::Passthrough, Variant::Ext4] {
            if let Some(theirs) = rows.median(case, v.name()) {
                let ratio = if *unit == Unit::MibPerSecond {
                    ours / theirs
                } else {
                    theirs / ours
                };
                line.push_str(&format!("  {} {ratio:.2}", v.name()));
            }
        }
        println!("{line}");
    }
}

#[cfg(test)]
mod tests {
    use super::Plan;

    fn parse(line: &str) -> Option<Plan> {
        Plan::parse(
            &line
                .split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    }

    #[test]
    fn the_command_line_is_understood() {
        assert_eq!(parse("").unwrap().runs, 5);
        assert_eq!(parse("--quick").unwrap().runs, 1);
        assert_eq!(parse("--quick --runs 3").unwrap().runs, 3);
        assert_eq!(parse("--only mount,fuse2fs").unwrap().variants.len(), 2);
        assert!(
            parse("--only nobody").is_none() && parse("--runs").is_none() && parse("x").is_none()
        );
    }
}
