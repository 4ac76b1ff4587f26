//! The same operations on both: the same answers, bytes, holes and extents.

use std::thread::sleep;
use std::time::Duration;

use extant_engine::FallocateMode::{self, *};
use extant_engine::ImageInfo;
use extant_testkit::{Image, Need, Rng, need};

use crate::world::{Linux, Ours, World};

const LINUX: &[Need] = &[
    Need::Root,
    Need::Loop,
    Need::Tool("mke2fs"),
    Need::Tool("filefrag"),
    Need::Tool("findmnt"),
];

/// One step, done in both worlds; operations that are refused included.
enum Step {
    Put(u64, Vec<u8>),
    Cut(u64),
    Sync,
    Run(FallocateMode, u64, u64),
}

const MOST: u64 = 300 << 10;

/// So often Linux is looked at again where seeks differ: it takes cached pages of unwritten blocks
/// for data, and does not forget those that are in use when it is asked to.
const LOOKS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(20);

fn step(rng: &mut Rng, size: u64, unit: u64) -> Step {
    let (mut offset, mut len) = (rng.below(MOST), rng.between(1, MOST / 4));
    if rng.chance(70) {
        offset -= offset % unit;
        len = len.next_multiple_of(unit);
    }
    let keep_size = rng.chance(50);
    match rng.below(14) {
        0..=2 => {
            let byte = |_| rng.next_u64().to_le_bytes()[0] | 1;
            Step::Put(offset, (0..len.min(MOST - offset)).map(byte).collect())
        }
        3 => Step::Cut(rng.below(size + size / 4 + 2)),
        4 => Step::Sync,
        5 => Step::Run(Allocate { keep_size }, offset, len),
        6 | 7 => Step::Run(PunchHole, offset, len),
        8 | 9 => Step::Run(ZeroRange { keep_size }, offset, len),
        10 | 11 => Step::Run(CollapseRange, offset, len),
        _ if size + len > 2 * MOST => Step::Sync,
        _ => Step::Run(InsertRange, offset, len),
    }
}

fn walk(args: &str, theirs_options: &str, ours_options: &str, seed: u64) {
    let make = || Image::of_mib(32).args(args).make().unwrap();
    let (theirs, ours) = (make(), make());
    let unit = ImageInfo::read(theirs.path()).unwrap().cluster_size.into();
    let linux = Linux::new(&theirs, theirs_options);
    let here = Ours::new(&ours, ours_options);
    let worlds: [&dyn World; 2] = [&linux, &here];
    let mut rng = Rng::new(seed);
    let mut refused = 0;
    for number in 0..120 {
        let size = here.size();
        match step(&mut rng, size, unit) {
            Step::Put(pos, data) => worlds.iter().for_each(|world| world.put(pos, &data)),
            Step::Cut(size) => worlds.iter().for_each(|world| world.cut(size)),
            Step::Sync => {}
            Step::Run(mode, offset, len) => {
                let what = format!("{args} {seed}/{number}: {mode:?} {offset}+{len} of {size}");
                let [expected, got] = worlds.map(|world| world.run(mode, offset, len));
                assert_eq!(got, expected, "{what}");
                refused += u32::from(got.is_err());
                assert_eq!(here.size(), linux.size(), "{what}");
                assert!(here.bytes() == linux.bytes(), "{what}");
            }
        }
        if number % 8 == 7 {
            let (got, mut expected) = (here.view(), linux.view());
            for _ in 0..LOOKS {
                if got.seeks == expected.seeks {
                    break;
                }
                sleep(PAUSE);
                expected = linux.view();
            }
            assert!(got.bytes == expected.bytes, "{args} {seed}/{number}: bytes");
            assert_eq!(
                (got.size, got.seeks, got.shape),
                (expected.size, expected.seeks, expected.shape),
                "{args} {seed}/{number}"
            );
        }
    }
    assert!(refused > 3, "{refused}");
    linux.close();
    here.close();
    ours.fsck_clean().unwrap();
}

#[test]
fn ranges_are_as_in_linux() {
    if !need(LINUX) {
        return;
    }
    walk("-b 1024", "", "", 1);
    walk("-b 4096", "", "", 2);
    walk("-b 1024", "", "nobuffered_iomap", 3);
    walk("-b 4096", "nodelalloc", "nodelalloc,nobuffered_iomap", 4);
}

#[test]
fn ranges_in_clusters_are_as_in_linux() {
    if !need(LINUX) {
        return;
    }
    walk("-b 1024 -O bigalloc -C 8192", "", "", 6);
    walk("-b 4096 -O bigalloc -C 65536", "nodelalloc", "", 7);
    walk("-b 1024 -O bigalloc -C 16384", "", "nobuffered_iomap", 8);
}

#[test]
fn ranges_of_journalled_data_are_as_in_linux() {
    if !need(LINUX) {
        return;
    }
    walk("-b 1024", "data=journal", "data=journal", 5);
}
