//! `extant check`: is the image sound?

use extant::device::OpenMode;
use extant::{CheckOptions, Report};
use serde_json::{Value, json};

use crate::args::Check;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Steps;
use crate::{source, unreadable};

/// Exit status when something was found, and when nothing could be said: e2fsck's.
const FOUND: u8 = 4;
const FAILED: u8 = 8;

pub(crate) fn run(args: &Check) -> Outcome {
    let report = match examine(args) {
        Ok(report) => report,
        Err(failure) if args.json => {
            // A program gets its object whatever happens.
            let shown = show_json(&json!({ "clean": Value::Null, "error": failure.to_string() }));
            return Outcome::Status(FAILED, Some(shown.err().unwrap_or(failure)));
        }
        Err(failure) => return Outcome::Status(FAILED, Some(failure)),
    };
    match show(args, &report) {
        Ok(()) if report.is_clean() => Outcome::Done,
        Ok(()) => Outcome::Status(FOUND, None),
        Err(failure) => Outcome::Status(FAILED, Some(failure)),
    }
}

fn examine(args: &Check) -> Result<Report, Failure> {
    let steps = Steps::new();
    let progress = |done: u64, total: u64| steps.show(done, total);
    let journal = source::journal(args.journal.as_deref(), OpenMode::ReadOnly)?;
    let mut options = CheckOptions {
        journal: journal.as_ref(),
        progress: (!args.json).then_some(&progress as &(dyn Fn(u64, u64) + Sync)),
        ..CheckOptions::default()
    };
    if let Some(threads) = args.threads {
        options.threads = usize::from(threads);
    }
    let report = match source::connect(&args.image, OpenMode::ReadOnly)? {
        Some(device) => extant::check(device, &options),
        None => extant::check_image(&args.image, &options),
    };
    steps.end();
    unreadable::advised(&args.image, report)
}

fn show(args: &Check, report: &Report) -> Result<(), Failure> {
    if args.json {
        return show_json(&as_json(report));
    }
    let mut out = Output::new();
    for finding in &report.findings {
        out.text(format!("{finding}\n"))?;
    }
    for note in &report.notes {
        out.text(format!("{note} (no damage)\n"))?;
    }
    if report.replayed > 0 {
        let replayed = report.replayed;
        out.text(format!(
            "as it will be once its journal is replayed ({replayed} transactions)\n"
        ))?;
    }
    let verdict = match report.found {
        0 => "clean".to_owned(),
        1 => "1 finding".to_owned(),
        found => format!("{found} findings"),
    };
    out.text(format!(
        "{}: {verdict}; {} inodes, {} of them directories; {} of {} blocks in use\n",
        args.image.display(),
        report.inodes_used,
        report.directories,
        report.blocks_used,
        report.blocks
    ))?;
    out.finish()
}

fn show_json(value: &Value) -> Result<(), Failure> {
    let mut out = Output::new();
    out.json(value)?;
    out.finish()
}

fn as_json(report: &Report) -> Value {
    let list = |findings: &[extant::Finding]| -> Vec<Value> {
        let one = |finding: &extant::Finding| {
            let (place, kind) = (finding.place.to_string(), &finding.kind);
            json!({"where": place, "what": kind.to_string(), "kind": kind.name()})
        };
        findings.iter().map(one).collect()
    };
    json!({
        "clean": report.is_clean(),
        "found": report.found,
        "findings": list(&report.findings),
        "notes": list(&report.notes),
        "replayed_transactions": report.replayed,
        "inodes_used": report.inodes_used,
        "directories": report.directories,
        "blocks_used": report.blocks_used,
        "blocks": report.blocks,
    })
}
