//! Kinds of metadata blocks, as the block cache remembers them.
//!
//! A block is checked again when it is read as another kind, or for another owner, than the last
//! time: see [`CheckKey`]. One list, so that no two structures share a number.

use extant_jbd2::CheckKey;
use extant_units::{Group, Ino};

/// Kind of a metadata block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum CheckKind {
    /// A group's block bitmap.
    BlockBitmap = 1,
    /// A group's inode bitmap.
    InodeBitmap,
    /// A block of an inode table.
    InodeTable,
    /// A node of an extent tree.
    ExtentNode,
    /// A block of block pointers (files without extents).
    Indirect,
    /// A block of a directory: entries.
    Directory,
    /// A block of a directory: the root of a hash tree index.
    DirectoryRoot,
    /// A block of a directory: a node of a hash tree index.
    DirectoryNode,
    /// A block of extended attributes.
    Xattr,
    /// The target of a symbolic link.
    Symlink,
    /// A block of the orphan file.
    OrphanFile,
    /// A block of a regular file whose data goes through the journal.
    FileData,
    /// A block of the value of an attribute in an inode of its own.
    XattrValue,
    /// A block of a file of quotas.
    Quota,
}

impl CheckKind {
    /// The key of a block that belongs to `ino`.
    pub(crate) const fn of_inode(self, ino: Ino) -> CheckKey {
        CheckKey::new(self as u8, ino.get())
    }

    /// The key of a block that belongs to `group`.
    pub(crate) const fn of_group(self, group: Group) -> CheckKey {
        CheckKey::new(self as u8, group.get())
    }
}
