//! Damage of the superblock against the volume.

use extant_units::{Group, Ino, Pblk};

damage! {
    /// A field of the superblock that contradicts another one, or the volume.
    SuperblockDamage {
        TooShort => "the block is too short",
        DescriptorTable => "its descriptor table is shorter than its groups need",
        MmpOutside { block: Pblk } =>
            "the block of multiple mount protection, {block}, lies outside",
        MmpOverlap { block: Pblk } =>
            "the block of multiple mount protection overlaps other metadata at block {block}",
        ReservedBlocks { reserved: u64 } => "{reserved} reserved blocks, more than half of all",
        ClustersPerGroup { clusters: u32, blocks: u32 } =>
            "{clusters} clusters per group, {blocks} blocks",
        DescriptorSize { bytes: u16 } => "descriptors of {bytes} bytes",
        FlexGroups { log2: u8 } => "2^{log2} groups per flex group",
        WideWithoutExtents => "64bit without extent",
        SpreadWithReserve => "meta_bg together with resize_inode",
        DescriptorReserve { blocks: u32 } =>
            "{blocks} blocks reserved for descriptors without resize_inode",
        JournalWithoutFeature => "names a journal without the feature",
        RecoveryWithoutJournal => "waits for a recovery without a journal",
        ExternalJournal => "names an external journal beside its own",
        NoJournalInode => "names no inode for its journal",
        QuotaWithoutFeature { ino: Ino } => "names inode {ino} for quotas without the feature",
        OrphanFileWithoutFeature { ino: Ino } =>
            "names inode {ino} for orphans without the feature",
        FreeBlocks { stored: u64, found: u64 } =>
            "{stored} free blocks, found {found}: the next mount counts anew",
        FreeInodes { stored: u64, found: u64 } =>
            "{stored} free inodes, found {found}: the next mount counts anew",
        SuperblockCopies { unusable: usize, copies: u64, first: Group } =>
            "{unusable} of {copies} copies of the superblock cannot be used, the first in group \
             {first}: only a repair would read them",
        DescriptorCopies { unusable: usize, copies: u64, first: Group } =>
            "{unusable} of {copies} copies of the descriptors cannot be used, the first in group \
             {first}: only a repair would read them",
        MarkedWithErrors => "marked as having errors",
        NotMarkedClean => "not marked as clean",
        ErrorRecord { errors: u32 } => "{errors} errors on record",
        EmptyRecovery => "marked as waiting for a recovery, but the log is empty",
        Restored { offset: u64 } => "restored from the copy at byte {offset}",
    }
}
