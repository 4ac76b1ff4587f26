//! The usage of the volume, as `statfs` reports it.

use extant_units::{Blocks, exact_u32};

use crate::types::FsStat;
use crate::volume::Fs;

/// Longest name in a directory.
const NAME_MAX: u32 = 255;

/// Block and inode totals. Space reserved for delayed allocation counts as used. `blocks` excludes
/// the format's own blocks, unless mounted with `minixdf`. Reads counters only.
pub(crate) fn statfs(fs: &Fs) -> FsStat {
    let layout = &fs.layout;
    let counts = &fs.alloc.counts;
    let overhead = if fs.options.minixdf() {
        Blocks::ZERO
    } else {
        // Blocks in front of the first group belong to no zone.
        fs.zones
            .total()
            .saturating_add(Blocks::new(layout.first_data_block.get()))
    };
    FsStat {
        block_size: exact_u32(layout.block_size.bytes_u64()),
        blocks: Blocks::new(layout.end().get())
            .saturating_sub(overhead)
            .get(),
        blocks_free: counts.available().get(),
        blocks_available: counts.available_to_users().get(),
        inodes: u64::from(layout.inodes_count()),
        inodes_free: counts.free_inodes(),
        name_max: NAME_MAX,
        uuid: layout.uuid,
    }
}
