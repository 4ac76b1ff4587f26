//! Goals of the first blocks of a file: with room in front of them for the blocks before.

use extant_testkit::Image;
use extant_units::{Lblk, Pblk};

use super::mounted::{MapMount, empty_file};
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, BlockMapping, MapState};
use crate::volume::credits;
use crate::{alloc, map};

const WRITTEN: AllocateMode = AllocateMode {
    unwritten: false,
    only_delayed: false,
    metadata: false,
    privileged: false,
    goal: None,
};

/// The first block and the length of the run that `mapping` is.
fn run(mapping: &BlockMapping) -> (u64, u32) {
    match mapping.state {
        MapState::Written(start) => (start.get(), mapping.len),
        other => panic!("{other:?}"),
    }
}

/// Allocates `len` blocks of `inode` from `lblk` on.
fn allocate(mounted: &MapMount, inode: &Inode, lblk: u32, len: u32) -> (u64, u32) {
    let fs = &mounted.fs;
    let mut h = mounted.start(credits::allocate(fs));
    run(&map::allocate(fs, &mut h, inode, Lblk::new(lblk), len, WRITTEN).unwrap())
}

#[test]
fn blocks_that_come_late_fit_in_front_of_those_that_came_first() {
    // A gap of up to 16 MiB is kept open. Behind a larger one the file is sparse.
    for (first, together) in [(1, true), (1000, true), (4096, true), (4097, false)] {
        let image = Image::of_mib(128).args("-b 4096 -O ^has_journal");
        let image = image.make().unwrap();
        let ino = empty_file(&image, "a");
        let mounted = MapMount::new(&image, false);
        let inode = mounted.inode(ino);
        let (late, len) = allocate(&mounted, &inode, first, 10);
        assert_eq!(len, 10);
        let (front, len) = allocate(&mounted, &inode, 0, first);
        assert_eq!(len, first);
        assert_eq!(front + u64::from(first) == late, together, "{first}");
    }
}

#[test]
fn the_room_in_front_is_of_all_that_is_expected() {
    let image = Image::of_mib(128).args("-b 4096 -O ^has_journal");
    let image = image.make().unwrap();
    let [other, ino] = ["other", "a"].map(|name| empty_file(&image, name));
    let mounted = MapMount::new(&image, false);
    let fs = &mounted.fs;
    let (other, inode) = (mounted.inode(other), mounted.inode(ino));
    // The first free run is long enough for the front alone, and too short for all of it.
    let free = alloc::room_for(fs, alloc::goal_for(fs, &inode), 2000).unwrap();
    let taken = Pblk::new(free.get() + 1050);
    let mut h = mounted.start(credits::allocate(fs));
    let goal = Some(taken);
    let how = AllocateMode { goal, ..WRITTEN };
    let there = map::allocate(fs, &mut h, &other, Lblk::ZERO, 10, how);
    drop(h);
    assert_eq!(run(&there.unwrap()), (taken.get(), 10));
    let (late, _) = allocate(&mounted, &inode, 1000, 100);
    assert_eq!(late, taken.get() + 10 + 1000);
    assert_eq!(allocate(&mounted, &inode, 0, 1000), (late - 1000, 1000));
}
