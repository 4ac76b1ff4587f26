//! `extant setfattr`: extended attributes.

use crate::args::Setfattr;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;

pub(crate) fn run(args: &Setfattr) -> Outcome {
    let mut failures = Failures::of("setfattr");
    let mut images = Images::write().shared_by(&args.paths);
    for at in &args.paths {
        failures.note(set(args, &mut images, at));
    }
    super::finish(images, failures)
}

fn set(args: &Setfattr, images: &mut Images, at: &ImagePath) -> Result<(), Failure> {
    let fs = images.of(at)?;
    match (&args.remove, &args.name) {
        (Some(name), _) => fs.remove_xattr(&at.path, name).at(at),
        (None, Some(name)) => fs.set_xattr(&at.path, name, &args.value.0).at(at),
        (None, None) => Ok(()),
    }
}
