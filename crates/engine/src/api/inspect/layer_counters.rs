//! The counters of every layer by name, for tests and for `extant stats`.
//!
//! Reading them is a snapshot of no particular moment.

use crate::file;
use crate::map;
use crate::volume::Fs;

/// The counters of every layer by name, as of now: the file system's, the journal's, the buffered
/// path's and the page cache's. A counter that `docs/SEEDS.md` cites has the name that it has
/// there.
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
    add!(all, journal:
        handles commits commit_waits own_commits
        fast_commits fast_blocks fast_untold fast_no_room blocks_logged log_blocks_written revokes
        blocks_checkpointed tail_updates space_waits cow_copies
        credit_overflow = credit_overflows
        block_cache_hits = cache_hits block_cache_misses = cache_misses
        block_cache_evictions = cache_evictions);
    let data = fs.files.stats.snapshot();
    add!(all, data:
        begin_calls = begins overwrites stale_retries edge_reads fill_reads fill_bytes
        uncached_reads uncached_writes map_calls ioends wb_bytes = written_bytes merges
        joint_files failed_ioends);
    let buffers = fs.files.buffers.snapshot();
    add!(all, buffers:
        buffer_begins = begins begin_visits commit_visits last_block_visits writeback_visits
        cleanup_visits block_maps buffer_edge_reads = edge_reads rings extent_maps
        credit_restarts = restarts);
    let trees = file::range_lock_stats(fs);
    add!(all, trees:
        trim_first trim_last prealloc_allocs wakes wakes_skipped tree_sets = sets
        tree_clears = clears tree_waits = lock_waits);
    let delayed = map::delayed_stats(fs);
    add!(all, delayed:
        delalloc_sets = sets delalloc_clears = clears delalloc_trim_first = trim_first
        delalloc_trim_last = trim_last delalloc_splits = splits delalloc_merges = merges
        delalloc_prealloc_allocs = prealloc_allocs);
    let pages = fs.files.pages.stats();
    add!(all, pages:
        page_cache_budget_bytes = budget_bytes page_cache_used_bytes = used_bytes
        page_cache_held_bytes = held_bytes dirty_bytes writeback_bytes evictions = reclaimed
        eviction_scans = reclaim_scans throttle_waits = throttled memory_waits flusher_passes
        stable_waits);
    all.extend(FOLIO_ORDERS.iter().copied().zip(pages.folios_by_order));
    all.extend(fs.dev.counters());
    all.push(("reserved", fs.alloc.counts.reserved_blocks().get()));
    all.push(("reservation_leaks", fs.alloc.counts.leaked()));
    all
}

/// The number of folios of each order that were made.
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
