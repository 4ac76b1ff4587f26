//! The file system's own counters. [`crate::api::inspect::layer_counters`] shows them with those of
//! the layers below.
//!
//! Each only grows. Reading them all is a snapshot of no particular moment.

use extant_counter::Counter;

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
    /// Blocks of files that were moved to another location.
    moved_blocks,
    /// Blocks freed.
    freed_blocks,
    /// Freed blocks that the device was told of after their commit (`discard`).
    discarded_blocks,
    /// Free blocks that were discarded by trimming.
    trimmed_blocks,
    /// Names looked up in directories.
    lookups,
    /// Names found by the cache of names.
    name_hits,
    /// Names that the cache of names knew to be missing.
    name_negative_hits,
    /// Names searched for in a directory's blocks, as the cache of names did not have them.
    name_misses,
    /// Names that left the cache of names for others.
    name_evictions,
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
    /// Unlinked inodes that were evicted.
    inode_deletions,
    /// Time updates without a handle, to be stored later.
    times_deferred,
    /// Attribute blocks that were shared instead of written.
    xattr_blocks_shared,
    /// Values of attributes in inodes of their own that were shared instead of written.
    xattr_values_shared,
    /// Inodes entered as orphans.
    orphans_added,
    /// Of those, in the list because the orphan file was full or missing.
    orphans_listed,
    /// Orphans finished at mount.
    orphans_processed,
    /// Lookups that the extent status tree answered.
    es_hits,
    /// Lookups that had to read the map on disk.
    es_misses,
    /// Extents inserted into trees.
    extents_inserted,
    /// Extents removed from trees, parts of extents included.
    extents_removed,
    /// Parts of extents converted from unwritten to written.
    extents_converted,
    /// Leaves of extent trees whose extents were shifted in the file.
    leaves_shifted,
    /// Range operations that no single transaction could hold.
    stepwise_ranges,
    /// Writes into holes that allocated at once, because space was low, the mount delays nothing,
    /// or the data goes through the journal. On the buffer-head path, blocks.
    direct_allocations,
    /// Reads past the cache.
    direct_reads,
    /// Writes past the cache.
    direct_writes,
    /// Of both, those that went through the cache, in whole or in part.
    direct_fallbacks,
    /// Of both, those on the fast path from a queue of requests to the device.
    direct_fast_path,
    /// Of these, those whose range a lock slot locked.
    direct_slots,
    /// Reads into the cache that waited for direct writes.
    direct_fill_waits,
    /// Writebacks started because reservations came close to the free space.
    low_space_flushes,
    /// Commits waited for so that freed blocks could be handed out again.
    space_commits,
    /// Waits for the lock of a file that another thread writes or truncates.
    lock_waits,
    /// Waits for a part of a file that another thread changes.
    range_lock_waits,
    /// Bytes of file data that commits waited for.
    ordered_bytes,
    /// Inodes whose data, or whose entries, moved from inside of them to a block.
    inline_left,
    /// Faults reported.
    faults,
}
