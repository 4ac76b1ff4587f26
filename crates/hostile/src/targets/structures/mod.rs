//! Every parser of the disk crate on any bytes, and what was parsed written back.
//!
//! Byte 0 chooses the parser, byte 1 how it is used; the rest is the structure, padded with zeros
//! where its size is fixed. Where a checksum would end it all at once, a bit of byte 1 has it made
//! right first.

mod attrs;
mod fixed;
mod log;
mod trees;

use extant_disk::csum::Crc32c;
use extant_units::BlockSize;

use super::Cost;
use crate::feed::Feed;

/// A seed of checksums like any other.
const SEED: Crc32c = Crc32c::from_raw(0x5eed_5eed);

pub(super) fn run(data: &[u8]) -> Cost {
    let mut feed = Feed::new(data);
    let (which, how) = (feed.u8(), feed.u8());
    match which % 16 {
        0 => fixed::superblock(how, &mut feed),
        1 => fixed::descriptor(how, &mut feed),
        2 | 3 => fixed::inode(how, &mut feed),
        4 => fixed::bitmap(how, &mut feed),
        5 | 6 => trees::extents(how, &mut feed),
        7 | 8 => trees::leaf(how, &mut feed),
        9 | 10 => trees::index(how, &mut feed),
        11 => attrs::xattrs(how, &mut feed),
        12 => attrs::acl(how, &mut feed),
        13 => fixed::orphans(how, &mut feed),
        14 => log::superblock(how, &mut feed),
        _ => log::blocks(how, &mut feed),
    }
    Cost::default()
}

/// The bytes that are left, as a block of `len`.
fn padded(feed: &mut Feed<'_>, len: usize) -> Vec<u8> {
    let mut block = feed.take(len).to_vec();
    block.resize(len, 0);
    block
}

/// One of the block sizes, small ones mostly.
fn block_size(how: u8) -> BlockSize {
    let log2 = [10, 10, 11, 12][usize::from(how & 3)];
    BlockSize::from_log2(log2).unwrap_or_else(|| unreachable!("1024 to 4096 are block sizes"))
}
