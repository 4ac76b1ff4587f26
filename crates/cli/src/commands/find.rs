//! `extant find`: paths below a directory, by name and kind.

use std::ffi::OsStr;
use std::path::Path;

use crate::args::{Find, KindLetter};
use crate::failure::{Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::output::{Output, attr_json, enter};
use crate::walk::{Step, walk};

pub(crate) fn run(args: &Find) -> Outcome {
    let mut failures = Failures::of("find");
    let mut images = Images::read().shared_by(&args.paths);
    let mut out = Output::new();
    let mut found = 0;
    for at in &args.paths {
        let shown = find(args, &mut images, at, (&mut out, &mut found), &mut failures);
        failures.note(shown);
    }
    if args.json {
        failures.note(out.json_array_end(found == 0));
    }
    failures.note(out.finish());
    super::finish(images, failures)
}

fn find(
    args: &Find,
    images: &mut Images,
    at: &ImagePath,
    (out, found): (&mut Output, &mut u64),
    failures: &mut Failures,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    walk(&fs, at, |step| {
        let Some(step) = failures.note(step) else {
            return false;
        };
        if is_wanted(args, at, &step) {
            *found += 1;
            failures.note(show(args, &step, out, *found == 1));
        }
        !out.closed() && args.max_depth.is_none_or(|most| step.depth() < most)
    });
    Ok(())
}

fn is_wanted(args: &Find, at: &ImagePath, step: &Step<'_>) -> bool {
    // A pattern with a slash means the path below the directory that is named.
    let below = step.path.strip_prefix(&at.path).unwrap_or(step.path);
    let below = match below == Path::new("") {
        true => Path::new(step.name),
        false => below,
    };
    let named = args
        .name
        .as_ref()
        .is_none_or(|pattern| pattern.means(below));
    let kinds = &args.kinds;
    named && (kinds.is_empty() || kinds.iter().any(|KindLetter(kind)| *kind == step.attr.kind))
}

fn show(args: &Find, step: &Step<'_>, out: &mut Output, first: bool) -> Result<(), Failure> {
    let path: &OsStr = step.path.as_os_str();
    if args.json {
        let mut object = attr_json(&step.attr);
        enter(&mut object, "path", path.as_encoded_bytes());
        return out.json_array_item(&object, first);
    }
    if args.null {
        out.bytes(path.as_encoded_bytes())?;
        return out.bytes(b"\0");
    }
    out.name(path)?;
    out.text("\n")
}
