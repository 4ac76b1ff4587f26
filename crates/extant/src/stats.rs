//! Counters: what was done, for proofs and for `extant stats`.
//!
//! Each only grows; reading them all is a snapshot of no particular moment.

use extant_pagecache::Counter;

use crate::file;
use crate::fs::Fs;

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// The counters of a mounted file system.
        #[derive(Default, Debug)]
        pub(crate) struct Stats {
            $($(#[$meta])* pub(crate) $name: Counter,)*
        }

        impl Stats {
            /// Every counter by name, with its value now.
            pub(crate) fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.get())),*]
            }
        }
    };
}

counters! {
    /// Calls of the block allocator.
    alloc_calls,
    /// Blocks allocated.
    alloc_blocks,
    /// Allocations that began exactly at their goal.
    alloc_goal_hits,
    /// Groups whose free map was searched.
    alloc_groups_searched,
    /// Block bitmaps loaded.
    bitmap_loads,
    /// Blocks of files that got another place.
    moved_blocks,
    /// Blocks freed.
    freed_blocks,
    /// Freed blocks that the device was told of after their commit (`discard`).
    discarded_blocks,
    /// Free blocks that the device was told of by trimming.
    trimmed_blocks,
    /// Inodes allocated.
    inode_allocs,
    /// Inodes freed.
    inode_frees,
    /// Inodes read from the inode table.
    inode_loads,
    /// Inodes encoded into the inode table, under a handle.
    inode_dirty_calls,
    /// Unused inodes that left the cache.
    inode_evictions,
    /// Inodes without a name that were deleted.
    inode_deletions,
    /// Times that were moved without a handle, to be stored later.
    times_deferred,
    /// Attribute blocks that were shared instead of written.
    xattr_blocks_shared,
    /// Inodes entered as orphans.
    orphans_added,
    /// Of those, in the list because the orphan file was full or missing.
    orphans_listed,
    /// Orphans finished at mount.
    orphans_processed,
    /// Mappings that the extent status tree answered.
    es_hits,
    /// Mappings that had to be looked up on disk.
    es_misses,
    /// Extents entered into trees.
    extents_inserted,
    /// Extents removed from trees, parts of extents included.
    extents_removed,
    /// Parts of extents turned from unwritten to written.
    extents_converted,
    /// Leaves of extent trees whose extents moved in the file.
    leaves_shifted,
    /// Range operations that no one transaction could hold.
    stepwise_ranges,
    /// Writes into holes whose place was chosen at once, because space was low or the mount delays nothing.
    direct_allocations,
    /// Reads past the cache.
    direct_reads,
    /// Writes past the cache.
    direct_writes,
    /// Of both, those that had to go through the cache, or a part of them.
    direct_fallbacks,
    /// Of both, those that went straight from a queue of requests to the device.
    direct_straight,
    /// Reads into the cache that waited for direct writes.
    direct_fill_waits,
    /// Writebacks begun because promises came close to what is free.
    low_space_flushes,
    /// Commits waited for so that freed blocks could be given out again.
    space_commits,
    /// Waits for the lock of a file that somebody else writes or truncates.
    lock_waits,
    /// Waits for a part of a file that somebody else changes.
    range_lock_waits,
    /// Bytes of file data that commits waited for.
    ordered_bytes,
    /// Faults reported.
    faults,
}

/// The counters of every layer by name, as of now: the file system's, the journal's, the buffered path's, the page cache's.
/// Where a claim of `docs/SEEDS.md` is about one, it has the name that it has there.
pub(crate) fn snapshot(fs: &Fs) -> Vec<(&'static str, u64)> {
    macro_rules! add {
        ($to:ident, $from:ident: $($name:ident $(= $field:ident)?)*) => {
            $to.extend([$((stringify!($name), add!(@ $from $name $($field)?))),*])
        };
        (@ $from:ident $name:ident) => { $from.$name };
        (@ $from:ident $name:ident $field:ident) => { $from.$field };
    }
    let mut all = fs.stats.all();
    let journal = fs.journal.stats();
    add!(all, journal: handles commits commit_waits blocks_logged log_blocks_written revokes blocks_checkpointed
        tail_updates space_waits cow_copies credit_overflow = credit_overflows
        block_cache_hits = cache_hits block_cache_misses = cache_misses block_cache_evictions = cache_evictions);
    let data = fs.files.stats.snapshot();
    add!(all, data: begin_calls = begins overwrites stale_retries edge_reads fill_reads fill_bytes passed_reads passed_writes
        map_calls ioends wb_bytes = written_bytes merges failed_ioends);
    let buffers = fs.files.buffers.snapshot();
    add!(all, buffers: buffer_begins = begins begin_visits commit_visits last_block_visits writeback_visits
        cleanup_visits block_maps buffer_edge_reads = edge_reads rings extent_maps credit_restarts = restarts);
    let trees = file::tree_stats(fs);
    add!(all, trees: trim_first trim_last prealloc_allocs wakes wakes_skipped tree_sets = sets tree_clears = clears
        tree_waits = lock_waits);
    let pages = fs.files.pages.stats();
    add!(all, pages: page_cache_budget_bytes = budget_bytes page_cache_used_bytes = used_bytes
        page_cache_held_bytes = held_bytes dirty_bytes writeback_bytes evictions = reclaimed eviction_scans = reclaim_scans
        throttle_waits = throttled memory_waits flusher_passes stable_waits);
    all.extend(FOLIO_ORDERS.iter().copied().zip(pages.folios_by_order));
    all.extend(fs.dev.counters());
    all.push(("reserved", fs.alloc.counts.promised().get()));
    all.push(("blocks_promised", fs.alloc.counts.promised().get()));
    all.push(("reservation_leaks", fs.alloc.counts.leaked()));
    all
}

/// How many folios of each order were made.
const FOLIO_ORDERS: [&str; 10] = [
    "folio_order_0",
    "folio_order_1",
    "folio_order_2",
    "folio_order_3",
    "folio_order_4",
    "folio_order_5",
    "folio_order_6",
    "folio_order_7",
    "folio_order_8",
    "folio_order_9",
];
