//! `extant rm`: removing files and trees.

use extant::Error;

use crate::args::Rm;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;

pub(crate) fn run(args: &Rm) -> Outcome {
    let mut failures = Failures::of("rm");
    let mut images = Images::write().shared_by(&args.paths);
    for at in &args.paths {
        failures.note(remove(args, &mut images, at));
    }
    super::finish(images, failures)
}

fn remove(args: &Rm, images: &mut Images, at: &ImagePath) -> Result<(), Failure> {
    if at.means_content() {
        return Err(Failure::at(at, "a directory is not removed by this name"));
    }
    let fs = images.of(at)?;
    let metadata = match fs.symlink_metadata(&at.path) {
        Err(Error::NotFound) if args.force => return Ok(()),
        other => other.at(at)?,
    };
    match (metadata.is_dir(), args.recursive, args.dir) {
        (true, true, _) => fs.remove_dir_all(&at.path),
        (true, false, true) => fs.remove_dir(&at.path),
        (true, false, false) => Err(Error::IsDir),
        (false, ..) => fs.remove_file(&at.path),
    }
    .at(at)
}
