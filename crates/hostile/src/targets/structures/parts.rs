//! Parts that the targets for structures share: blocks, their sizes and a seed.

use extant_disk::csum::Crc32c;
use extant_units::BlockSize;

use crate::feed::Feed;

/// A seed of checksums like any other.
pub(super) const SEED: Crc32c = Crc32c::from_raw(0x5eed_5eed);

/// The bytes that are left, as a block of `len`.
pub(super) fn padded(feed: &mut Feed<'_>, len: usize) -> Vec<u8> {
    let mut block = feed.take(len).to_vec();
    block.resize(len, 0);
    block
}

/// One of the block sizes, small ones mostly.
pub(super) fn block_size(how: u8) -> BlockSize {
    let log2 = [10, 10, 11, 12][usize::from(how & 3)];
    BlockSize::from_log2(log2).unwrap_or_else(|| unreachable!("1024 to 4096 are block sizes"))
}
