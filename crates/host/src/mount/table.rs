//! The kernel's table of mounts. Read rather than asked for by `stat`, which a dead FUSE daemon
//! would not answer.

use crate::{Result, cmd::read_text};
use std::path::{Path, PathBuf};

/// Returns whether something is mounted exactly on `dir`.
pub(super) fn is_mounted(dir: &Path) -> Result<bool> {
    Ok(mount_points()?.iter().any(|mounted| mounted == dir))
}

/// Every directory that something is mounted on; what is mounted later stands behind.
pub(crate) fn mount_points() -> Result<Vec<PathBuf>> {
    let table = read_text(Path::new("/proc/self/mountinfo"))?;
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.map(|point| unescape(point).into()).collect())
}

/// Spaces, tabs, newlines and backslashes are written as octal escapes.
fn unescape(field: &str) -> String {
    field
        .replace("\\040", " ")
        .replace("\\011", "\t")
        .replace("\\012", "\n")
        .replace("\\134", "\\")
}

#[cfg(test)]
mod tests {
    use super::{is_mounted, unescape};
    use std::path::Path;

    #[test]
    fn knows_a_mount_from_a_directory() {
        assert!(is_mounted(Path::new("/proc")).unwrap());
        assert!(!is_mounted(Path::new("/proc/self")).unwrap());
        assert_eq!(unescape("/a\\040b"), "/a b");
    }
}
