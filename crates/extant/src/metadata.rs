//! Metadata, permissions and times, by the names of `std::fs`.

use std::fmt;
use std::time::SystemTime;

use extant_engine::{Attr, FileKind, SetAttr, SetTime, Timestamp};
use extant_units::Ino;

/// `FS_IMMUTABLE_FL` and `FS_APPEND_FL` of Linux.
const IMMUTABLE: u32 = 0x10;
const APPEND_ONLY: u32 = 0x20;

/// Attributes of a file, as [`std::fs::Metadata`] with its Unix extensions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata(pub(crate) Attr);

impl Metadata {
    /// Everything at once.
    pub fn attr(&self) -> &Attr {
        &self.0
    }

    /// The kind of the file.
    pub fn file_type(&self) -> FileKind {
        self.0.kind
    }

    /// Returns whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.0.kind.is_dir()
    }

    /// Returns whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.0.kind.is_file()
    }

    /// Returns whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.0.kind.is_symlink()
    }

    /// Size in bytes.
    #[allow(clippy::len_without_is_empty, reason = "as in std")]
    pub fn len(&self) -> u64 {
        self.0.size
    }

    /// The permission bits.
    pub fn permissions(&self) -> Permissions {
        Permissions(self.0.perm)
    }

    /// Last change of the content.
    pub fn modified(&self) -> SystemTime {
        self.0.mtime.into()
    }

    /// Last access.
    pub fn accessed(&self) -> SystemTime {
        self.0.atime.into()
    }

    /// Last change of the inode: of the content, or of an attribute.
    pub fn changed(&self) -> SystemTime {
        self.0.ctime.into()
    }

    /// Creation, where the inode has room for it.
    pub fn created(&self) -> Option<SystemTime> {
        self.0.crtime.map(SystemTime::from)
    }

    /// Kind and permissions, as `st_mode`.
    pub fn mode(&self) -> u32 {
        u32::from(self.0.mode())
    }

    /// Inode number.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }

    /// Hard links.
    pub fn nlink(&self) -> u32 {
        self.0.nlink
    }

    /// Owner.
    pub fn uid(&self) -> u32 {
        self.0.uid
    }

    /// Group.
    pub fn gid(&self) -> u32 {
        self.0.gid
    }

    /// Device number of a device node, in Linux's encoding.
    pub fn rdev(&self) -> u32 {
        self.0.rdev
    }

    /// The file system's block size in bytes.
    pub fn blksize(&self) -> u32 {
        self.0.blksize
    }

    /// Space used, in units of 512 bytes.
    pub fn blocks(&self) -> u64 {
        self.0.blocks
    }

    /// Changes each time the inode number is used again.
    pub fn generation(&self) -> u32 {
        self.0.generation
    }

    /// The flags that lsattr(1) shows, in its numbers (`FS_*_FL`).
    pub fn flags(&self) -> u32 {
        self.0.flags
    }

    /// Returns whether nothing about the file may change (`chattr +i`).
    pub fn is_immutable(&self) -> bool {
        self.0.flags & IMMUTABLE != 0
    }

    /// Returns whether it may only grow (`chattr +a`).
    pub fn is_append_only(&self) -> bool {
        self.0.flags & APPEND_ONLY != 0
    }
}

/// Permission bits with set-user-ID, set-group-ID and sticky.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Permissions(u16);

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permissions({:#o})", self.0)
    }
}

impl Permissions {
    /// From the low twelve bits of a mode; others are ignored.
    pub fn from_mode(mode: u32) -> Permissions {
        let [low, high, ..] = mode.to_le_bytes();
        Permissions(u16::from_le_bytes([low, high]) & 0o7777)
    }

    /// The bits.
    pub fn mode(self) -> u32 {
        u32::from(self.0)
    }

    /// Returns whether no class of users may write.
    pub fn readonly(self) -> bool {
        self.0 & 0o222 == 0
    }

    /// Takes the permission to write from owner, group and others, or gives it to all of them.
    pub fn set_readonly(&mut self, readonly: bool) {
        self.0 = if readonly {
            self.0 & !0o222
        } else {
            self.0 | 0o222
        };
    }

    pub(crate) fn bits(self) -> u16 {
        self.0
    }
}

/// Times to set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileTimes {
    accessed: Option<Timestamp>,
    modified: Option<Timestamp>,
}

impl FileTimes {
    /// Sets nothing.
    pub fn new() -> FileTimes {
        FileTimes::default()
    }

    /// Sets the time of the last access.
    #[must_use]
    pub fn set_accessed(mut self, t: impl Into<Timestamp>) -> FileTimes {
        self.accessed = Some(t.into());
        self
    }

    /// Sets the time of the last change of the content.
    #[must_use]
    pub fn set_modified(mut self, t: impl Into<Timestamp>) -> FileTimes {
        self.modified = Some(t.into());
        self
    }
}

impl From<FileTimes> for SetAttr {
    fn from(times: FileTimes) -> SetAttr {
        SetAttr {
            atime: times.accessed.map(SetTime::At),
            mtime: times.modified.map(SetTime::At),
            ..SetAttr::default()
        }
    }
}
