//! `extant du`: the space that trees take.

use std::collections::HashSet;

use extant::Ino;

use crate::args::Du;
use crate::failure::{Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::Output;
use crate::size;
use crate::walk::walk;

pub(crate) fn run(args: &Du) -> Outcome {
    let mut failures = Failures::of("du");
    let mut images = Images::read().shared_by(&args.paths);
    let mut out = Output::new();
    for at in &args.paths {
        let shown = sum(args, &mut images, at, &mut out, &mut failures);
        failures.note(shown);
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

/// A directory whose entries are being counted.
struct Counted {
    at: ImagePath,
    bytes: u64,
}

fn sum(
    args: &Du,
    images: &mut Images,
    at: &ImagePath,
    out: &mut Output,
    failures: &mut Failures,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    let mut open: Vec<Counted> = Vec::new();
    // A file with several names counts by its first.
    let mut linked: HashSet<Ino> = HashSet::new();
    walk(&fs, at, |step| {
        let Some(step) = failures.note(step) else {
            return false;
        };
        while open.len() > step.depth() {
            failures.note(leave(args, &mut open, out));
        }
        let again = !step.is_dir() && step.attr.nlink > 1 && !linked.insert(step.attr.ino);
        let bytes = if again {
            0
        } else {
            step.attr.blocks.saturating_mul(512)
        };
        let at = at.with_path(step.path);
        open.push(Counted { at, bytes });
        if !step.is_dir() {
            // What is named is shown; what is below it only counts.
            let shown = match open.len() {
                1 => leave(args, &mut open, out),
                _ => count(&mut open),
            };
            failures.note(shown);
            return false;
        }
        !out.closed()
    });
    while !open.is_empty() {
        leave(args, &mut open, out)?;
    }
    Ok(())
}

/// Adds the innermost to the one above.
fn count(open: &mut Vec<Counted>) -> Result<(), Failure> {
    if let (Some(done), Some(above)) = (open.pop(), open.last_mut()) {
        above.bytes = above.bytes.saturating_add(done.bytes);
    }
    Ok(())
}

/// Shows the innermost, unless only the outermost is asked for, and adds it to the one above.
fn leave(args: &Du, open: &mut Vec<Counted>, out: &mut Output) -> Result<(), Failure> {
    if let Some(done) = open.last()
        && (open.len() == 1 || !args.summarize)
    {
        let size = match args.human_readable {
            true => size::human(done.bytes),
            false => done.bytes.div_ceil(1024).to_string(),
        };
        out.text(format!("{size}\t"))?;
        out.name(done.at.path.as_os_str())?;
        out.text("\n")?;
    }
    count(open)
}
