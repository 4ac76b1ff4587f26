//! Every parser of the disk crate, and that of contexts, on any bytes, and what was parsed written
//! back.
//!
//! Byte 0 chooses the parser, byte 1 how it is used; the rest is the structure, padded with zeros
//! where its size is fixed. Where a checksum would end it all at once, a bit of byte 1 has it made
//! right first.

mod attrs;
mod fixed;
mod journal_blocks;
mod parts;
mod trees;

use super::Cost;
use crate::feed::Feed;

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
        12 if how & 0x80 != 0 => attrs::context(&mut feed),
        12 => attrs::acl(how, &mut feed),
        13 => fixed::orphans(how, &mut feed),
        14 => journal_blocks::superblock(how, &mut feed),
        _ => journal_blocks::blocks(how, &mut feed),
    }
    Cost::default()
}
