//! Damage of a block number.

use extant_units::{Blocks, Pblk};

damage! {
    /// A block number that no structure may have, or a block that is freed wrongly.
    BlockDamage {
        Missing => "no such block",
        PastVolume => "past the end of the file system",
        PastDevice { block: Pblk, device: Blocks } =>
            "block {block} lies past the end of the device of {device} blocks",
        FreesOutside { blocks: Blocks } =>
            "freeing {blocks} blocks that do not lie within the volume",
        FreesFormat { blocks: Blocks } =>
            "freeing {blocks} blocks, some of which belong to the format itself",
        HostUses => "another host uses the volume, or it was not unmounted",
    }
}
