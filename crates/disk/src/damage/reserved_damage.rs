//! Damage of inodes with fixed numbers or an internal use.

use extant_units::Pblk;

damage! {
    /// An inode with a fixed number or an internal use.
    ReservedDamage {
        NotEmpty => "not in use, but it holds something",
        Mode { mode: u16 } => "reserved, but with mode {mode:#o}",
        BootLoader => "the boot loader's inode is a directory",
        BadBlocks => "the list of bad blocks has an owner, links, attributes or a mode",
        BadBlocksInTables { blocks: usize } =>
            "bad blocks in inode tables, whose inodes are not read: {blocks}",
        JournalMode { mode: u16 } => "the journal has mode {mode:#o}",
        JournalMissing => "the journal's inode does not exist",
        JournalUnused => "the journal's inode is not in use",
        JournalSize { size: u64 } => "a journal of {size} bytes",
        OrphanFileMode { mode: u16 } => "the orphan file has mode {mode:#o}",
        QuotaMode { mode: u16 } => "a file of quotas has mode {mode:#o}",
        NotMapped { block: u64 } => "block {block} of this internal file is not mapped",
        RepeatedBlock { block: Pblk } =>
            "block {block} of the volume is in this internal file twice",
        ResizeMode => "the resize inode is no regular file, or has no link",
        ResizeAttributes => "the resize inode has a block of attributes",
        ResizeMap => "the resize inode maps blocks outside of its double indirect block",
        ResizeOutside => "the resize inode leads nowhere",
        ResizePointer { expected: u64, found: u64 } =>
            "the resize inode does not lead to block {expected}, but to {found}",
        ResizeCopies { block: u64 } =>
            "block {block} of the resize inode does not lead to its counterparts in other groups",
    }
}
