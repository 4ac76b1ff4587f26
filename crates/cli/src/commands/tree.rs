//! `extant tree`: a directory and everything below it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use extant::Filesystem;

use crate::args::Tree;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::{Output, attr_json, enter};
use crate::walk::{Step, walk};

pub(crate) fn run(args: &Tree) -> Outcome {
    let mut failures = Failures::of("tree");
    let mut images = Images::read().shared_by(&args.paths);
    let mut out = Output::new();
    let mut listed = 0;
    for at in &args.paths {
        let output = (&mut out, &mut listed);
        let shown = show(args, &mut images, at, output, &mut failures);
        failures.note(shown);
    }
    if args.json {
        failures.note(out.json_array_end(listed == 0));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

fn show(
    args: &Tree,
    images: &mut Images,
    at: &ImagePath,
    (out, listed): (&mut Output, &mut u64),
    failures: &mut Failures,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    let (mut directories, mut files) = (0u64, 0u64);
    walk(&fs, at, |step| {
        let Some(step) = failures.note(step) else {
            return false;
        };
        let hidden = step.depth() > 0 && !args.all && step.name.as_bytes().starts_with(b".");
        if hidden || out.closed() {
            return false;
        }
        if step.is_dir() {
            directories += u64::from(step.depth() > 0);
        } else {
            files += 1;
        }
        *listed += 1;
        failures.note(match args.json {
            true => object(&step, &fs, at, out, *listed == 1),
            false => line(&step, &fs, at, out),
        });
        args.level.is_none_or(|level| step.depth() < level)
    });
    if args.json {
        return Ok(());
    }
    out.text(format!("\n{directories} directories, {files} files\n"))
}

fn object(
    step: &Step<'_>,
    fs: &Filesystem,
    at: &ImagePath,
    out: &mut Output,
    first: bool,
) -> Result<(), Failure> {
    let mut object = attr_json(&step.attr);
    enter(&mut object, "path", step.path.as_os_str().as_bytes());
    object["depth"] = step.depth().into();
    if step.is_symlink() {
        let target = fs.volume().readlink(step.node);
        enter(&mut object, "target", &target.at(at.with_path(step.path))?);
    }
    out.json_array_item(&object, first)
}

fn line(step: &Step<'_>, fs: &Filesystem, at: &ImagePath, out: &mut Output) -> Result<(), Failure> {
    let mut lasts = step.lasts();
    while let Some(last) = lasts.next() {
        out.text(match (lasts.len() == 0, last) {
            (true, true) => "└── ",
            (true, false) => "├── ",
            (false, true) => "    ",
            (false, false) => "│   ",
        })?;
    }
    out.name(step.name)?;
    if step.is_symlink() {
        out.text(" -> ")?;
        let target = fs.volume().readlink(step.node);
        out.name(OsStr::from_bytes(&target.at(at.with_path(step.path))?))?;
    }
    out.text("\n")
}
