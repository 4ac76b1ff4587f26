//! `extant fix`: repairs what leaves no choice.

use std::sync::Arc;

use extant::device::{BlockDevice, OpenMode};
use extant::resize::{ResizeOptions, Unshared, unshare_image};
use extant::{CheckOptions, Finding, FixOptions, FixReport};
use serde_json::{Value, json};

use crate::args::Fix;
use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::progress::Steps;
use crate::{source, unreadable};

/// Exit status when something was repaired, when damage is left, and when nothing could be said:
/// e2fsck's.
const FIXED: u8 = 1;
const LEFT: u8 = 4;
const FAILED: u8 = 8;

pub(crate) fn run(args: &Fix) -> Outcome {
    let report = match repair(args) {
        Ok(report) => match unshare(args, &report) {
            Ok(unshared) => Repaired { report, unshared },
            Err(failure) => return failed(args, failure),
        },
        Err(failure) => return failed(args, failure),
    };
    let shown = match args.json {
        true => show_json(&as_json(args, &report)),
        false => show(args, &report),
    };
    match shown {
        Err(failure) => Outcome::Status(FAILED, Some(failure)),
        Ok(()) => Outcome::Status(status(args, &report), None),
    }
}

/// The outcome of the whole command.
struct Repaired {
    report: FixReport,
    unshared: Unshared,
}

impl Repaired {
    fn has_changed(&self) -> bool {
        self.report.has_changed() || self.unshared.files > 0
    }
}

/// The end of a command that can say nothing about the image.
fn failed(args: &Fix, failure: Failure) -> Outcome {
    if !args.json {
        return Outcome::Status(FAILED, Some(failure));
    }
    // A program gets its object whatever happens.
    let shown = show_json(&json!({ "clean": Value::Null, "error": failure.to_string() }));
    Outcome::Status(FAILED, Some(shown.err().unwrap_or(failure)))
}

/// Gives files their own blocks, where nothing else is left to repair.
fn unshare(args: &Fix, report: &FixReport) -> Result<Unshared, Failure> {
    if !args.unshare || !report.is_clean() || (args.dry_run && report.has_changed()) {
        return Ok(Unshared::default());
    }
    let journal = journal(args)?;
    let mut options = ResizeOptions::default();
    options.check.journal = journal.as_ref();
    unshare_image(&args.image, args.dry_run, &options)
        .map_err(|error| Failure::at(args.image.display(), error))
}

/// The journal of an image that has it elsewhere.
fn journal(args: &Fix) -> Result<Option<Arc<dyn BlockDevice>>, Failure> {
    let mode = match args.dry_run {
        true => OpenMode::ReadOnly,
        false => OpenMode::ReadWrite,
    };
    source::journal(args.journal.as_deref(), mode)
}

fn repair(args: &Fix) -> Result<FixReport, Failure> {
    let journal = journal(args)?;
    let steps = Steps::new();
    let progress = |done: u64, total: u64| steps.show(done, total);
    let options = FixOptions {
        dry_run: args.dry_run,
        superblock: source::superblock(),
        check: CheckOptions {
            journal: journal.as_ref(),
            progress: (!args.json).then_some(&progress as &(dyn Fn(u64, u64) + Sync)),
            ..CheckOptions::default()
        },
    };
    let report = extant::fix_image(&args.image, &options);
    steps.end();
    unreadable::advised(&args.image, report)
}

fn status(args: &Fix, repaired: &Repaired) -> u8 {
    match (repaired.report.is_clean(), repaired.has_changed()) {
        (true, false) => 0,
        // Nothing was written: what was found is still there.
        (true, true) if args.dry_run => LEFT,
        (true, true) => FIXED,
        (false, _) => LEFT,
    }
}

fn show(args: &Fix, repaired: &Repaired) -> Result<(), Failure> {
    let (report, unshared) = (&repaired.report, &repaired.unshared);
    let mut out = Output::new();
    let would = if args.dry_run { "would be " } else { "" };
    if report.replayed > 0 {
        let replayed = report.replayed;
        out.text(format!(
            "journal: {replayed} transactions {would}replayed\n"
        ))?;
    }
    for finding in &report.fixed {
        out.text(format!("{finding}: {would}fixed\n"))?;
    }
    if report.orphans > 0 {
        let orphans = report.orphans;
        out.text(format!("orphan list: {orphans} inodes {would}finished\n"))?;
    }
    for finding in &report.left {
        out.text(format!("{finding}: left\n"))?;
    }
    for note in &report.notes {
        out.text(format!("{note} (no damage)\n"))?;
    }
    if unshared.files > 0 {
        let Unshared { files, blocks } = unshared;
        out.text(format!(
            "shared blocks: {blocks} {would}copied, for {files} files\n"
        ))?;
    }
    let image = args.image.display();
    let verdict = match (report.left_in_all, repaired.has_changed()) {
        (0, false) => "clean".to_owned(),
        (0, true) => format!("{would}clean now"),
        (left, _) => format!("{left} left: see extant fix --help"),
    };
    out.text(format!("{image}: {verdict}\n"))?;
    out.finish()
}

fn show_json(value: &Value) -> Result<(), Failure> {
    let mut out = Output::new();
    out.json(value)?;
    out.finish()
}

fn as_json(args: &Fix, repaired: &Repaired) -> Value {
    let (report, unshared) = (&repaired.report, &repaired.unshared);
    let list = |findings: &[Finding]| -> Vec<Value> {
        let one = |finding: &Finding| {
            let (place, kind) = (finding.place.to_string(), &finding.kind);
            json!({"where": place, "what": kind.to_string(), "kind": kind.name()})
        };
        findings.iter().map(one).collect()
    };
    json!({
        "clean": report.is_clean(),
        "dry_run": args.dry_run,
        "fixed": list(&report.fixed),
        "left": list(&report.left),
        "left_in_all": report.left_in_all,
        "notes": list(&report.notes),
        "replayed_transactions": report.replayed,
        "orphans": report.orphans,
        "blocks_written": report.blocks_written,
        "unshared": { "files": unshared.files, "blocks": unshared.blocks },
    })
}
