//! Damage of the list of orphans and of the orphan file.

use extant_units::{Ino, Pblk};

use super::OrphanError;

damage! {
    /// The list of orphans, or the orphan file.
    OrphanDamage {
        NotListed { ino: Ino } => "inode {ino} is not on the list",
        ListTarget { ino: Ino } => "the list leads to inode {ino}",
        ListCircle { ino: Ino } => "the list meets inode {ino} twice",
        NoFile => "the feature orphan_file without an orphan file",
        FileSize { blocks: u64 } => "orphan file of {blocks} blocks",
        Hole => "hole in the orphan file",
        NoBlock => "no such orphan block",
        Block { block: Pblk, error: OrphanError } => "block {block}: {error}",
        SlotWithoutFeature { slot: usize, block: Pblk } =>
            "slot {slot} of block {block} is taken without orphan_present",
        Slot { slot: usize, block: Pblk, ino: Ino } =>
            "slot {slot} of block {block} holds inode {ino}",
        Repeated { ino: Ino } => "inode {ino} stands there twice",
        Waiting { inodes: usize } =>
            "inodes that the next mount deletes or truncates: {inodes}",
    }
}
