//! `extant chmod`: permissions.

use extant::{Metadata, SetAttr};

use crate::args::Chmod;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::mode::ModeChange;
use crate::operand::ImagePath;
use crate::walk::walk;

pub(crate) fn run(args: &Chmod) -> Outcome {
    let Some(mode) = ModeChange::parse(&args.mode) else {
        return Outcome::Usage(format!("{}: bad mode", args.mode));
    };
    let mut failures = Failures::of("chmod");
    let mut images = Images::write();
    for at in &args.paths {
        let changed = change(args, &mode, &mut images, at, &mut failures);
        failures.note(changed);
    }
    super::finish(images, failures)
}

fn change(
    args: &Chmod,
    mode: &ModeChange,
    images: &mut Images,
    at: &ImagePath,
    failures: &mut Failures,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    let umask = images.umask();
    let set = |at: &ImagePath, metadata: &Metadata, follow| {
        let perm = mode.apply(metadata.attr().perm, metadata.is_dir(), umask);
        let changes = SetAttr {
            perm: Some(perm),
            ..SetAttr::default()
        };
        fs.set_attributes(&at.path, follow, &changes).at(at)
    };
    if !args.recursive {
        return set(at, &fs.metadata(&at.path).at(at)?, true);
    }
    walk(&fs, at, |step| {
        let Some(step) = failures.note(step) else {
            return false;
        };
        // Links have no permissions, and what they lead to may be outside of the tree.
        if !step.metadata.is_symlink() {
            failures.note(set(&at.with_path(&step.path), &step.metadata, false));
        }
        true
    });
    Ok(())
}
