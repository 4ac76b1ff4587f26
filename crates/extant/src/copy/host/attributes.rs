//! Attributes of open files of the host.
//!
//! # Invariants
//! Nothing here takes a path that another process could change. A descriptor of `O_PATH` (links,
//! nodes, directories that may not be read) has no permissions, times or attributes of its own
//! system calls; those go by its name in `/proc/self/fd`, which always leads to the same file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use extant_engine::{FileKind, Timestamp};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod,
    fgetxattr, flistxattr, fremovexattr, fsetxattr, futimens, getxattr, listxattr, removexattr,
    setxattr, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::copy::content::filled;
use crate::copy::copy_options::device_of;
use crate::copy::sides::{Attributes, Id, Xattr};

/// Largest list of names and largest value of extended attributes that Linux has.
const XATTR_MAX: usize = 64 << 10;

/// The attributes of an open file.
pub(super) fn attributes(file: &File) -> io::Result<Attributes> {
    let metadata = file.metadata()?;
    let time = |secs, nanos: i64| Timestamp {
        secs,
        // Below 10^9 by its definition.
        nanos: u32::try_from(nanos).unwrap_or(0),
    };
    Ok(Attributes {
        kind: kind(metadata.file_type()),
        perm: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.len(),
        links: metadata.nlink(),
        rdev: device_of(metadata.rdev()),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        id: Id {
            device: metadata.dev(),
            inode: metadata.ino(),
        },
    })
}

fn kind(kind: std::fs::FileType) -> FileKind {
    match () {
        () if kind.is_dir() => FileKind::Directory,
        () if kind.is_symlink() => FileKind::Symlink,
        () if kind.is_block_device() => FileKind::BlockDevice,
        () if kind.is_char_device() => FileKind::CharDevice,
        () if kind.is_fifo() => FileKind::Fifo,
        () if kind.is_socket() => FileKind::Socket,
        () => FileKind::Regular,
    }
}

/// The name of a descriptor: it leads to the file even if that is a link.
fn name_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

/// Calls `open` of a descriptor, or `pinned` of its name if the descriptor has no such call.
fn either<T>(
    file: &File,
    open: impl FnOnce(&File) -> Result<T, Errno>,
    pinned: impl FnOnce(&str) -> Result<T, Errno>,
) -> io::Result<T> {
    match open(file) {
        Err(Errno::BADF) => Ok(pinned(&name_of(file))?),
        other => Ok(other?),
    }
}

/// The extended attributes.
pub(super) fn xattrs(file: &File) -> io::Result<Vec<Xattr>> {
    let mut names = vec![0; XATTR_MAX];
    let mut value = vec![0; XATTR_MAX];
    // The buffer is one argument of two calls of which one runs.
    let listed = match flistxattr(file, &mut names) {
        Err(Errno::BADF) => listxattr(name_of(file), &mut names),
        other => other,
    };
    let len = match listed {
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        other => other?,
    };
    let mut xattrs = Vec::new();
    let names = filled(&names, len)?;
    for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
        let got = match fgetxattr(file, name, &mut value) {
            Err(Errno::BADF) => getxattr(name_of(file), name, &mut value),
            other => other,
        };
        match got {
            // Removed meanwhile, or not for this process to read.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => {}
            other => {
                let value = filled(&value, other?)?;
                xattrs.push((name.to_vec(), value.to_vec()));
            }
        }
    }
    Ok(xattrs)
}

/// Sets owner and group; `false` if the caller may not.
pub(super) fn set_owner(file: &File, uid: u32, gid: u32) -> io::Result<bool> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
    match chownat(file, "", Some(uid), Some(gid), flags) {
        // As with cp: an ordinary user owns what it copies.
        Err(Errno::PERM) if !geteuid().is_root() => Ok(false),
        other => Ok(other.map(|()| true)?),
    }
}

/// Sets the permission bits of anything but a link.
pub(super) fn set_perm(file: &File, perm: u16) -> io::Result<()> {
    let mode = Mode::from_raw_mode(u32::from(perm));
    either(
        file,
        |file| fchmod(file, mode),
        |name| chmodat(CWD, name, mode, AtFlags::empty()),
    )
}

/// Sets the times.
pub(super) fn set_times(file: &File, like: &Attributes) -> io::Result<()> {
    let time = |t: Timestamp| Timespec {
        tv_sec: t.secs,
        tv_nsec: t.nanos.into(),
    };
    let times = Timestamps {
        last_access: time(like.atime),
        last_modification: time(like.mtime),
    };
    either(
        file,
        |file| futimens(file, &times),
        |name| utimensat(CWD, name, &times, AtFlags::empty()),
    )
}

/// Sets an extended attribute.
pub(super) fn set_xattr(file: &File, (name, value): &Xattr) -> io::Result<()> {
    let (key, flags) = (name.as_slice(), XattrFlags::empty());
    either(
        file,
        |file| fsetxattr(file, key, value, flags),
        |path| setxattr(path, key, value, flags),
    )
}

/// Removes an extended attribute.
pub(super) fn drop_xattr(file: &File, name: &str) -> io::Result<()> {
    either(
        file,
        |file| fremovexattr(file, name),
        |path| removexattr(path, name),
    )
}
