//! Walking a tree inside of an image, directories before what is in them.
//!
//! No recursion, and a directory that contains itself is an error: how an image is linked up, the image decides.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use extant::{FileKind, Filesystem, Ino, Metadata};

use crate::failure::{At, Failure};
use crate::operand::ImagePath;

/// Something found on a walk.
pub(crate) struct Step {
    /// Its path.
    pub(crate) path: PathBuf,
    /// Its name; the last component, or the path that was given.
    pub(crate) name: OsString,
    /// Its attributes; links are not followed.
    pub(crate) metadata: Metadata,
    /// Directories above it on this walk.
    pub(crate) depth: usize,
    /// For itself and each directory on the way but the first, outermost first: whether it is the last in its directory.
    pub(crate) last: Vec<bool>,
}

/// A directory being walked.
struct Level {
    path: PathBuf,
    ino: Ino,
    names: std::vec::IntoIter<OsString>,
}

/// Calls `visit` for the place itself and everything below it, in the order of names; below a directory only if `visit` says so.
/// Failures go to `visit` too, and the walk goes on.
pub(crate) fn walk(
    fs: &Filesystem,
    at: &ImagePath,
    mut visit: impl FnMut(Result<Step, Failure>) -> bool,
) {
    let mut stack: Vec<Level> = Vec::new();
    let mut next = Some((
        at.path.clone(),
        at.path.clone().into_os_string(),
        Vec::new(),
    ));
    loop {
        let Some((path, name, last)) = next.take() else {
            let Some(level) = stack.last_mut() else {
                return;
            };
            match level.names.next() {
                Some(name) => {
                    let last = stack.iter().map(|level| level.names.len() == 0).collect();
                    let path = stack
                        .last()
                        .map_or_else(PathBuf::new, |level| level.path.join(&name));
                    next = Some((path, name, last));
                }
                None => {
                    stack.pop();
                }
            }
            continue;
        };
        let metadata = match fs.symlink_metadata(&path).at(at.with_path(&path)) {
            Ok(metadata) => metadata,
            Err(failure) => {
                visit(Err(failure));
                continue;
            }
        };
        let (ino, is_dir) = (metadata.ino(), metadata.file_type() == FileKind::Directory);
        let step = Step {
            path: path.clone(),
            name,
            metadata,
            depth: stack.len(),
            last,
        };
        if !visit(Ok(step)) || !is_dir {
            continue;
        }
        if stack.iter().any(|level| level.ino == ino) {
            let failure = Failure::at(at.with_path(&path), "a directory that contains itself");
            visit(Err(failure));
            continue;
        }
        match names(fs, &path).at(at.with_path(&path)) {
            Ok(names) => stack.push(Level {
                path,
                ino,
                names: names.into_iter(),
            }),
            Err(failure) => {
                visit(Err(failure));
            }
        }
    }
}

/// The names in a directory, in order.
pub(crate) fn names(fs: &Filesystem, dir: &Path) -> extant::Result<Vec<OsString>> {
    let names = fs.read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
    let mut names = names.collect::<extant::Result<Vec<_>>>()?;
    names.sort_unstable();
    Ok(names)
}
