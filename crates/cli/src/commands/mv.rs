//! `extant mv`: renaming and moving within an image.

use extant::{Error, RenameFlags};

use crate::args::Mv;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::source;

pub(crate) fn run(args: &Mv) -> Outcome {
    match super::split_sources(&args.operands, "a destination") {
        Ok((to, sources)) => moved(args, sources, to),
        Err(wrong) => wrong,
    }
}

fn moved(args: &Mv, sources: &[ImagePath], to: &ImagePath) -> Outcome {
    let mut failures = Failures::of("mv");
    let mut images = Images::write();
    for from in sources {
        failures.note(move_one(args, &mut images, from, to, sources.len() > 1));
    }
    super::finish(images, failures)
}

fn move_one(
    args: &Mv,
    images: &mut Images,
    from: &ImagePath,
    to: &ImagePath,
    several: bool,
) -> Result<(), Failure> {
    let same = source::real(&from.image)? == source::real(&to.image)?;
    if !same {
        let what = "in another image than the source: use cp -a, then rm";
        return Err(Failure::at(to, what));
    }
    let fs = images.of(to)?;
    let into = match fs.metadata(&to.path) {
        Ok(metadata) => metadata.is_dir(),
        Err(Error::NotFound) => false,
        Err(error) => return Err(Failure::at(to, error)),
    };
    if several && !into {
        return Err(Failure::at(to, Error::NotDir));
    }
    let name = from
        .path
        .file_name()
        .ok_or_else(|| Failure::at(from, Error::Invalid))?;
    let target = if into {
        to.path.join(name)
    } else {
        to.path.clone()
    };
    let flags = if args.no_clobber {
        RenameFlags::NOREPLACE
    } else {
        RenameFlags::empty()
    };
    match fs.rename_with(&from.path, &target, flags) {
        Err(Error::Invalid) => {
            let what = "a directory cannot be moved into itself";
            Err(Failure::at(from, what))
        }
        // Left alone, as asked for.
        Err(Error::Exists) if args.no_clobber => Ok(()),
        // Which of the two is at fault the error does not say, but it is mostly the source.
        Err(error @ (Error::NotFound | Error::CrossDevice)) => Err(Failure::at(from, error)),
        other => other.at(to.with_path(target)),
    }
}
