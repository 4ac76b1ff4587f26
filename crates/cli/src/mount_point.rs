//! The path of a mount point, whose mount may be dead.

use std::io;
use std::path::{Path, PathBuf};

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
