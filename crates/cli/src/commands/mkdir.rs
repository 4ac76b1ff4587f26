//! `extant mkdir`: making directories.

use std::path::Path;

use extant::{Error, Permissions};

use crate::args::Mkdir;
use crate::failure::{At, Failure, Failures, Outcome};
use crate::images::Images;
use crate::mode::ModeChange;
use crate::operand::ImagePath;

pub(crate) fn run(args: &Mkdir) -> Outcome {
    let mode = match args.mode.as_deref().map(ModeChange::parse) {
        Some(None) => return Outcome::Usage("bad mode".into()),
        Some(mode) => mode,
        None => None,
    };
    let mut failures = Failures::of("mkdir");
    let mut images = Images::write().shared_by(&args.paths);
    for at in &args.paths {
        failures.note(make(args, mode.as_ref(), &mut images, at));
    }
    super::finish(images, failures)
}

fn make(
    args: &Mkdir,
    mode: Option<&ModeChange>,
    images: &mut Images,
    at: &ImagePath,
) -> Result<(), Failure> {
    let fs = images.of(at)?;
    // Missing parents are made as well, and are as much the owner's. A path that ends in `..` is
    // not made, but leads to what was there.
    let is_name = |path: &&Path| path.file_name().is_some();
    let mut made: Vec<&Path> = Vec::new();
    if args.parents && args.owner.is_some() {
        let missing = |path: &&Path| matches!(fs.metadata(path), Err(Error::NotFound));
        let parents = at.path.ancestors().skip(1).take_while(missing);
        made.extend(parents.filter(is_name));
    }
    let existed = match fs.metadata(&at.path) {
        Ok(metadata) => metadata.is_dir(),
        Err(Error::NotFound) => !is_name(&at.path.as_path()),
        Err(error) => return Err(Failure::at(at, error)),
    };
    if args.parents {
        fs.create_dir_all(&at.path)
    } else {
        fs.create_dir(&at.path)
    }
    .at(at)?;
    if let Some(mode) = mode.filter(|_| !existed) {
        let perm = mode.apply(0o777 & !images.umask(), true, images.umask());
        fs.set_permissions(&at.path, Permissions::from_mode(u32::from(perm)))
            .at(at)?;
    }
    if !existed {
        made.push(&at.path);
    }
    for path in made {
        super::own(&fs, &at.with_path(path.to_owned()), args.owner)?;
    }
    Ok(())
}
