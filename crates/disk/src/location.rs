//! Names for the places of the format where damage can be found.

use core::fmt;

use extant_units::{Group, Ino, Lblk, Pblk};

/// Structure that is damaged, and which one of its sort.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Location {
    /// The superblock.
    Superblock,
    /// The descriptor of a block group.
    GroupDesc(Group),
    /// The block bitmap of a group.
    BlockBitmap(Group),
    /// The inode bitmap of a group.
    InodeBitmap(Group),
    /// An inode itself.
    Inode(Ino),
    /// A node of an inode's extent tree.
    ExtentNode(Ino, Pblk),
    /// A block of a directory.
    DirBlock(Ino, Lblk),
    /// An extended attribute block of an inode.
    XattrBlock(Ino, Pblk),
    /// The orphan file or the list of orphans.
    Orphans,
    /// The journal.
    Journal,
    /// Any other block.
    Block(Pblk),
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => write!(f, "superblock"),
            Self::GroupDesc(group) => write!(f, "descriptor of group {group}"),
            Self::BlockBitmap(group) => write!(f, "block bitmap of group {group}"),
            Self::InodeBitmap(group) => write!(f, "inode bitmap of group {group}"),
            Self::Inode(ino) => write!(f, "inode {ino}"),
            Self::ExtentNode(ino, pblk) => write!(f, "extent node of inode {ino} at block {pblk}"),
            Self::DirBlock(ino, lblk) => write!(f, "block {lblk} of directory {ino}"),
            Self::XattrBlock(ino, pblk) => {
                write!(f, "attribute block {pblk} of inode {ino}")
            }
            Self::Orphans => write!(f, "orphan list"),
            Self::Journal => write!(f, "journal"),
            Self::Block(pblk) => write!(f, "block {pblk}"),
        }
    }
}
