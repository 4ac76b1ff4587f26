//! The identity of a mount: which one a directory shows, whatever was mounted there meanwhile.
//!
//! # Invariants
//! The file system is not asked: it need not serve yet, or any more.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, statx};
use rustix::mount::UnmountFlags;

/// `STATX_MNT_ID_UNIQUE`: a number that no later mount gets (Linux 6.8). An older kernel answers
/// with `STATX_MNT_ID`, which another mount may get once this one is gone.
const UNIQUE: StatxFlags = StatxFlags::from_bits_retain(0x4000);

/// One mount among all of this mount namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MountId {
    id: u64,
    /// The device number of its file system.
    pub(crate) device: (u32, u32),
}

impl MountId {
    /// The topmost mount at `dir`.
    pub(crate) fn at(dir: &Path) -> io::Result<MountId> {
        Self::look(CWD, dir, AtFlags::SYMLINK_NOFOLLOW)
    }

    /// The mount through which `fd` was opened.
    pub(crate) fn of(fd: impl AsFd) -> io::Result<MountId> {
        Self::look(fd, Path::new(""), AtFlags::EMPTY_PATH)
    }

    fn look(fd: impl AsFd, path: &Path, flags: AtFlags) -> io::Result<MountId> {
        let wanted = StatxFlags::INO | StatxFlags::MNT_ID | UNIQUE;
        let stat = statx(fd, path, flags | AtFlags::STATX_DONT_SYNC, wanted)?;
        Ok(MountId {
            id: stat.stx_mnt_id,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
        })
    }
}

/// A descriptor of the directory `dir` that opens nothing. While it lives, the mount through which
/// it was reached comes off lazily only.
pub(super) fn open_path(dir: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(CWD, dir, flags, Mode::empty())?)
}

/// Takes the mount whose root `fd` is off, wherever it is by now. What is open on it lives on. If
/// another one was mounted over it just now, that one comes off: Linux has no call that takes a
/// descriptor.
pub(super) fn detach_lazily(fd: &OwnedFd) -> io::Result<()> {
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    Ok(rustix::mount::unmount(path, UnmountFlags::DETACH)?)
}
