//! Damage of an inode's fields.

use extant_units::Pblk;

use super::InodeError;

damage! {
    /// A field of an inode that contradicts another one, or the volume.
    InodeDamage {
        Missing => "no such inode",
        NotForNames => "not an inode that a name may lead to",
        Mode { mode: u16 } => "unknown file type in mode {mode:#o}",
        ForeignFlags => "flags of a feature that the file system does not have",
        FlagWithoutFeature { flag: &'static str } => "the flag \"{flag}\" without the feature",
        FlagOfDirectory { flag: &'static str } => "the flag \"{flag}\", but it is no directory",
        Protected => "protected from changes, but it is neither a file nor a directory",
        ProtectedSpecial =>
            "a special file that is protected from changes, and more than a number in it",
        SpecialSize { size: u64 } => "a special file with a size of {size}",
        SpecialExtents => "a special file with an extent tree",
        NotZero { field: &'static str, value: u32 } => "{field} is {value}, should be zero",
        DeletionTime { dtime: u32 } => "in use, but with a time of deletion, {dtime}",
        NoDeletionTime => "deleted, but without a time of deletion",
        Deleted { error: InodeError } => "deleted: {error}",
        InUse => "to be a new one, but in use",
        MarkedFree => "marked free in the bitmap, but in use",
        AttributesOutside { block: Pblk } =>
            "attribute block {block} lies outside of the data area",
        AttributesWithoutFeature { block: Pblk } =>
            "i_file_acl is {block} without the feature ext_attr",
        Sectors { stored: u64, owned: u64 } => "counts {stored} sectors, owns {owned}",
        SizeWithinBlocks { size: u64, written: u64 } =>
            "size {size} with written blocks up to {written}",
        SizePastMap { size: u64, limit: u64 } =>
            "size {size}, more than its map can hold ({limit})",
        SizePastLastBlock => "size past the largest block",
        DirectoryTooLarge => "directory larger than the volume, or than any may be",
        DirectorySize { size: u64, blocks: u64 } =>
            "directory of {size} bytes with blocks up to {blocks}",
        DirectoryUnwritten => "directory with unwritten blocks",
        NoEncryptionContext => "the flag \"encrypt\", without an encryption context",
        EncryptionContext { version: u8, bytes: usize } =>
            "an encryption context of version {version} with {bytes} bytes",
        EncryptionPolicy { contents: u8, names: u8, flags: u8 } =>
            "an unknown encryption policy: modes {contents} and {names}, flags {flags:#x}",
        InlineExtents => "data inside of it, and an extent tree",
        InlineIndex => "entries inside of it, and an index",
        NoInlineAttribute => "data inside of it, without the attribute for more",
        PastInlineData => "longer than the data inside of it",
        SymlinkWithoutBlock => "symbolic link without a block",
        SymlinkTarget => "symbolic link with an empty target or a NUL in it",
        SymlinkTargetSize { size: u64 } => "symbolic link with a bad target of {size} bytes",
        SymlinkBlocks { blocks: u64 } =>
            "symbolic link with {blocks} blocks, or with ones of its map beside one",
        SymlinkTargetNul { size: u64 } =>
            "symbolic link with a NUL in a target of {size} bytes inside of it",
        SymlinkPastInode => "symbolic link longer than the inode holds",
        SymlinkPastBlock => "symbolic link of a size that one block does not hold",
        LoggedOtherwise =>
            "a fast commit has a record of it with another generation, kind, map or attribute \
             block",
        FreesReserved => "freeing a reserved inode",
        FreesMissing => "freeing an inode that does not exist",
        FreesUnused => "freeing an inode of a group that has none in use",
        FreesFree => "freeing an inode that is free already",
    }
}
