//! Damage of a group's descriptor against the volume.

use core::fmt;

use extant_units::Pblk;

/// Part of a group that lies in blocks of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupPart {
    /// The superblock or its copy, the descriptors, and their reserve.
    Head,
    /// The block bitmap.
    BlockBitmap,
    /// The inode bitmap.
    InodeBitmap,
    /// The inode table.
    InodeTable,
}

impl fmt::Display for GroupPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Head => "superblock and descriptors",
            Self::BlockBitmap => "block bitmap",
            Self::InodeBitmap => "inode bitmap",
            Self::InodeTable => "inode table",
        })
    }
}

damage! {
    /// A group: what its descriptor says, against the volume.
    GroupDamage {
        Missing => "no such group",
        Outside { part: GroupPart, start: Pblk } =>
            "the {part} at block {start} lies outside of the volume",
        Elsewhere { part: GroupPart, start: Pblk } =>
            "the {part} at block {start} lies in another group, without flex_bg",
        Overlap { part: GroupPart, block: Pblk } =>
            "{part} overlaps other metadata at block {block}",
        SharedBlock { block: Pblk } =>
            "block {block} belongs to two parts of the format (bitmaps, inode tables, \
             descriptors, journal)",
        FreeBlocks { stored: u32, found: u32 } => "{stored} free blocks, found {found}",
        FreeInodes { stored: u32, found: u32 } => "{stored} free inodes, found {found}",
        Directories { stored: u32, found: u32 } => "{stored} directories, found {found}",
        TooManyFreeBlocks { free: u32, blocks: u32 } => "{free} of {blocks} blocks free",
        TooManyFreeInodes { free: u32, inodes: u32 } =>
            "{free} free inodes, but only {inodes} inodes",
        TooManyDirectories { dirs: u32, inodes: u32 } =>
            "{dirs} directories, but only {inodes} inodes",
        TooManyUnused { unused: u32, inodes: u32 } =>
            "{unused} never used inodes, but only {inodes} inodes",
        NeverWritten => "marked as never written, for which a feature is missing",
    }
}
