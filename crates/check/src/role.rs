//! The role of an inode number: reserved numbers have a fixed role, or one from the superblock.

use extant_disk::features::{Compat, FeatureSets, Incompat, RoCompat};
use extant_disk::superblock::Superblock;
use extant_units::Ino;

/// The role of an inode number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Files and directories.
    Ordinary,
    /// The root directory.
    Root,
    /// The list of bad blocks.
    BadBlocks,
    /// The boot loader: any file but a directory.
    BootLoader,
    /// The map of the blocks reserved for more descriptors.
    Resize,
    /// The journal.
    Journal,
    /// The orphan file.
    OrphanFile,
    /// Usage and limits of users, groups or projects.
    Quota,
    /// For a feature (a quota, a journal, a resize inode) that this file system does not have:
    /// empty.
    Absent,
    /// Reserved without a use here.
    Reserved,
}

impl Role {
    const RESIZE: u32 = 7;
    pub(crate) const BAD_BLOCKS: u32 = 1;
    const USER_QUOTA: u32 = 3;
    const GROUP_QUOTA: u32 = 4;
    const BOOT_LOADER: u32 = 5;
    const JOURNAL: u32 = 8;

    /// The role of `ino` in the file system of `sb`.
    pub(crate) fn of(sb: &Superblock, ino: Ino) -> Self {
        if ino == Ino::ROOT {
            Self::Root
        } else if sb.journal_inode() == Some(ino) || names_own_journal(sb, ino) {
            Self::Journal
        } else if sb.orphan_file_inode() == Some(ino) {
            Self::OrphanFile
        } else if has_quota(sb, ino) {
            Self::Quota
        } else if ino.get() >= sb.first_inode() {
            Self::Ordinary
        } else {
            match ino.get() {
                Self::BAD_BLOCKS => Self::BadBlocks,
                Self::BOOT_LOADER => Self::BootLoader,
                Self::RESIZE if has_reserve(sb.features()) => Self::Resize,
                Self::RESIZE | Self::USER_QUOTA | Self::GROUP_QUOTA | Self::JOURNAL => Self::Absent,
                _ => Self::Reserved,
            }
        }
    }

    /// Returns whether a directory entry leads to inodes of this role.
    pub(crate) fn has_name(self) -> bool {
        matches!(self, Self::Ordinary | Self::Root)
    }

    /// Returns whether a mount reads the fields of such inodes. Of the others, only the blocks
    /// matter.
    pub(crate) fn is_read(self) -> bool {
        matches!(
            self,
            Self::Ordinary | Self::Root | Self::Journal | Self::OrphanFile | Self::Quota
        )
    }

    /// Returns whether quotas count inodes of this role.
    pub(crate) fn is_charged(self) -> bool {
        matches!(self, Self::Ordinary | Self::Root)
    }

    /// Returns whether the inode counts as in use although it has no links.
    pub(crate) fn is_reserved(self) -> bool {
        !matches!(self, Self::Ordinary | Self::Root)
    }
}

/// Returns whether `ino` is the journal's number and the superblock names it, be it without the
/// feature: that alone is the damage then, and the inode has its contents still.
fn names_own_journal(sb: &Superblock, ino: Ino) -> bool {
    ino.get() == Role::JOURNAL && sb.raw().journal_inum.get() == Role::JOURNAL
}

/// Returns whether the superblock names `ino` as a file of quotas.
fn has_quota(sb: &Superblock, ino: Ino) -> bool {
    let raw = sb.raw();
    let files = [raw.usr_quota_inum, raw.grp_quota_inum, raw.prj_quota_inum];
    sb.features().has_ro_compat(RoCompat::QUOTA) && files.iter().any(|file| file.get() == ino.get())
}

/// Returns whether inode 7 leads to blocks reserved for descriptors. With `meta_bg` there is no
/// table that they could extend.
fn has_reserve(features: FeatureSets) -> bool {
    features.has_compat(Compat::RESIZE_INODE) && !features.has_incompat(Incompat::META_BG)
}
