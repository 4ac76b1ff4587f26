//! `extant bench`: measurements, and what becomes of them.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use extant_bench::{Bench as Family, Plan, REPORT_PAGE, Report};
use tracing::warn;

use crate::args::{Bench, BenchName};
use crate::failure::{At, Failure, Outcome};
use crate::output::{Output, refuse_in_use, write_file};
use crate::printable::print_error_line;
use crate::{program, unfinished};

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
        BenchName::Features => vec![Family::Features],
        BenchName::Disk => vec![Family::Disk],
        BenchName::Device => vec![Family::Device],
        BenchName::Peers => vec![Family::Peers],
        BenchName::Build => vec![Family::Build],
        BenchName::Scale => vec![Family::Scale],
        BenchName::Large => vec![Family::Large],
        BenchName::Mount => vec![Family::Mount],
        BenchName::Remote => vec![Family::Remote],
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
    plan.store.clone_from(&args.store);
    plan.tree.clone_from(&args.tree);
    plan.runs = args.runs.unwrap_or(plan.runs);
    if let Err(failure) = try_outputs(args) {
        return Outcome::Failed(failure);
    }
    if let Err(error) = unfinished::when_ended(extant_bench::clean_up) {
        return Outcome::Failed(Failure::new(error));
    }
    let measured = extant_bench::run(&plan, &mut print_error_line);
    match measured {
        Ok(report) => show(args, &report).into(),
        Err(error) => Outcome::Failed(Failure::new(error.to_string())),
    }
}

/// Fails, before anything is measured, where the results could not be written.
fn try_outputs(args: &Bench) -> Result<(), Failure> {
    if let Some(path) = &args.json {
        refuse_in_use(path)?;
        try_file(path).at(path.display())?;
    }
    if let Some(path) = &args.write {
        page(path, "")?;
        refuse_in_use(path)?;
        try_file(path).at(path.display())?;
    }
    if let Some(dir) = &args.plot {
        fs::create_dir_all(dir).at(dir.display())?;
        refuse_in_use(&dir.join(REPORT_PAGE))?;
    }
    Ok(())
}

/// Opens a file as it will be written, and leaves it as it was.
fn try_file(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        // The reader of a pipe would take this for the end.
        Ok(there) if !there.is_file() && !there.is_dir() => Ok(()),
        Ok(_) => File::options().append(true).open(path).map(drop),
        Err(_) => {
            File::create_new(path)?;
            fs::remove_file(path)
        }
    }
}

/// The page at `path` with `text` between its marks; `text` alone, where there is no page.
fn page(path: &Path, text: &str) -> Result<String, Failure> {
    if !path.is_file() {
        return Ok(text.to_owned());
    }
    let page = fs::read_to_string(path).at(path.display())?;
    let page = extant_bench::between_marks(&page, text).map_err(|e| e.to_string());
    page.at(path.display())
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
        write_file(path, report.json_text())?;
    }
    if let Some(path) = &args.write {
        write_file(path, page(path, &report.markdown())?)?;
    }
    if let Some(dir) = &args.plot {
        let left_out = extant_bench::plot(report, dir).map_err(|e| e.to_string());
        if let Some(why) = left_out.at(dir.display())? {
            warn!("{why}");
        }
    }
    report.check().map_err(|e| Failure::new(e.to_string()))
}
