//! Attributes of open files of the host.
//!
//! # Invariants
//! Nothing here takes a path that another process could change. A descriptor of `O_PATH` (links,
//! nodes, directories that may not be read) has no permissions, times or attributes of its own
//! system calls; those go by its name in `/proc/self/fd`, which always leads to the same file.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use extant::{FileKind, Timestamp};
use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, Uid, XattrFlags, chmodat, chownat, fchmod,
    fgetxattr, flistxattr, fremovexattr, fsetxattr, futimens, getxattr, listxattr, major, minor,
    removexattr, setxattr, utimensat,
};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::copy::sides::{Attributes, Change, Id, Xattr};
use crate::failure::{Failure, filled};
use crate::output::device_number;

/// Largest list of names and largest value of extended attributes that Linux has.
const XATTR_MAX: usize = 64 << 10;

/// The attributes of an open file.
pub(super) fn attributes(file: &File) -> Result<Attributes, Failure> {
    let metadata = file.metadata()?;
    let time = |secs, nanos: i64| Timestamp {
        secs,
        // Below 10^9 by its definition.
        nanos: u32::try_from(nanos).unwrap_or(0),
    };
    let rdev = metadata.rdev();
    let (high, low) = (major(rdev), minor(rdev));
    Ok(Attributes {
        kind: kind(metadata.file_type()),
        perm: u16::try_from(metadata.mode() & 0o7777).unwrap_or(0),
        uid: metadata.uid(),
        gid: metadata.gid(),
        size: metadata.len(),
        links: metadata.nlink(),
        rdev: device_number(high, low),
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

/// An open file, or one that is only held (`O_PATH`).
pub(super) struct Handle {
    pub(super) file: File,
    pub(super) id: Id,
}

impl Handle {
    pub(super) fn new(file: File) -> Result<Handle, Failure> {
        let id = attributes(&file)?.id;
        Ok(Handle { file, id })
    }

    /// The name of the descriptor: it leads to the file even if that is a link.
    fn name(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_fd().as_raw_fd())
    }

    /// Calls `open` of the descriptor, or `held` of its name if the descriptor has no such call.
    fn either<T>(
        &self,
        open: impl FnOnce(&File) -> Result<T, Errno>,
        held: impl FnOnce(&str) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        match open(&self.file) {
            Err(Errno::BADF) => held(&self.name()),
            other => other,
        }
    }

    /// The extended attributes.
    pub(super) fn xattrs(&self) -> Result<Vec<Xattr>, Failure> {
        let mut names = vec![0; XATTR_MAX];
        let mut value = vec![0; XATTR_MAX];
        // The buffer is one argument of two calls of which one runs.
        let listed = match flistxattr(&self.file, &mut names) {
            Err(Errno::BADF) => listxattr(self.name(), &mut names),
            other => other,
        };
        let len = match listed {
            Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
            other => other?,
        };
        let mut xattrs = Vec::new();
        let names = filled(&names, len)?;
        for name in names.split(|&b| b == 0).filter(|name| !name.is_empty()) {
            let got = match fgetxattr(&self.file, name, &mut value) {
                Err(Errno::BADF) => getxattr(self.name(), name, &mut value),
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
}

impl Change for Handle {
    fn id(&self) -> Id {
        self.id
    }

    fn set_owner(&self, like: &Attributes) -> Result<bool, Failure> {
        let (uid, gid) = (Uid::from_raw(like.uid), Gid::from_raw(like.gid));
        match chownat(
            &self.file,
            "",
            Some(uid),
            Some(gid),
            AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW,
        ) {
            // As with cp: an ordinary user keeps what it copies.
            Err(Errno::PERM) if !geteuid().is_root() => Ok(false),
            other => Ok(other.map(|()| true)?),
        }
    }

    fn set_perm(&self, perm: u16) -> Result<(), Failure> {
        let mode = Mode::from_raw_mode(u32::from(perm));
        let set = self.either(
            |file| fchmod(file, mode),
            |name| chmodat(CWD, name, mode, AtFlags::empty()),
        );
        Ok(set?)
    }

    fn set_times(&self, like: &Attributes) -> Result<(), Failure> {
        let time = |t: Timestamp| Timespec {
            tv_sec: t.secs,
            tv_nsec: t.nanos.into(),
        };
        let times = Timestamps {
            last_access: time(like.atime),
            last_modification: time(like.mtime),
        };
        let set = self.either(
            |file| futimens(file, &times),
            |name| utimensat(CWD, name, &times, AtFlags::empty()),
        );
        Ok(set?)
    }

    fn set_xattr(&self, (name, value): &Xattr) -> Result<Option<String>, Failure> {
        let (key, flags) = (name.as_slice(), XattrFlags::empty());
        let set = self.either(
            |file| fsetxattr(file, key, value, flags),
            |path| setxattr(path, key, value, flags),
        );
        match set {
            Ok(()) => Ok(None),
            Err(error @ (Errno::PERM | Errno::OPNOTSUPP)) => Ok(Some(error.to_string())),
            Err(error) => Err(Failure::at(
                String::from_utf8_lossy(name),
                Failure::from(error),
            )),
        }
    }

    fn drop_xattr(&self, name: &str) {
        // Not there, or not for this process to remove: either way there is nothing to keep.
        let _ = self.either(
            |file| fremovexattr(file, name),
            |path| removexattr(path, name),
        );
    }
}
