//! The plain data that crosses the public border: attributes and their changes, directory entries,
//! statistics, flags.
//!
//! Nothing here holds a reference into the file system; every value is a copy taken at one moment.
//! These types stand below all modules, so every module may use them.

mod credentials;
pub(crate) mod error;
pub(crate) mod interrupt;

pub use self::credentials::Cred;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bitflags::bitflags;
pub use extant_disk::file_kind::FileKind;
use extant_units::Ino;
#[cfg(not(extant_shuttle))]
use rustix::time::{ClockId, clock_gettime};

/// The modes of [`crate::Volume::fallocate`], as of fallocate(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FallocateMode {
    /// Allocates holes; they read as zeros until they are written.
    Allocate {
        /// The file's size stays as it is; space may lie behind its end.
        keep_size: bool,
    },
    /// Frees the range: it reads as zeros. The size stays.
    PunchHole,
    /// Makes the range read as zeros, and allocates it.
    ZeroRange {
        /// As with [`FallocateMode::Allocate`].
        keep_size: bool,
    },
    /// Removes the range from the file, which becomes shorter. Whole blocks.
    CollapseRange,
    /// Inserts a hole into the file, which becomes longer. Whole blocks.
    InsertRange,
}

/// A part of what fs-verity keeps of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum VerityMetadata {
    /// The Merkle tree, with its root level first.
    Tree,
    /// The descriptor, without the signature.
    Descriptor,
    /// The signature.
    Signature,
}

/// The step that makes a write durable before its caller gets the result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AfterWrite {
    /// Nothing: a sync that follows does.
    #[default]
    Nothing,
    /// A sync of the content, and of the attributes that are needed to read it back (`O_DSYNC`).
    SyncData,
    /// A sync of content and attributes (`O_SYNC`).
    SyncAll,
}

/// A point in time as ext4 stores it: seconds since 1970 (negative before) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub secs: i64,
    /// Nanoseconds past `secs`, below 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    /// The clock of all of the file system's times: the host's coarse one, which advances every few
    /// milliseconds. The kernel uses it for the times that it sets through a mount, so the times
    /// that the two give to one file are in order.
    #[must_use]
    pub fn now() -> Timestamp {
        #[cfg(extant_shuttle)]
        return extant_sync::time::system_now().into();
        #[cfg(not(extant_shuttle))]
        Self::from_clock()
    }

    #[cfg(not(extant_shuttle))]
    fn from_clock() -> Timestamp {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp {
            secs: now.tv_sec,
            nanos: u32::try_from(now.tv_nsec).unwrap_or(0),
        }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(t: SystemTime) -> Timestamp {
        match t.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp {
                secs: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
                nanos: after.subsec_nanos(),
            },
            Err(before) => {
                let before = before.duration();
                let secs = i64::try_from(before.as_secs()).map_or(i64::MIN, |s| -s);
                match before.subsec_nanos() {
                    0 => Timestamp { secs, nanos: 0 },
                    n => Timestamp {
                        secs: secs.saturating_sub(1),
                        nanos: 1_000_000_000 - n,
                    },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(t: Timestamp) -> SystemTime {
        let whole = Duration::from_secs(t.secs.unsigned_abs());
        let base = if t.secs < 0 {
            UNIX_EPOCH.checked_sub(whole)
        } else {
            UNIX_EPOCH.checked_add(whole)
        };
        base.unwrap_or(UNIX_EPOCH) + Duration::from_nanos(u64::from(t.nanos))
    }
}

/// The attributes of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Changes each time the inode number is used again.
    pub generation: u32,
    /// Its kind.
    pub kind: FileKind,
    /// Permission bits with set-user-ID, set-group-ID and sticky: the low 12 bits of `i_mode`.
    pub perm: u16,
    /// Hard links. For a directory with 65000 subdirectories or more: 1, as on disk.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node in Linux's `stat` encoding (major in bits 8-19, minor in 0-7
    /// and 20-31), else 0.
    pub rdev: u32,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes, space reserved for delayed allocation included.
    pub blocks: u64,
    /// The file system's block size in bytes.
    pub blksize: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, if the inode has room for it (inodes of 128 bytes do not).
    pub crtime: Option<Timestamp>,
    /// The flags that lsattr(1) shows, in its numbers: see [`crate::Volume::flags`].
    pub flags: u32,
}

impl Attr {
    /// Kind and permissions together, as `st_mode`.
    #[must_use]
    pub const fn mode(&self) -> u16 {
        self.kind.mode_bits() | self.perm
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The engine's clock when the change is made. Any writer of the file may set it.
    Now,
    /// This time. Only the owner may set it.
    At(Timestamp),
}

/// Changes to an inode's attributes; `None` keeps one. All of them happen together or not at all,
/// except that a change of size may be done before a later error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// New permission bits (low 12 bits).
    pub perm: Option<u16>,
    /// New owner.
    pub uid: Option<u32>,
    /// New group.
    pub gid: Option<u32>,
    /// New size in bytes.
    pub size: Option<u64>,
    /// New access time.
    pub atime: Option<SetTime>,
    /// New modification time.
    pub mtime: Option<SetTime>,
    /// New change time. Only a front end with a write-back cache of its own sets it; otherwise it
    /// is the time of the change.
    pub ctime: Option<Timestamp>,
    /// Clear set-user-ID and set-group-ID as a write by an unprivileged user does (FUSE's
    /// `KILL_SUIDGID`).
    pub kill_priv: bool,
    /// A new owner or size clears no set-id bits and no capabilities by itself: the front end has
    /// done that, or no user asks for it (Linux's overlayfs sets the owner of a copy).
    pub keep_priv: bool,
    /// `mtime` is by the front end's clock: the time of writes that its cache accepted when they
    /// were allowed, or of a touch (with an access time of [`SetTime::Now`]). An append-only inode
    /// does not forbid it, and of writes no inode.
    pub noted: bool,
}

/// One directory entry, as `Volume::readdir` passes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Inode number.
    pub ino: Ino,
    /// Kind as the directory stores it; `None` on images without the `filetype` feature.
    pub kind: Option<FileKind>,
    /// Name, 1 to 255 bytes; never holds `/` or NUL.
    pub name: &'a [u8],
    /// The position after this entry. Stays valid while other threads create and unlink.
    pub next_pos: u64,
}

/// The result of a defragmentation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Defragmented {
    /// Runs of blocks before it. Neighbours in the file that are neighbours on the device are one
    /// run.
    pub runs_before: u64,
    /// Runs of blocks after it.
    pub runs_after: u64,
    /// Bytes that were moved to another location.
    pub moved: u64,
}

