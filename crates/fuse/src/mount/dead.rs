//! Mounts whose process has died: each access fails with ENOTCONN until they are taken off.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::io::Errno;
use rustix::process::geteuid;

use super::fusermount::detach;
use super::identity::{detach_lazily, open_path};
use super::table;

/// Returns whether there is one at `dir`.
#[must_use]
pub fn is_dead(dir: &Path) -> bool {
    open_path(dir).is_ok_and(|root| is_dead_root(&root))
}

/// Returns whether a mount of the image `source` would take the place of a dead one on `dir`, which
/// is canonical.
///
/// # Errors
/// The dead mount is to stay: it is of another image, or others are mounted below it. Those of
/// reading the table of mounts.
pub fn would_replace_dead(source: &Path, dir: &Path) -> io::Result<bool> {
    Ok(dead(source, dir)?.is_some())
}

/// Takes dead mounts of the image `source` off `dir`, which is canonical.
///
/// # Errors
/// As [`would_replace_dead`], and those of unmounting.
pub fn take_off_dead(source: &Path, dir: &Path) -> io::Result<()> {
    while let Some(root) = dead(source, dir)? {
        match geteuid().is_root() {
            true => detach_lazily(&root)?,
            false => detach(dir, true, true)?,
        }
    }
    Ok(())
}

/// The root of the dead mount on `dir` that may be taken off, if there is one. What is read of the
/// table is of that mount, whatever is mounted meanwhile.
fn dead(source: &Path, dir: &Path) -> io::Result<Option<OwnedFd>> {
    let root = open_path(dir)?;
    if !is_dead_root(&root) {
        return Ok(None);
    }
    let id = number_of(&root)?;
    let all = table::read("self")?;
    let own = |entry: &&table::MountEntry| entry.kind.starts_with("fuse") && entry.source == source;
    let what = match all.iter().find(|entry| entry.id == id).filter(own) {
        None => "a mount whose process has died: extant umount it first",
        Some(_) if all.iter().any(|entry| entry.parent == id) => {
            "a mount whose process has died, with others below it: extant umount -l takes all off"
        }
        Some(_) => return Ok(Some(root)),
    };
    Err(io::Error::other(what))
}

/// Returns whether the process of the mount is dead whose root `fd` is. The kernel may still know
/// the attributes.
fn is_dead_root(fd: &OwnedFd) -> bool {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_FORCE_SYNC;
    statx(fd, "", flags, StatxFlags::INO).err() == Some(Errno::NOTCONN)
}

/// The number in the table of the mount through which `fd` was opened.
fn number_of(fd: &OwnedFd) -> io::Result<u32> {
    let info = fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd()))?;
    let number = info.lines().find_map(|line| line.strip_prefix("mnt_id:"));
    let number = number.and_then(|number| number.trim().parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidData.into())
}
