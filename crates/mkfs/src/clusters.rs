//! The size of clusters, with the feature `bigalloc`.

use extant_disk::features::{FeatureSets, RoCompat};
use extant_disk::superblock::full_group_blocks;
use extant_units::BlockSize;

use crate::error::{Error, Result};

/// log2 of the blocks of a cluster, unless its size is chosen.
const DEFAULT_BITS: u32 = 4;
/// The largest cluster that mke2fs makes.
const MOST_BYTES: u64 = 1 << 29;
/// log2 of the bytes of a cluster from which on mke2fs makes groups a little smaller.
const LARGE_LOG: u32 = 27;

/// log2 of the blocks of a cluster: zero without `bigalloc`.
pub(crate) fn cluster_bits(
    bytes: Option<u64>,
    features: FeatureSets,
    block_size: BlockSize,
) -> Result<u32> {
    if !features.has_ro_compat(RoCompat::BIGALLOC) {
        return match bytes {
            Some(_) => Err(Error::Conflict("a size of clusters needs bigalloc")),
            None => Ok(0),
        };
    }
    let Some(bytes) = bytes else {
        return Ok(DEFAULT_BITS);
    };
    let least = block_size.bytes_u64().max(2048);
    if !bytes.is_power_of_two() || !(least..=MOST_BYTES).contains(&bytes) {
        let why = "it has to be a power of two, at least a block and 2048, at most 536870912";
        return Err(Error::bad("the size of a cluster", bytes, why));
    }
    Ok(bytes.ilog2() - block_size.log2())
}

/// Blocks of a full group: a bit of its bitmap is a cluster.
pub(crate) fn group_blocks(block_size: BlockSize, cluster_bits: u32) -> u64 {
    let mut clusters = full_group_blocks(block_size);
    if cluster_bits > 0 && block_size.log2() + cluster_bits >= LARGE_LOG {
        clusters = clusters.min((block_size.bytes_u64() - 1) * 8);
    }
    clusters << cluster_bits
}
