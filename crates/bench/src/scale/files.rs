//! By files of one directory: what a call costs among a thousand and among a million.

use extant_host::{Result, ensure};

use super::figure::{Figure, Step, each};
use super::opened::{Closed, medium};
use crate::plan::Plan;
use crate::rows::Unit;
use crate::variant::Variant;

/// Figures: nanoseconds of a file or an entry, and memory.
pub(super) const CALLS: &[(&str, Unit)] = &[
    ("create", Unit::Nanoseconds),
    ("stat", Unit::Nanoseconds),
    ("list", Unit::Nanoseconds),
    ("unlink", Unit::Nanoseconds),
    ("memory", Unit::Mebibytes),
];

const DIR: &str = "/grown";

pub(super) fn measure(variant: &Variant, plan: &Plan, step: Step) -> Result<Vec<Figure>> {
    let (_, files) = step;
    // Inodes of 256 bytes, a directory of some 40 bytes an entry, and a journal.
    let mib = 256 + u64::from(files) / 1500;
    let inodes = format!("-N {}", u64::from(files) + 1000);
    let mut opened = Closed::make(variant, plan, &medium(mib, &inodes))?.open()?;
    let names = opened.bed.names()?;
    names.make_dir(DIR)?;
    let over = |call: &dyn Fn(&str) -> Result<()>| {
        each(files, || {
            (0..files).try_for_each(|number| call(&format!("{DIR}/file{number}")))
        })
    };
    let mut figures = vec![
        Figure::of("create", over(&|file| names.create(file))?),
        Figure::of("stat", over(&|file| names.stat(file).map(drop))?),
    ];
    let mut entries = 0;
    let listed = each(files, || {
        entries = names.list(DIR)?;
        Ok(())
    })?;
    // Some listings have the directory and its parent.
    let whole = u64::from(files);
    ensure!(
        (whole..=whole + 2).contains(&entries),
        "{entries} entries of {files}"
    );
    figures.push(Figure::of("list", listed));
    figures.push(Figure::of("unlink", over(&|file| names.unlink(file))?));
    if let Some(memory) = opened.memory.take() {
        figures.push(Figure::of("memory", memory.mib()?));
    }
    opened.bed.close()?;
    Ok(figures)
}
