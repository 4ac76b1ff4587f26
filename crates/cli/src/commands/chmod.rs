//! `extant chmod`: permissions.

use extant::{FileKind, Node, SetAttr};

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
    let mut images = Images::write().shared_by(&args.paths);
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
    let set = |node: &Node| {
        let attr = fs.volume().getattr(node)?;
        let directory = attr.kind == FileKind::Directory;
        let changes = SetAttr {
            perm: Some(mode.apply(attr.perm, directory, umask)),
            ..SetAttr::default()
        };
        fs.volume().setattr(node, &changes, fs.cred()).map(drop)
    };
    if !args.recursive {
        return fs.node(&at.path, true).and_then(|node| set(&node)).at(at);
    }
    walk(&fs, at, |step| {
        let Some(step) = failures.note(step) else {
            return false;
        };
        // Links have no permissions, and what they lead to may be outside of the tree.
        if !step.is_symlink() {
            failures.note(set(step.node).at(at.with_path(step.path)));
        }
        true
    });
    Ok(())
}
