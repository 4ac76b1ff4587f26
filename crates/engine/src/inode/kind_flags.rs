//! The chattr flags that an inode can have, and those that new inodes inherit.

use super::InodeFlags;
use crate::types::FileKind;

/// Flags that children inherit.
const INHERITED: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOCOMPR)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::DAX);
/// Flags that only directories have.
const DIRECTORIES_ONLY: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::PROJINHERIT);
/// Flags that an inode which is neither file nor directory may have.
const SPECIAL: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);

/// `flags` without those that an inode of `kind` cannot have.
pub(crate) fn of_kind(flags: InodeFlags, kind: FileKind) -> InodeFlags {
    match kind {
        FileKind::Directory => flags,
        FileKind::Regular => flags - DIRECTORIES_ONLY,
        _ => flags & SPECIAL,
    }
}

/// The flags of a new inode of `kind` in a directory with `parent`'s flags.
pub(crate) fn inherited(parent: InodeFlags, kind: FileKind) -> InodeFlags {
    of_kind(parent & INHERITED, kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_take_what_their_kind_can_have() {
        let parent = InodeFlags::NOATIME
            | InodeFlags::DIRSYNC
            | InodeFlags::IMMUTABLE
            | InodeFlags::INDEX
            | InodeFlags::CASEFOLD
            | InodeFlags::SYNC;
        assert_eq!(
            inherited(parent, FileKind::Directory),
            InodeFlags::NOATIME | InodeFlags::DIRSYNC | InodeFlags::CASEFOLD | InodeFlags::SYNC
        );
        assert_eq!(
            inherited(parent, FileKind::Regular),
            InodeFlags::NOATIME | InodeFlags::SYNC
        );
        assert_eq!(inherited(parent, FileKind::Fifo), InodeFlags::NOATIME);
    }
}
