//! The usage of the volume, as `statfs` reports it.

use extant_disk::quota::QuotaEntry;
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
            .total(layout.cluster_bits)
            .saturating_add(Blocks::new(layout.first_data_block.get()))
    };
    FsStat {
        block_size: exact_u32(layout.block_size.bytes_u64()),
        cluster_size: exact_u32(layout.cluster_bytes()),
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

/// `whole`, cut to the limits of a project: the least that there is.
pub(crate) fn of_project(whole: FsStat, project: &QuotaEntry) -> FsStat {
    let (limits, usage) = (project.limits, project.usage);
    let limit = |soft: u64, hard: u64| match (soft, hard) {
        (0, other) | (other, 0) => other,
        (soft, hard) => soft.min(hard),
    };
    let blocks = limit(limits.bytes_soft, limits.bytes_hard) / u64::from(whole.block_size);
    let inodes = limit(limits.inodes_soft, limits.inodes_hard);
    let mut part = whole;
    if blocks != 0 && blocks < whole.blocks {
        let used = usage.bytes / u64::from(whole.block_size);
        part.blocks = blocks;
        part.blocks_free = blocks.saturating_sub(used);
        part.blocks_available = part.blocks_free;
    }
    if inodes != 0 && inodes < whole.inodes {
        part.inodes = inodes;
        part.inodes_free = inodes.saturating_sub(usage.inodes);
    }
    part
}
