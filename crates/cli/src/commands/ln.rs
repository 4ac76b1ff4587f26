//! `extant ln`: hard and symbolic links.

use std::path::Path;

use extant::{Error, Filesystem};

use crate::args::Ln;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::operand::ImagePath;
use crate::source;

pub(crate) fn run(args: &Ln) -> Outcome {
    let mut failures = Failures::of("ln");
    let mut images = Images::write();
    failures.note(link(args, &mut images));
    super::finish(images, failures)
}

fn link(args: &Ln, images: &mut Images) -> Result<(), Failure> {
    let fs = images.of(&args.link)?;
    if args.symbolic {
        let link = link_path(&fs, &args.link, Path::new(&args.target))?;
        clear(args, &fs, &link)?;
        fs.symlink(&args.target, &link.path).at(&link)?;
        return super::own(&fs, &link, args.owner);
    }
    let target = ImagePath::parse(&args.target)
        .ok_or_else(|| Failure::at(args.target.display(), "not of the form IMAGE:/path"))?;
    if source::real(&target.image)? != source::real(&args.link.image)? {
        return Err(Failure::at(&args.link, Error::CrossDevice));
    }
    if fs.symlink_metadata(&target.path).at(&target)?.is_dir() {
        return Err(Failure::at(&target, Error::IsDir));
    }
    let link = link_path(&fs, &args.link, &target.path)?;
    clear(args, &fs, &link)?;
    fs.hard_link(&target.path, &link.path).at(&link)
}

/// The path of the link: in the directory that was named, if one was.
fn link_path(fs: &Filesystem, link: &ImagePath, target: &Path) -> Result<ImagePath, Failure> {
    match fs.metadata(&link.path) {
        Ok(metadata) if metadata.is_dir() => {
            let name = target
                .file_name()
                .ok_or_else(|| Failure::at(link, Error::Exists))?;
            Ok(link.with_path(link.path.join(name)))
        }
        Ok(_) | Err(Error::NotFound) => Ok(link.clone()),
        Err(error) => Err(Failure::at(link, error)),
    }
}

/// Removes what is in the way, if that was asked for.
fn clear(args: &Ln, fs: &Filesystem, link: &ImagePath) -> Result<(), Failure> {
    if !args.force {
        return Ok(());
    }
    match fs.remove_file(&link.path) {
        Err(Error::NotFound) => Ok(()),
        other => other.at(link),
    }
}
