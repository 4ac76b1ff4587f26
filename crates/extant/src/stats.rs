//! The file system's own counters: what was done. [`crate::counters`] shows them with those of the layers below.
//!
//! Each only grows; reading them all is a snapshot of no particular moment.

use extant_pagecache::Counter;

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
    /// Names looked up in directories.
    lookups,
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
    /// Writes into holes whose place was chosen at once, because space was low, the mount delays nothing, or the data goes through the
    /// journal. On the per-block path, blocks.
    direct_allocations,
    /// Reads past the cache.
    direct_reads,
    /// Writes past the cache.
    direct_writes,
    /// Of both, those that had to go through the cache, or a part of them.
    direct_fallbacks,
    /// Of both, those that went straight from a queue of requests to the device.
    direct_straight,
    /// Of these, those whose range was locked beside the file's I/O tree.
    direct_posted,
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
