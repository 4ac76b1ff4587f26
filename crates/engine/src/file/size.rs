//! Sizes of files, and the blocks that bytes lie in.

use extant_sync::atomic::Ordering;

use extant_jbd2::Handle;
use extant_units::{Lblk, Pos, at_most_u32};

use crate::file::range_lock::HoldsSize;
use crate::map;
use crate::state::inode::Inode;
use crate::types::error::Result;
use crate::volume::Fs;

/// The largest size of a file with any kind of map: 2^32 - 1 blocks, or as many as its count of
/// sectors can express.
pub(crate) fn max_size_of_any_map(fs: &Fs) -> u64 {
    map::most_blocks_of_any(fs) * fs.layout.block_size.bytes_u64()
}

/// The largest size of `inode`, by its kind of map.
pub(crate) fn max_size(fs: &Fs, inode: &Inode) -> u64 {
    map::most_blocks(fs, inode) * fs.layout.block_size.bytes_u64()
}

/// Sets both sizes.
///
/// # Panics
/// `held` is of another file: a mistake of the program. Under a handle, it stops the journal.
pub(super) fn set_sizes(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    size: u64,
    held: &impl HoldsSize,
) -> Result<()> {
    assert!(
        held.is_of(inode),
        "the size of inode {} is not held",
        inode.ino
    );
    // A damaged image may have larger files, which get shorter.
    debug_assert!(
        size <= max_size(fs, inode).max(inode.size()),
        "{size} bytes do not fit the map"
    );
    inode.update(fs, h, |core| {
        core.disk_size = size;
        inode.size.store(size, Ordering::Release);
    })
}

/// The block that holds byte `pos`, and the number of blocks that `len` bytes from there touch: at
/// least 1, and no more than there are block numbers behind the first. `None` if `pos` lies past
/// the last block number.
pub(super) fn block_span(fs: &Fs, pos: Pos, len: u64) -> Option<(Lblk, u32)> {
    let bs = fs.layout.block_size;
    let first = bs.lblk(pos)?;
    let inside = bs.offset_in_block(pos) as u64;
    let count = bs.blocks_for(inside.saturating_add(len)).get();
    let left = u64::from(u32::MAX - first.get());
    Some((first, at_most_u32(count.min(left).max(1))))
}
