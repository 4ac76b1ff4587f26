//! Which groups a search looks into, in which order, and what it takes there.

use std::time::Duration;

use extant_blockdev::MemoryDevice;
use extant_testkit::wait_until;

use super::*;
use crate::file::{self, WriteAt, write};

/// Sixteen groups of 1024 blocks. All metadata but copies of the superblock is in the first.
const GROUPS: &str = "-b 1024 -m 0 -g 1024 -N 256 -O ^has_journal,^resize_inode";

/// The first block of group `number`.
fn start_of(rig: &Rig, number: u32) -> u64 {
    rig.layout.group_start(Group::new(number)).get()
}

/// A volume that is full but for these blocks of its groups.
fn full_but_for(image: &Image, free: &[(u32, Range<u64>)]) -> Rig {
    let rig = Rig::open(image).unwrap();
    let rest = AllocRequest {
        pool: true,
        ..ask(0, 1 << 20)
    };
    while rig.take(&rest).is_ok() {}
    for (group, blocks) in free {
        let run = Run {
            start: Pblk::new(start_of(&rig, *group) + blocks.start),
            len: Blocks::new(blocks.end - blocks.start),
        };
        rig.give(run).unwrap();
    }
    rig.journal.force_commit().unwrap();
    rig
}

/// A request from block `goal` of `group` on: the run's group, first block there, and length.
fn take(rig: &Rig, (group, goal): (u32, u64), want: u64) -> (u32, u64, u64) {
    let request = AllocRequest {
        pool: true,
        ..ask(start_of(rig, group) + goal, want)
    };
    let run = rig.take(&request).unwrap();
    let (group, index) = rig.layout.group_of_block(run.start).unwrap();
    (group.get(), u64::from(index), run.len.get())
}

#[test]
fn a_shorter_run_at_the_goal_comes_before_a_longer_one_elsewhere() {
    let image = image(16, GROUPS);
    let free = [(5, 300..310), (5, 500..530), (6, 400..900), (7, 500..530)];
    let rig = full_but_for(&image, &free);
    let searched = rig.stats.alloc_groups_searched.get();
    assert_eq!(take(&rig, (5, 500), 100), (5, 500, 30));
    assert_eq!(rig.stats.alloc_groups_searched.get() - searched, 1);
    // A run that is too short for that leaves the request to the next group.
    assert_eq!(take(&rig, (5, 300), 100), (6, 400, 100));
    // As few blocks as the request allows are enough, if the group has no more.
    let least = AllocRequest {
        min: Blocks::new(30),
        pool: true,
        ..ask(start_of(&rig, 7) + 500, 100)
    };
    let run = rig.take(&least).unwrap();
    assert_eq!((run.start.get(), run.len.get()), (least.goal.get(), 30));
    rig.finish();
}

#[test]
fn groups_are_taken_in_order_from_the_goals_on() {
    let image = image(16, GROUPS);
    let free = [2, 4, 6, 9].map(|group| (group, 300..400));
    let rig = full_but_for(&image, &free);
    for (goal, found) in [(5, 6), (5, 9), (10, 2), (15, 4)] {
        assert_eq!(take(&rig, (goal, 500), 100), (found, 300, 100));
    }
    rig.finish();
}

#[test]
fn the_whole_request_is_looked_for_before_a_part_of_it() {
    let image = image(16, GROUPS);
    // Too short; enough in two parts; for a quarter; exactly enough.
    let free = [
        (3, 300..320),
        (4, 300..360),
        (4, 400..460),
        (5, 300..330),
        (9, 300..400),
        (10, 300..400),
    ];
    let rig = full_but_for(&image, &free);
    // A group that was searched once is passed over.
    for (found, groups) in [(9, 2), (10, 1)] {
        let searched = rig.stats.alloc_groups_searched.get();
        assert_eq!(take(&rig, (2, 0), 100), (found, 300, 100));
        let searched = rig.stats.alloc_groups_searched.get() - searched;
        assert_eq!(searched, groups);
    }
    // Then for a quarter of it, before what is left.
    assert_eq!(take(&rig, (2, 0), 100), (4, 300, 60));
    // What is left of that group is known to be enough, and comes before a part of it.
    assert_eq!(take(&rig, (2, 0), 60), (4, 400, 60));
    rig.finish();
}

#[test]
fn a_pass_loads_few_bitmaps_and_the_last_one_all() {
    let image = image(16, GROUPS);
    let mut free: Vec<(u32, Range<u64>)> = Vec::new();
    for group in 1..16 {
        free.extend([(group, 300..400), (group, 500..600)]);
    }
    free.push((15, 400..500));
    full_but_for(&image, &free).finish();
    let rig = Rig::open(&image).unwrap();
    assert_eq!(rig.stats.bitmap_loads.get(), 0);
    // In two parts everywhere but in the last group, which the first pass does not come to.
    assert_eq!(take(&rig, (2, 0), 150), (2, 300, 100));
    assert_eq!(rig.stats.bitmap_loads.get(), 9);
    let all = AllocRequest {
        min: Blocks::new(150),
        pool: true,
        ..ask(start_of(&rig, 2), 150)
    };
    assert_eq!(
        rig.take(&all).unwrap().start.get(),
        start_of(&rig, 15) + 300
    );
    rig.finish();
}

