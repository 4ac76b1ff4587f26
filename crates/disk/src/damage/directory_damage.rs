//! Damage of a directory and of its index.

use core::fmt;

use extant_units::{Ino, Lblk, Pblk};

use crate::dirent::FileType;

damage! {
    /// An entry of a directory, or the directory as a whole.
    DirectoryDamage {
        NoBlock => "directory without a block",
        PastEnd => "past the end of the directory",
        Hole => "hole in the directory",
        HoleAt { block: u64 } => "directory with a hole at block {block}",
        NotAllocated => "new block is not allocated",
        RepeatedBlock { block: Pblk } =>
            "block {block} of the volume is in the directory a second time",
        OtherInode { found: Ino, expected: Ino } => "entry leads to inode {found}, not {expected}",
        Dot { ino: Ino } => "\".\" leads to inode {ino}",
        DotEnd { name: EntryName } => "\"{name}\" does not end with a zero",
        DotDotLength { bytes: usize } => "\"..\" of {bytes} bytes does not hide the index",
        NotText { name: EntryName } => "the name \"{name}\" is not UTF-8, as names must be here",
        RepeatedName { name: EntryName } => "the name \"{name}\" stands twice",
        ShortName { name: EntryName } => "the encrypted name \"{name}\" is too short",
        Unencrypted { name: EntryName, ino: Ino } =>
            "the encrypted name \"{name}\" leads to inode {ino}, which is not encrypted",
        OtherPolicy { name: EntryName, ino: Ino } =>
            "the encrypted name \"{name}\" leads to inode {ino} of another encryption policy",
        UnusedInode { name: EntryName, ino: Ino } =>
            "\"{name}\" leads to inode {ino}, which is not in use",
        InodeOnBadBlock { name: EntryName, ino: Ino } =>
            "\"{name}\" leads to inode {ino}, on a bad block",
        OwnDirectory { name: EntryName, ino: Ino } =>
            "\"{name}\" leads to the directory {ino} that holds it",
        Kind { name: EntryName, stored: u8, expected: FileType } =>
            "\"{name}\" says kind {stored}, its inode is {expected:?}",
    }
}

damage! {
    /// The index of a directory as a whole.
    IndexDamage {
        NoRoot => "index without a root",
        Circle => "index in a circle",
        BelowItself => "index node below itself",
        NoRoom => "index does not make room",
        HashVersion { version: u8 } => "index with hash version {version}",
        Target { block: Lblk } => "index entry leads to block {block}",
        MissingEntry => "index entry is missing",
        Hole { block: Lblk } => "the index leads to block {block}, which is a hole",
        TwoEntries => "two index entries lead to this block",
        NoEntry => "no index entry leads to this block",
        WrongLeaf { name: EntryName, hash: u32 } =>
            "\"{name}\" with hash {hash:#x} stands in the wrong leaf",
    }
}

/// Name of an entry, shown with escapes for what is not printable.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct EntryName(pub Box<[u8]>);

impl From<&[u8]> for EntryName {
    fn from(name: &[u8]) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}
