//! `extant chown`: owner and group.

use extant::SetAttr;

use crate::args::Chown;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::owner;
use crate::walk::walk;

pub(crate) fn run(args: &Chown) -> Outcome {
    let changes = match owner::parse(&args.owner) {
        Ok((uid, gid)) => SetAttr {
            uid,
            gid,
            ..SetAttr::default()
        },
        Err(what) => return Outcome::Failed(Failure::new(what)),
    };
    let mut failures = Failures::of("chown");
    let mut images = Images::write().shared_by(&args.paths);
    for at in &args.paths {
        let changed = change(args, &changes, &mut images, at, &mut failures);
        failures.note(changed);
    }
    super::finish(images, failures)
}

fn change(
    args: &Chown,
    changes: &SetAttr,
    images: &mut Images,
    at: &ImagePath,
    failures: &mut Failures,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    if !args.recursive {
        return fs
            .set_attributes(&at.path, !args.no_dereference, changes)
            .at(at);
    }
    walk(&fs, at, |step| {
        let Some(step) = failures.note(step) else {
            return false;
        };
        let changed = fs.volume().setattr(step.node, changes, fs.cred());
        failures.note(changed.at(at.with_path(step.path)));
        true
    });
    Ok(())
}
