//! Damage of the map of a file.

use extant_units::{Lblk, Pblk};

damage! {
    /// The map of a file, of either kind, against the volume.
    MapDamage {
        Outside { first: Pblk, blocks: u32 } =>
            "{blocks} blocks at {first} lie outside of the file system",
        Shared { block: Pblk } => "block {block} has another owner as well",
        Cluster { lblk: Lblk, first: Pblk } =>
            "the file's block {lblk} is block {first}, which is elsewhere in a cluster, or in \
             another cluster than those before it",
        ClusterTwice { lblk: Lblk, first: Pblk } =>
            "the file's block {lblk} is block {first}, in the cluster of an earlier part of the \
             file",
        NoClusters => "a block map, where files have clusters and need extents",
        PastDevice => "an extent beyond any device",
        PastLargestFile => "the block map reaches past the largest file",
        PastVolume => "the file maps more blocks than the volume has",
        PastCount => "block map of more blocks than the inode counts, or the volume has",
        MoreData => "its extents have more data than the volume has blocks",
        RootCapacity { entries: u16 } => "extent root for {entries} entries only",
        NodeCapacity { entries: u16 } => "extent node for {entries} entries only",
        RootPointer { pointer: u32 } =>
            "block map names block {pointer}, outside of what files may use",
        Pointer { at: Pblk, pointer: u32 } =>
            "at block {at}: block map names block {pointer}, outside of what files may use",
        WidePointer => "a block number of more than 32 bits for a block map",
        LostRoom => "a block map lost the room that was made in it",
        NotWritable => "a block that cannot be written to",
        DelayedMapped => "a delayed block has become mapped",
        NothingToExchange => "no extent where blocks were to be exchanged",
    }
}
