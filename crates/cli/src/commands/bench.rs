//! `extant bench`: measurements, and what becomes of them.

use std::fs;

use extant_bench::{Bench as Family, Plan, Report};
use tracing::warn;

use crate::args::{Bench, BenchName};
use crate::failure::{At, Failure, Outcome};
use crate::output::Output;
use crate::program;

pub(crate) fn run(args: &Bench) -> Outcome {
    let families = match args.name {
        BenchName::Overwrite => vec![Family::Overwrite],
        BenchName::Psync => vec![Family::Psync],
        BenchName::All => Family::ALL.to_vec(),
        BenchName::Append => vec![Family::Append],
        BenchName::Parallel => vec![Family::Parallel],
        BenchName::Randwrite => vec![Family::Randwrite],
        BenchName::Meta => vec![Family::Meta],
        BenchName::Direct => vec![Family::Direct],
        BenchName::Disk => vec![Family::Disk],
        BenchName::Device => vec![Family::Device],
        BenchName::Peers => vec![Family::Peers],
        BenchName::Build => vec![Family::Build],
        BenchName::Scale => vec![Family::Scale],
        BenchName::Large => vec![Family::Large],
        BenchName::Mount => vec![Family::Mount],
    };
    let command = program::own_path().into();
    let mut plan = match (args.quick, args.full) {
        (true, _) => Plan::quick(command),
        (_, true) => Plan::full(command),
        _ => Plan::usual(command),
    };
    plan.benches = families;
    plan.only.clone_from(&args.only);
    plan.variants.clone_from(&args.variants);
    if let Some(dir) = &args.dir {
        plan.dir.clone_from(dir);
    }
    plan.runs = args.runs.unwrap_or(plan.runs);
    let measured = extant_bench::run(&plan, &mut |what| eprintln!("{what}"));
    match measured {
        Ok(report) => show(args, &report).into(),
        Err(error) => Outcome::Failed(Failure::new(error.to_string())),
    }
}

fn show(args: &Bench, report: &Report) -> Result<(), Failure> {
    let mut out = Output::new();
    out.text(if args.markdown {
        report.markdown()
    } else {
        report.text()
    })?;
    out.finish()?;
    if let Some(path) = &args.json {
        fs::write(path, format!("{:#}\n", report.json())).at(path.display())?;
    }
    if let Some(path) = &args.write {
        report.write(path).map_err(|e| e.to_string())?;
    }
    if let Some(dir) = &args.plot
        && let Some(why) = report.plot(dir).map_err(|e| e.to_string())?
    {
        warn!("{why}");
    }
    report.check().map_err(|e| Failure::new(e.to_string()))
}
