//! The workloads, by name. A new one joins by adding a line.

mod data;
mod direct;
mod directories;
mod journal;
mod metadata;
mod names;
mod ranges;
mod sealing;

use crate::run::Run;

/// Something done to a volume while its device is recorded.
pub(crate) struct Workload {
    pub(crate) name: &'static str,
    /// The setups of a short round. A soak uses them all.
    pub(crate) setups: &'static [&'static str],
    pub(crate) run: fn(&mut Run),
    /// The device takes its time, so that threads meet.
    pub(crate) slow: bool,
}

const fn on(name: &'static str, run: fn(&mut Run), setups: &'static [&'static str]) -> Workload {
    Workload {
        name,
        setups,
        run,
        slow: false,
    }
}

impl Workload {
    const fn slow(self) -> Self {
        Self { slow: true, ..self }
    }
}

/// Every workload.
#[rustfmt::skip]
pub(crate) const WORKLOADS: &[Workload] = &[
    on("metadata_storm", metadata::storm, &[
        "tiny_journal", "no_checksums", "old_checksums", "no_flex", "ext3", "64k",
        "inside_4k", "fast_small_area", "external",
    ]),
    on("attributes", metadata::attributes, &[
        "1k", "old_checksums", "64k", "inside_inodes", "fast_1k",
    ]),
    on("owners", metadata::owners, &[
        "counted", "counted_each_handle", "counted_inside", "counted_16k",
    ]),
    on("long_values", metadata::long_values, &["long_values", "long_values_each_handle"]),
    on("appends", data::appends, &[
        "4k", "small_folios", "data_writeback", "buffer_heads", "ordered", "ordered_at_once",
        "unordered", "journalled_4k", "ext3", "block_maps_4k", "ext3_at_once", "8k",
        "16k_buffer_heads", "32k_journalled", "64k", "64k_block_maps", "inside_inodes",
        "inside_4k", "inside_block_maps", "clusters", "fast_4k", "fast_small_area", "encrypted",
        "inside_64k", "external_4k", "external_journalled", "external_fast",
    ]),
    on("overwrites", data::overwrites, &[
        "4k", "1k", "journalled", "unordered_at_once", "ext3_at_once", "ext3_unordered",
        "32k_ordered", "64k",
        "inside_4k", "clusters_each_handle", "fast_4k",
    ]),
    on("handed_over", data::handed_over, &["4k", "1k", "64k", "each_handle"]),
    on("direct_overwrites", direct::overwrites, &[
        "4k", "1k", "buffer_heads", "journalled", "ext3", "8k", "64k", "32k_journalled",
    ]),
    on("direct_growth", direct::growth, &[
        "1k", "4k", "small_folios", "ordered", "journalled_4k", "ext3", "64k", "16k_buffer_heads",
        "inside_inodes", "clusters", "fast_1k", "encrypted",
    ]),
    on("holes", data::holes, &[
        "1k", "4k", "buffer_heads", "ordered_at_once", "ext3", "ext3_at_once", "ext3_journalled",
        "32k_ordered", "64k", "clusters", "clusters_counted", "fast_1k", "encrypted_ordered",
    ]),
    on("truncations", data::truncations, &[
        "1k", "2k", "each_handle", "each_handle_ordered", "discarding", "journalled", "ext3",
        "64k", "16k_each_handle", "64k_block_maps", "meta_groups", "inside_inodes",
        "inside_journalled", "counted_each_handle", "clusters", "clusters_each_handle", "fast_1k",
        "encrypted_each_handle",
    ]),
    on("allocations", ranges::allocations, &[
        "1k", "buffer_heads", "journalled", "64k", "32k_ordered", "clusters_counted", "fast_1k",
        "encrypted",
    ]),
    on("punches", ranges::punches, &[
        "1k", "4k", "each_handle", "discarding", "ordered", "journalled_4k", "ext3",
        "ext3_at_once", "8k", "64k", "32k_journalled", "64k_block_maps", "clusters",
        "clusters_each_handle", "fast_4k", "encrypted",
    ]),
    on("zeroed_ranges", ranges::zeroed, &[
        "1k", "small_folios", "buffer_heads", "ordered_at_once", "64k", "16k_buffer_heads",
    ]),
    on("collapses_and_inserts", ranges::shifts, &[
        "1k", "4k", "each_handle", "journalled", "ordered", "16k_each_handle", "64k", "clusters",
        "fast_1k",
    ]),
    on("copies", ranges::copies, &[
        "1k", "4k", "each_handle", "buffer_heads", "ordered_at_once", "journalled_4k", "ext3",
        "64k", "fast_4k", "encrypted",
    ]),
    on("ranges_beside_fsyncs", ranges::beside_fsyncs, &["2k", "buffer_heads", "64k"]).slow(),
    on("defragmented", ranges::defragmented, &[
        "1k", "4k", "tiny_journal", "ordered", "data_writeback", "64k", "clusters",
    ]),
    on("sealed", sealing::sealed, &[
        "sealed_1k", "sealed_each_handle", "sealed_journalled", "64k", "encrypted_ordered",
        "sealed_16k",
    ]),
    on("grouped_fsyncs", data::grouped_fsyncs, &[
        "2k", "buffer_heads", "ordered", "64k", "fast_1k",
    ]).slow(),
    on("open_and_unlinked", names::open_and_unlinked, &[
        "1k", "each_handle", "orphan_list", "folded_names", "64k", "16k_each_handle",
        "inside_inodes", "counted_each_handle", "clusters_counted", "fast_1k",
        "encrypted_each_handle", "external_each_handle",
    ]),
    on("rename_over", names::rename_over, &[
        "1k", "4k", "folded_names", "64k", "inside_inodes", "fast_1k", "encrypted", "folded_8k",
        "encrypted_folded",
    ]),
    on("rename_after_fsync", names::rename_after_fsync, &["2k", "64k", "fast_4k"]),
    on("splitting_directories", directories::splitting, &[
        "1k", "ext3", "folded_names", "64k", "inside_inodes", "inside_4k", "counted", "clusters",
        "fast_1k", "encrypted", "encrypted_folded",
    ]),
    on("shrinking_directories", directories::shrinking, &[
        "1k", "no_index", "64k", "inside_inodes",
    ]),
    on("moving_directories", directories::moving, &[
        "1k", "folded_names", "64k", "inside_inodes", "encrypted_each_handle",
        "encrypted_folded",
    ]),
    on("reused_metadata", directories::reused_metadata, &[
        "1k", "many_groups", "meta_groups", "64k", "fast_1k",
    ]),
    on("journal_wraps", journal::wraps, &["tiny_journal", "external"]),
    on("journal_full", journal::full, &["tiny_journal", "external", "64k"]),
    on("whole_sync", journal::whole_sync, &["1k", "2k", "64k", "fast_4k", "external_4k"]),
    on("recoveries", journal::recoveries, &["1k", "external", "external_fast"]),
    on("remounts", journal::remounts, &[
        "1k", "orphan_list", "64k", "fast_small_area", "external",
    ]),
];

impl Workload {
    pub(crate) fn named(name: &str) -> Option<&'static Workload> {
        WORKLOADS.iter().find(|workload| workload.name == name)
    }
}

#[test]
fn every_setup_is_in_the_short_round() {
    use crate::setups::{SETUPS, Setup};
    let used = || WORKLOADS.iter().flat_map(|workload| workload.setups);
    assert!(used().all(|name| Setup::named(name).is_some()));
    for setup in SETUPS {
        assert!(used().any(|name| *name == setup.name), "{}", setup.name);
    }
}
