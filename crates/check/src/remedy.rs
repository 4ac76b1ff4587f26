//! Meaning of a finding for a repair.
//!
//! The check writes nothing. It says what the right value is where the rest of the volume leaves
//! one only; a repair then need not walk the volume again.

use std::sync::Arc;

use extant_disk::group_desc::GroupFlags;
use extant_disk::htree::IndexKind;
use extant_disk::inode::InodeFlags;
use extant_disk::location::Location;
use extant_disk::quota::{QuotaEntry, QuotaKind, QuotaTimes, QuotaUsage};
use extant_units::{Group, Ino, Pblk};

/// Answer to a finding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// This makes it right, if nothing that it relies on is in doubt.
    Repair(Repair),
    /// A choice that the volume does not answer: something is lost either way.
    Left(Doubt),
}

/// Facts that cannot be relied on while a finding stands.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Doubt {
    /// Nothing else.
    Nothing,
    /// Which inodes have names: an entry may be unreadable.
    Names,
    /// Which blocks and inodes are in use, and so names too.
    Maps,
}

impl Doubt {
    /// Returns the doubt that damage at `place` leaves, as far as is known without its kind.
    pub(crate) fn of(place: &Location) -> Self {
        match place {
            Location::BlockBitmap(_) | Location::InodeBitmap(_) | Location::Journal => {
                Self::Nothing
            }
            Location::DirBlock(..) => Self::Names,
            Location::Superblock
            | Location::GroupDesc(_)
            | Location::Inode(_)
            | Location::ExtentNode(..)
            | Location::XattrBlock(..)
            | Location::Orphans
            | Location::Block(_) => Self::Maps,
        }
    }
}

/// A change that leaves one thing as the rest of the volume says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Repair {
    /// The totals of the superblock.
    Totals {
        /// Free blocks.
        blocks: u64,
        /// Free inodes.
        inodes: u32,
    },
    /// The checksum of a descriptor. Its flags, which are given here, and counts that exclude parts
    /// of the group from the check are not relied on: they are cleared.
    Descriptor(Group, GroupFlags),
    /// Flags that say that parts of a group were never written, for which the feature is missing.
    UninitFlags(Group),
    /// The counts of a descriptor.
    Counts(Group, GroupCounts),
    /// The block bitmap of a group: the whole block. The group was written.
    BlockBitmap(Group, Arc<[u8]>),
    /// The inode bitmap of a group: the whole block.
    InodeBitmap(Group, Arc<[u8]>),
    /// The checksum of an inode.
    InodeChecksum(Ino),
    /// The sectors that an inode counts.
    Sectors(Ino, u64),
    /// The flags of an inode.
    Flags(Ino, InodeFlags),
    /// The link count of an inode.
    Links(Ino, u16),
    /// The checksum of a node of an inode's extent tree.
    ExtentChecksum(Ino, Pblk),
    /// The checksum of a block of a directory: of an index block, if it is one.
    DirChecksum(DirPlace),
    /// The kind of file that an entry records.
    EntryKind {
        /// The block of the directory.
        block: DirPlace,
        /// The byte in the block.
        at: usize,
        /// Its right value.
        kind: u8,
        /// The inode that the entry leads to.
        target: Ino,
    },
    /// The inode that ".." leads to.
    Parent {
        /// The first block of the directory.
        block: DirPlace,
        /// The directory that holds its entry.
        parent: Ino,
    },
    /// A name in lost+found for an inode that has none.
    Reattach {
        /// The inode.
        ino: Ino,
        /// Its kind, as an entry records it.
        kind: u8,
        /// The blocks of lost+found, one of which may have room.
        into: Arc<[DirPlace]>,
    },
    /// The reference count of an attribute block.
    XattrReferences(Pblk, u32),
    /// The checksum of an attribute block.
    XattrChecksum(Pblk),
    /// The number of attributes that have the value in an inode.
    ValueReferences(Ino, u64),
    /// The usage in an entry of a file of quotas.
    QuotaUsage {
        /// The block on the device.
        block: Pblk,
        /// The byte in there.
        at: usize,
        /// The id that the entry is of.
        id: u32,
        /// Its right usage.
        usage: QuotaUsage,
    },
    /// A whole file of quotas.
    QuotaFile(Arc<QuotaContent>),
    /// The error that the journal remembers: nothing is left of its consequences.
    JournalError,
    /// The copies of the superblock at the start of these groups.
    SuperblockCopies(Arc<[Group]>),
    /// The copies of the descriptors behind those of the superblock in these groups.
    DescriptorCopies(Arc<[Group]>),
}

/// A block of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirPlace {
    /// The directory.
    pub dir: Ino,
    /// The block on the device.
    pub pblk: Pblk,
    /// True if it is a block of the index.
    pub index: Option<IndexKind>,
}

/// The content of a file of quotas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QuotaContent {
    /// The kind.
    pub kind: QuotaKind,
    /// The inode of the file.
    pub ino: Ino,
    /// Grace times.
    pub times: QuotaTimes,
    /// Every id that uses something or has limits, in order.
    pub entries: Vec<QuotaEntry>,
}

/// The counts of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupCounts {
    /// Free blocks.
    pub blocks: u32,
    /// Free inodes.
    pub inodes: u32,
    /// Directories.
    pub dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub unused: u32,
}
