//! Delayed blocks in the file's I/O tree: what an allocation, a truncation and a punched hole clear
//! of a longer range. These are rows of SPEC A3 (clearing bits in an I/O tree), as the engine's own
//! writes show them.

use std::collections::BTreeMap;

use extant_engine::{Cred, ExtentState, FallocateMode, SeekTarget};

use crate::rig::{Rig, image};

/// Bytes that no single allocation places: a group of 1 KiB blocks has 8 MiB.
const LONG: usize = 20 << 20;

/// Counts that a long write and its writeback add, with trees that trim or that split.
fn written(options: &str, trim_on_clear: bool) -> BTreeMap<&'static str, u64> {
    let rig = Rig::tuned(&image(64, "-b 1024"), options, |tuning| {
        tuning.page_cache_bytes = Some(128 << 20);
        tuning.trim_on_clear = trim_on_clear;
    });
    let node = rig.create("long");
    let data: Vec<u8> = (0..LONG).map(|at| at.to_le_bytes()[1] | 1).collect();
    let counted = rig.counted(|| {
        rig.write(&node, 0, &data);
        rig.check(false);
        rig.volume.fsync(&node, false).unwrap();
    });
    rig.check(true);
    assert!(rig.content(&node) == data);
    let counters = rig.counters();
    let left = (counters["reserved"], counters["reservation_leaks"]);
    assert_eq!(left, (0, 0));
    rig.end();
    counted
}

#[test]
fn io_tree_01_an_allocation_trims_the_front_of_what_is_delayed() {
    for options in ["", "nobuffered_iomap"] {
        let (trims, splits) = (written(options, true), written(options, false));
        assert!(trims["delalloc_trim_last"] >= 2, "{options}: {trims:?}");
        assert_eq!(trims["delalloc_prealloc_allocs"], 0, "{options}");
        assert_eq!(splits["delalloc_trim_last"], 0, "{options}");
        let saved = trims["delalloc_trim_last"];
        assert_eq!(splits["delalloc_prealloc_allocs"], saved, "{options}");
    }
}

/// Blocks that are on disk are converted while others are delayed: those are not asked about.
#[test]
fn a_conversion_clears_nothing_of_what_is_delayed() {
    let rig = Rig::new("-b 4096");
    let node = rig.create("f");
    let unwritten = FallocateMode::Allocate { keep_size: false };
    let (user, len) = (Cred::root(), 8 * 4096);
    let done = rig.volume.fallocate(&node, unwritten, 0, len, &user);
    done.unwrap();
    rig.write(&node, 16 * 4096, &[1; 4096]);
    let counted = rig.counted(|| {
        rig.volume
            .write_direct(&node, 0, &[1; 4096], &user)
            .unwrap();
    });
    assert!(counted["extents_converted"] > 0, "{counted:?}");
    assert_eq!(counted["delalloc_clears"], 0, "{counted:?}");
    assert_eq!(rig.counters()["reserved"], 1, "the block is delayed still");
    rig.check(false);
}

#[test]
fn io_tree_11_a_truncation_trims_the_end_of_what_is_delayed() {
    let rig = Rig::new("-b 4096");
    let node = rig.create("f");
    rig.write(&node, 0, &[1; 16 * 4096]);
    assert_eq!(rig.counters()["reserved"], 16);
    let counted = rig.counted(|| rig.truncate(&node, 8 * 4096));
    let trims = |counted: &BTreeMap<&str, u64>| {
        ["first", "last"].map(|end| counted[&*format!("delalloc_trim_{end}")])
    };
    assert_eq!(trims(&counted), [1, 0]);
    assert_eq!(rig.counters()["reserved"], 8);
    rig.check(false);
    // Out of the middle: one cut, and what is behind it loses its front.
    let counted = rig.counted(|| {
        let punch = FallocateMode::PunchHole;
        let (at, len) = (2 * 4096, 3 * 4096);
        let done = rig.volume.fallocate(&node, punch, at, len, &Cred::root());
        done.unwrap();
    });
    assert_eq!(trims(&counted), [0, 1]);
    assert_eq!(counted["delalloc_splits"], 1);
    assert_eq!(rig.counters()["reserved"], 5);
    rig.check(false);
    // The hole is one for all that look, and delayed blocks are data.
    let seek = |target| rig.volume.seek(&node, target).unwrap();
    assert_eq!(seek(SeekTarget::Hole(0)), 2 * 4096);
    assert_eq!(seek(SeekTarget::Data(2 * 4096)), 5 * 4096);
    let ranges = rig.volume.map(&node, 0).map(|range| range.unwrap());
    let states: Vec<_> = ranges.map(|range| (range.state, range.len)).collect();
    let (delayed, hole) = (ExtentState::Delayed, ExtentState::Hole);
    let expected = [(delayed, 2 * 4096), (hole, 3 * 4096), (delayed, 3 * 4096)];
    assert_eq!(states, expected);
    rig.volume.fsync(&node, false).unwrap();
    rig.check(true);
    rig.end();
}

/// Only the end of a lock looks for waiters, and a writer that is alone wakes none: neither by
/// fronts that it releases, nor where its delayed blocks end.
#[test]
fn io_tree_07_08_a_lone_writer_looks_for_waiters_where_locks_end() {
    let rig = Rig::new("-b 4096");
    let node = rig.create("f");
    let len = 8 << 20;
    rig.write(&node, 0, &vec![1; len]);
    let sync = || rig.volume.fsync(&node, false).unwrap();
    let counted = rig.counted(sync);
    assert!(counted["delalloc_clears"] > 0, "{counted:?}");
    assert_eq!((counted["wakes"], counted["wakes_skipped"]), (0, 0));
    rig.volume.drop_caches();
    let counted = rig.counted(|| rig.write(&node, 0, &vec![2; len]));
    assert!(counted["trim_last"] > 0, "{counted:?}");
    assert_eq!(counted["wakes"], 0);
    assert_eq!(counted["wakes_skipped"], counted["tree_clears"]);
    sync();
    rig.check(true);
    rig.end();
}