#[test]
fn room_is_looked_for_at_the_goal_and_in_the_groups_behind() {
    let image = image(16, GROUPS);
    let rig = full_but_for(&image, &[(2, 0..1024), (3, 300..400), (3, 600..700)]);
    let room = |(group, goal), len| {
        let goal = Pblk::new(start_of(&rig, group) + goal);
        rig.core().room_for(goal, len).unwrap().map(Pblk::get)
    };
    let third = start_of(&rig, 3);
    for (goal, at) in [(0, 300), (300, 300), (301, 600), (500, 600), (650, 300)] {
        assert_eq!(room((3, goal), 100), Some(third + at), "{goal}");
    }
    assert_eq!(room((3, 0), 101), None);
    // From the last group on to the first ones; a whole group, and no more than that.
    assert_eq!(room((15, 700), 100), Some(start_of(&rig, 2)));
    assert_eq!(room((1, 0), 1024), Some(start_of(&rig, 2)));
    assert_eq!(room((1, 0), 1025), None);
    rig.finish();
}

/// Blocks that are held for the device while it trims them are free: a request that needs them
/// waits.
#[test]
fn a_request_without_space_waits_for_what_is_trimmed() {
    let image = image(16, "-b 4096 -m 0");
    let bytes = std::fs::read(image.path()).unwrap();
    let fs = TestFs::on(Arc::new(MemoryDevice::from_bytes(&bytes)), "nodelalloc").unwrap();
    let file = fs.create("file");
    let core = &fs.alloc.core;
    let trimmed = core.trimming.lock();
    let next = || core.find_and_hold(Pblk::new(0), (1, 1 << 20)).unwrap();
    let held: Vec<Run> = std::iter::from_fn(next).collect();
    let calls = fs.stats.alloc_calls.get();
    std::thread::scope(|scope| {
        let put = || write(&fs, &file, None, WriteAt::Pos(0), &[1; 100], &Cred::root());
        let writer = scope.spawn(put);
        let asked = || writer.is_finished() || fs.stats.alloc_calls.get() > calls;
        wait_until("a request for blocks", asked);
        // One that does not wait has its time to fail.
        for _ in 0..50 {
            if !writer.is_finished() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        held.iter().for_each(|run| core.release_held(*run));
        drop(trimmed);
        let (_, done) = writer.join().unwrap().unwrap();
        assert_eq!(done, 100);
    });
    drop(file);
    fs.unmount();
}

/// The window that a thread has checked out may be all that is free: a request for reserved blocks
/// waits until it is back.
#[test]
fn a_request_for_reserved_blocks_waits_for_a_window_that_is_checked_out() {
    for kind in [
        "-b 1024 -m 0",
        "-b 1024 -m 0 -O ^extent,^64bit,^has_journal",
    ] {
        let image = image(16, kind);
        let fs = TestFs::mount(image.path(), "");
        let file = fs.create("file");
        let (_, done) =
            write(&fs, &file, None, WriteAt::Pos(0), &[7; 5000], &Cred::root()).unwrap();
        assert_eq!(done, 5000);
        let core = &fs.alloc.core;
        let other = Ino::new(file.ino.get() + 1).unwrap();
        let checkout = core.streams.try_check_out(other).unwrap();
        let next = || core.find_and_hold(Pblk::new(0), (1, 1 << 20)).unwrap();
        let held: Vec<Run> = std::iter::from_fn(next).collect();
        std::thread::scope(|scope| {
            let flusher = scope.spawn(|| file::writeback_all_files(&fs));
            let asked = || flusher.is_finished() || core.streams.is_awaited();
            wait_until("a request that waits", asked);
            // Meanwhile no request checks a window out.
            assert!(core.streams.try_check_out(other).is_none() || flusher.is_finished());
            held.iter().for_each(|run| core.release_held(*run));
            drop(checkout);
            flusher.join().unwrap().unwrap();
        });
        assert!(core.streams.try_check_out(other).is_some(), "{kind}");
        drop(file);
        fs.unmount();
        image.fsck_clean().unwrap();
    }
}

/// Windows are kept where there is plenty, and given up as it is reserved.
#[test]
fn a_window_is_a_small_part_of_what_is_left() {
    let image = image(32, "-b 1024 -m 0");
    let rig = Rig::open(&image).unwrap();
    let (core, counts) = (rig.core(), &rig.alloc.counts);
    let mut at = rig.layout.group_start(Group::new(1)).get();
    let mut grow = |want| {
        let request = AllocRequest {
            stream: Ino::new(100),
            ..ask(at, want)
        };
        let run = rig.take(&request).unwrap();
        at = run.start.get() + run.len.get();
    };
    let kept = || {
        let mut kept = 0;
        core.streams.take_all(|run| {
            core.release_held(run);
            kept += run.len.get();
        });
        kept
    };
    grow(2000);
    grow(16);
    let (window, most) = (kept(), counts.available().get() / 64);
    assert!((most - 1..=most).contains(&window), "{window} of {most}");

    grow(2000);
    grow(16);
    let reserved = Blocks::new(counts.room(true) - 100);
    let mut reserved = Reservation::take(counts, reserved, true).unwrap();
    grow(1);
    let (window, most) = (kept(), counts.available().get() / 64);
    assert!(window <= most, "an old window: {window} of {most}");
    grow(30);
    grow(1);
    let (window, most) = (kept(), counts.available().get() / 64);
    assert!(0 < window && window <= most, "{window} of {most}");
    reserved.give_back(reserved.blocks());
    rig.finish();
}
