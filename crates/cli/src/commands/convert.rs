//! `extant convert`: extents for files with block maps.

use crate::args::Convert;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;

pub(crate) fn run(args: &Convert) -> Outcome {
    let mut failures = Failures::of("convert");
    let mut images = Images::write().shared_by(&args.paths);
    for at in &args.paths {
        let done = convert(&mut images, at);
        failures.note(done);
    }
    super::finish(images, failures)
}

fn convert(images: &mut Images, at: &ImagePath) -> Result<(), Failure> {
    let fs = images.of(at)?;
    let node = fs.node(&at.path, true).at(at)?;
    fs.volume().convert_to_extents(&node).at(at)
}
