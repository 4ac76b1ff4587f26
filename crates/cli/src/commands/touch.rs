//! `extant touch`: times, and new empty files.

use extant::{Error, SetAttr, SetTime};

use crate::args::Touch;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;

pub(crate) fn run(args: &Touch) -> Outcome {
    let mut failures = Failures::of("touch");
    let mut images = Images::write().shared_by(&args.paths);
    for at in &args.paths {
        failures.note(touch(args, &mut images, at));
    }
    super::finish(images, failures)
}

fn touch(args: &Touch, images: &mut Images, at: &ImagePath) -> Result<(), Failure> {
    let fs = images.of(at)?;
    if let Err(Error::NotFound) = fs.metadata(&at.path) {
        if args.no_create {
            return Ok(());
        }
        fs.open_options()
            .write(true)
            .create(true)
            .open(&at.path)
            .at(at)?;
        super::own(&fs, at, args.owner)?;
    }
    let time = Some(args.date.map_or(SetTime::Now, SetTime::At));
    let both = args.access == args.modification;
    let changes = SetAttr {
        atime: time.filter(|_| args.access || both),
        mtime: time.filter(|_| args.modification || both),
        ..SetAttr::default()
    };
    fs.set_attributes(&at.path, true, &changes).at(at)
}
