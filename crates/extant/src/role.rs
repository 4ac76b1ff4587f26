//! What a metadata block is taken for.
//!
//! The block cache checks a block again when it is read under another key than the one it was last checked under;
//! the key is the block's role and its owner, so that a hostile image gains nothing from letting two structures
//! share a block. Every role of the file system stands here, so that no two have one number.

use extant_jbd2::CheckKey;

/// The role of a metadata block. The numbers mean nothing on disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Role {
    /// Directory entries; owner: the directory.
    DirLeaf = 1,
    /// The root of a directory's index; owner: the directory.
    DirRoot,
    /// A node of a directory's index; owner: the directory.
    DirNode,
    /// The target of a symbolic link; owner: the link.
    Symlink,
    /// A node of an extent tree; owner: the inode.
    ExtentNode,
    /// A block of block numbers of an old block map; owner: the inode.
    Indirect,
    /// Extended attributes. Shared between inodes, so the owner is zero.
    Xattr,
    /// A block bitmap; owner: the group.
    BlockBitmap,
    /// An inode bitmap; owner: the group.
    InodeBitmap,
    /// A block of the orphan file; owner: its inode.
    OrphanFile,
}

impl Role {
    /// The key of a block in this role that belongs to `owner`.
    pub(crate) const fn key(self, owner: u32) -> CheckKey {
        CheckKey::new(self as u8, owner)
    }
}
