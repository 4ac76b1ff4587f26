//! The kinds of quotas.

use extant_units::Ino;

use crate::superblock::{RawSuperblock, Superblock};

/// An id that usage is counted for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum QuotaKind {
    /// The owner of an inode.
    User,
    /// Its group.
    Group,
    /// The project that it belongs to.
    Project,
}

impl QuotaKind {
    /// Every kind, in the order of [`QuotaKind::index`].
    pub const ALL: [Self; 3] = [Self::User, Self::Group, Self::Project];

    /// Its place among the kinds.
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Its name: `user`, `group` or `project`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Group => "group",
            Self::Project => "project",
        }
    }

    /// The magic number of its file.
    pub(super) const fn magic(self) -> u32 {
        match self {
            Self::User => 0xd9c0_1f11,
            Self::Group => 0xd9c0_1927,
            Self::Project => 0xd9c0_3f14,
        }
    }

    /// The inode that its file has on every volume; that of projects is any.
    pub const fn fixed_inode(self) -> Option<u32> {
        match self {
            Self::User => Some(3),
            Self::Group => Some(4),
            Self::Project => None,
        }
    }

    /// Names inode `ino` as its file; 0 is none.
    pub fn set_file(self, raw: &mut RawSuperblock, ino: u32) {
        match self {
            Self::User => raw.usr_quota_inum.set(ino),
            Self::Group => raw.grp_quota_inum.set(ino),
            Self::Project => raw.prj_quota_inum.set(ino),
        }
    }

    /// The inode of its file (`s_*_quota_inum`); `None` if the volume has none.
    pub fn file_of(self, sb: &Superblock) -> Option<Ino> {
        self.named_in(sb.raw())
    }

    /// The same in a superblock that is being changed.
    pub fn named_in(self, raw: &RawSuperblock) -> Option<Ino> {
        Ino::new(match self {
            Self::User => raw.usr_quota_inum.get(),
            Self::Group => raw.grp_quota_inum.get(),
            Self::Project => raw.prj_quota_inum.get(),
        })
    }
}

impl core::fmt::Display for QuotaKind {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
