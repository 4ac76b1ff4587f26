//! Mounts whose process has died: each access fails with ENOTCONN until they are taken off.

use std::io;
use std::path::{Path, PathBuf};

use extant_fuse::{MountEntry, detach};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Returns whether there is one at `dir`.
pub(crate) fn is_at(dir: &Path) -> bool {
    let dead = |error: io::Error| error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error());
    dir.metadata().is_err_and(dead)
}

/// Takes those of the image `source` off `dir`, which is canonical; false if one of another image
/// is left.
///
/// # Errors
/// Those of reading the table of mounts, and of unmounting.
pub(crate) fn take_off(source: &Path, dir: &Path) -> io::Result<bool> {
    while is_at(dir) {
        match MountEntry::find(dir)? {
            Some(entry) if entry.kind.starts_with("fuse") && entry.source == source => {
                detach(dir, true, !geteuid().is_root())?;
            }
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// The canonical path of a mount point, without looking into the mount: its daemon may be dead.
pub(crate) fn path_of(dir: &Path) -> io::Result<PathBuf> {
    match dir.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) => {
            let Some(name) = dir.file_name() else {
                return Err(error);
            };
            let parent = match dir.parent() {
                Some(parent) if !parent.as_os_str().is_empty() => parent,
                _ => Path::new("."),
            };
            Ok(parent.canonicalize()?.join(name))
        }
    }
}