bitflags! {
    /// The mode of a rename, in Linux's numbers (`renameat2`).
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct RenameFlags: u32 {
        /// Fail with EEXIST if the new name exists.
        const NOREPLACE = 1;
        /// Swap the two names.
        const EXCHANGE = 2;
        /// Leave a whiteout (character device 0:0) under the old name.
        const WHITEOUT = 4;
    }
}

/// How setting an extended attribute treats an existing one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Either,
    /// Fail with EEXIST if it exists (`XATTR_CREATE`).
    Create,
    /// Fail with ENODATA if it does not (`XATTR_REPLACE`).
    Replace,
}

/// The target of a sparse seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SeekTarget {
    /// The first byte of data at or after a position (`SEEK_DATA`).
    Data(u64),
    /// The first byte of a hole at or after a position (`SEEK_HOLE`); the end of the file counts as
    /// one.
    Hole(u64),
}

/// Totals of the file system, as `statfs` reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FsStat {
    /// Block size in bytes.
    pub block_size: u32,
    /// Bytes that are allocated at once: a block, or with `bigalloc` a cluster of several.
    pub cluster_size: u32,
    /// Blocks, less those of the format itself (`bsddf`).
    pub blocks: u64,
    /// Free blocks, less those reserved for delayed allocation.
    pub blocks_free: u64,
    /// Free blocks less the reserve for root.
    pub blocks_available: u64,
    /// Inodes.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// Longest name in bytes.
    pub name_max: u32,
    /// Volume UUID.
    pub uuid: [u8; 16],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_modes_are_inverse() {
        for kind in [
            FileKind::Regular,
            FileKind::Directory,
            FileKind::Symlink,
            FileKind::BlockDevice,
            FileKind::CharDevice,
            FileKind::Fifo,
            FileKind::Socket,
        ] {
            assert_eq!(FileKind::from_mode(kind.mode_bits() | 0o7777), Some(kind));
        }
        assert_eq!(FileKind::from_mode(0), None);
        assert_eq!(FileKind::from_mode(0o170_000), None);
    }

    #[test]
    fn times_before_the_epoch_survive() {
        for t in [
            Timestamp { secs: -2, nanos: 1 },
            Timestamp { secs: -1, nanos: 0 },
            Timestamp {
                secs: 0,
                nanos: 999_999_999,
            },
            Timestamp {
                secs: 15_032_385_535,
                nanos: 7,
            },
        ] {
            assert_eq!(Timestamp::from(SystemTime::from(t)), t);
        }
    }
}

/// The state of a master key of encrypted files; see [`crate::Volume::key_status`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KeyStatus {
    /// It is not there.
    Absent,
    /// It was added: files that it encrypts can be used.
    Present,
    /// It was removed, but files that were in use then can still be read and written through the
    /// references of that time.
    PartlyRemoved,
}
