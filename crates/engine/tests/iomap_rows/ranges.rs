//! Range operations: rows 1 to 5, 9, 10 and 20. What they refuse is in `tests/ranges`.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_blockdev::MemoryDevice;
use extant_engine::FallocateMode::{self, *};
use extant_engine::{
    Cred, Error, ExtentState, Node, SetAttr, SetTime, Timestamp, Volume, XattrMode,
};
use extant_testkit::{Fault, FaultyDevice, Request, RequestKind, content};

use crate::rig::{self, Rig, image};

const KEEP: FallocateMode = Allocate { keep_size: true };
const ZERO: FallocateMode = ZeroRange { keep_size: false };

fn run(rig: &Rig, node: &Node, mode: FallocateMode, offset: u64, len: u64) {
    let done = rig.volume.fallocate(node, mode, offset, len, &Cred::root());
    done.unwrap_or_else(|error| panic!("{mode:?} {offset}+{len}: {error}"));
}

/// Stores through a mapping, or what stands for it here.
fn store(rig: &Rig, node: &Node, pos: u64, len: usize, byte: u8) {
    let done = rig
        .volume
        .edit(node, pos, len, &Cred::root(), |_, bytes| bytes.fill(byte));
    assert_eq!(done.unwrap(), len);
}

/// Space that the file has, in bytes, by state.
fn space(volume: &Volume, node: &Node) -> Vec<(u64, u64, ExtentState)> {
    volume
        .map(node, 0)
        .map(Result::unwrap)
        .filter(|extent| extent.state != ExtentState::Hole)
        .map(|extent| (extent.logical, extent.logical + extent.len, extent.state))
        .collect()
}

/// The seed's own case: a page of four blocks, of which the last two are zeroed (or punched) and
/// stored to again. The second store has to ask for space, as the first one's is gone or unwritten;
/// what was stored is there after a crash.
#[test]
fn iomap_01_a_store_after_a_range_has_gone_asks_for_space_again() {
    for mode in [ZERO, PunchHole] {
        for in_place in [true, false] {
            let rig = Rig::new("-b 1024");
            let node = rig.create("f");
            rig.write(&node, 0, &[b'X'; 4096]);
            rig.volume.fsync(&node, false).unwrap();
            store(&rig, &node, 2048, 2048, b'Z');
            run(&rig, &node, mode, 2048, 2048);
            let expected = [[b'X'; 2048], [0; 2048]].concat();
            assert_eq!(rig.content(&node), expected, "{mode:?}");
            if in_place {
                store(&rig, &node, 2048, 2048, b'Y');
            } else {
                rig.write(&node, 2048, &[b'Y'; 1500]);
                rig.write(&node, 3548, &[b'Y'; 548]);
            }
            rig.check(false);
            rig.volume.fsync(&node, false).unwrap();
            let crashed = rig.after_crash();
            let expected = [[b'X'; 2048], [b'Y'; 2048]].concat();
            assert_eq!(crashed.content(&crashed.find("f")), expected, "{mode:?}");
            crashed.end();
            rig.end();
        }
    }
}

#[test]
fn iomap_02_ranges_take_privileges_and_note_the_time_once() {
    let plain = Cred {
        uid: 1000,
        privileged: false,
        ..Cred::root()
    };
    for mode in [KEEP, PunchHole, ZERO, CollapseRange, InsertRange] {
        let rig = Rig::new("-b 1024");
        let node = rig.create("tool");
        rig.write(&node, 0, &[1; 50_000]);
        rig.volume.fsync(&node, false).unwrap();
        let set = SetAttr {
            perm: Some(0o4755),
            uid: Some(1000),
            mtime: Some(SetTime::At(Timestamp::default())),
            ..SetAttr::default()
        };
        rig.volume.setattr(&node, &set, &Cred::root()).unwrap();
        let before = rig.volume.getattr(&node).unwrap();
        let done = rig.volume.fallocate(&node, mode, 8192, 4096, &plain);
        done.unwrap();
        let after = rig.volume.getattr(&node).unwrap();
        assert_eq!(after.perm, 0o755, "{mode:?}: the bit is gone");
        assert!(after.mtime > before.mtime, "{mode:?}");
        assert_eq!(after.mtime, after.ctime, "{mode:?}: one moment");
        rig.end();
    }
}

#[test]
fn iomap_03_punching_writes_nothing_back() {
    for (args, options) in [
        ("-b 1024", ""),
        ("-b 4096", ""),
        ("-b 1024", "nobuffered_iomap"),
    ] {
        let rig = Rig::tuned(&image(32, args), options, |_| ());
        let node = rig.create("f");
        let mut data = content::fill(1, 0, 200_000);
        rig.write(&node, 0, &data);
        rig.volume.fsync(&node, false).unwrap();
        data[..150_000].fill(7);
        rig.write(&node, 0, &data[..150_000]);
        let counted = rig.counted(|| run(&rig, &node, PunchHole, 50_001, 60_000));
        assert_eq!(counted["wb_bytes"], 0, "{args} {options}");
        assert!(counted["freed_blocks"] >= 13, "{counted:?}");
        data[50_001..110_001].fill(0);
        assert!(rig.content(&node) == data, "{args} {options}");
        // What is dirty before and behind it is under writeback all the same.
        rig.volume.fsync(&node, false).unwrap();
        let crashed = rig.content_after_crash("f");
        assert!(crashed == data, "{args} {options}");
        rig.end();
    }
}

/// Space behind the end of the file stays, but for the last page; truncation to the same size takes
/// all of it.
#[test]
fn iomap_04_a_punch_ends_with_the_last_page() {
    let rig = Rig::new("-b 1024");
    let node = rig.create("f");
    rig.write(&node, 0, &[1; 10_000]);
    rig.volume.fsync(&node, false).unwrap();
    run(&rig, &node, KEEP, 0, 40_000);
    assert_eq!(rig.volume.getattr(&node).unwrap().size, 10_000);
    run(&rig, &node, PunchHole, 5000, 30_000);
    let expected = [
        (0, 5120, ExtentState::Written),
        (12_288, 40_960, ExtentState::Unwritten),
    ];
    assert_eq!(space(&rig.volume, &node), expected);
    let mut data = vec![1; 5000];
    data.resize(10_000, 0);
    assert!(rig.content(&node) == data);
    // Nothing of the file lies there.
    run(&rig, &node, PunchHole, 10_000, 30_000);
    assert_eq!(space(&rig.volume, &node), expected);
    rig.truncate(&node, 10_000);
    assert_eq!(space(&rig.volume, &node), expected[..1]);
    assert_eq!(rig.volume.getattr(&node).unwrap().blocks, 10);
    rig.end();
}

/// A device whose reads fail while the switch is on.
fn failing(bytes: &[u8]) -> (Arc<AtomicBool>, Volume) {
    let switch = Arc::new(AtomicBool::new(false));
    let armed = switch.clone();
    let device = FaultyDevice::new(MemoryDevice::from_bytes(bytes), move |request: Request| {
        if request.kind == RequestKind::Read && armed.load(Ordering::Relaxed) {
            Fault::Fail(ErrorKind::Other)
        } else {
            Fault::Pass
        }
    });
    (
        switch,
        rig::mount(Arc::new(device), "errors=continue", |_| ()),
    )
}

#[test]
fn iomap_04_the_first_error_stops_a_punch() {
    let (switch, volume) = failing(&image(32, "-b 4096"));
    let root = volume.root().unwrap();
    let node = volume.create(&root, b"f", 0o644, &Cred::root()).unwrap();
    volume.write(&node, 0, &[1; 50_000], &Cred::root()).unwrap();
    volume.fsync(&node, false).unwrap();
    let before = space(&volume, &node);
    volume.drop_caches();
    switch.store(true, Ordering::Relaxed);
    for (offset, len) in [(5000, 20_000), (8192, 20_000)] {
        let done = volume.fallocate(&node, PunchHole, offset, len, &Cred::root());
        assert!(matches!(done, Err(Error::Io(_))), "{done:?}");
    }
    switch.store(false, Ordering::Relaxed);
    let cut = |space: Vec<(u64, u64, ExtentState)>| -> u64 {
        space.iter().map(|(start, end, _)| end - start).sum()
    };
    assert_eq!(cut(space(&volume, &node)), cut(before), "nothing is freed");
    let mut bytes = vec![0; 50_000];
    volume.read(&node, 0, &mut bytes).unwrap();
    assert!(bytes.iter().all(|&byte| byte == 1));
    volume.unmount().unwrap();
}

/// Writes to a new file until nothing fits any more, nor after that was made durable.
fn fill_up(rig: &Rig) {
    let filler = rig.create("filler");
    let mut pos = 0;
    loop {
        let (from, mut len) = (pos, 1 << 20);
        while len >= 1024 {
            match rig.volume.write(&filler, pos, &vec![3; len], &Cred::root()) {
                Ok(done) => pos += done as u64,
                Err(Error::NoSpace) => len /= 2,
                Err(error) => panic!("{error}"),
            }
        }
        rig.volume.fsync(&filler, false).unwrap();
        if pos == from {
            return;
        }
    }
}

/// A full volume, and a range of which some blocks need space: it stays as it was, dirty data
/// included.
#[test]
fn iomap_05_without_space_nothing_of_a_zeroed_range_is_lost() {
    for (args, options) in [
        ("-b 1024", ""),
        ("-b 4096", ""),
        ("-b 1024", "nobuffered_iomap"),
    ] {
        let rig = Rig::tuned(&image(32, args), options, |_| ());
        let node = rig.create("f");
        rig.truncate(&node, 300_000);
        rig.write(&node, 0, &[1; 100_000]);
        rig.volume.fsync(&node, false).unwrap();
        fill_up(&rig);
        // Newer than what is on the device.
        rig.write(&node, 10_000, &[2; 80_000]);
        let before = rig.content(&node);
        for (offset, len) in [(20_001, 200_000), (20_480, 204_800)] {
            let done = rig
                .volume
                .fallocate(&node, ZERO, offset, len, &Cred::root());
            assert!(
                matches!(done, Err(Error::NoSpace)),
                "{args} {options}: {done:?}"
            );
            assert!(rig.content(&node) == before, "{args} {options}");
        }
        rig.check(false);
        rig.volume.fsync(&node, false).unwrap();
        let crashed = rig.content_after_crash("f");
        assert!(crashed == before, "{args} {options}");
        rig.end();
    }
}

/// The dispatcher holds the file's lock from the checks to the end, and the invalidate lock for all
/// but plain allocation; it lets go of both when what comes before the operation fails: here an
/// attribute block that cannot be read, when privileges are to be taken away. The next operation,
/// from another thread, proceeds.
#[test]
fn iomap_09_10_a_failed_file_modified_releases_every_lock() {
    for mode in [KEEP, PunchHole, ZERO, CollapseRange, InsertRange] {
        let rig = Rig::new("-b 4096");
        let node = rig.create("f");
        rig.write(&node, 0, &[1; 50_000]);
        let name = b"user.long";
        let made = rig
            .volume
            .setxattr(&node, name, &[5; 2000], XattrMode::Either, &Cred::root());
        made.unwrap();
        drop(node);
        rig.volume.unmount().unwrap();

        let (switch, volume) = failing(&rig.device.to_bytes());
        let node = volume.lookup(&volume.root().unwrap(), b"f").unwrap();
        switch.store(true, Ordering::Relaxed);
        let attr = volume.getattr(&node).unwrap();
        let done = volume.fallocate(&node, mode, 8192, 4096, &Cred::root());
        assert!(matches!(done, Err(Error::Io(_))), "{mode:?}: {done:?}");
        assert_eq!(volume.getattr(&node).unwrap(), attr, "{mode:?}");
        switch.store(false, Ordering::Relaxed);
        std::thread::scope(|scope| {
            let next = scope.spawn(|| volume.fallocate(&node, mode, 8192, 4096, &Cred::root()));
            next.join().unwrap().unwrap();
            let next = scope.spawn(|| volume.read(&node, 0, &mut [0; 100]));
            assert_eq!(next.join().unwrap().unwrap(), 100);
        });
        volume.unmount().unwrap();
    }
}

/// As `iomap_20_edges_are_zeroed_without_a_handle`, for the edges of ranges.
#[test]
fn iomap_20_edges_of_ranges_are_zeroed_without_a_handle() {
    let rig = Rig::tuned(&image(32, "-b 1024 -J size=1"), "commit=1", |tuning| {
        tuning.flushers = 2;
        tuning.page_cache_bytes = Some(1 << 20);
    });
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let rig = &rig;
            scope.spawn(move || {
                let node = rig.create(&format!("f{thread}"));
                for round in 0..40u64 {
                    let pos = (round * 7919 + thread * 131) % 200_000;
                    rig.write(&node, pos, &[1; 30_000]);
                    run(rig, &node, PunchHole, pos + 501, 9000);
                    run(rig, &node, ZERO, pos + 11_501, 9000);
                    let size = rig.volume.getattr(&node).unwrap().size;
                    run(rig, &node, InsertRange, (pos / 2) & !1023, 2048);
                    run(rig, &node, CollapseRange, 1024, 2048);
                    assert_eq!(rig.volume.getattr(&node).unwrap().size, size);
                    if round % 8 == thread {
                        rig.volume.fsync(&node, true).unwrap();
                    }
                }
            });
        }
    });
    rig.volume.sync().unwrap();
    rig.check(true);
    rig.end();
}

/// The write that would have moved the size on disk loses its data to the operation: the size
/// must arrive all the same.
#[test]
fn j1_the_size_on_disk_does_not_wait_for_data_that_is_gone() {
    let modes = [
        (PunchHole, 8192, 100_000),
        (PunchHole, 8192, 12_000),
        (ZERO, 8192, 100_000),
        (ZERO, 9000, 4000),
        (ZeroRange { keep_size: true }, 4096, 100_000),
        (KEEP, 0, 100_000),
        (Allocate { keep_size: false }, 50_000, 50_000),
        (CollapseRange, 4096, 8192),
        (InsertRange, 4096, 8192),
    ];
    let bytes = image(32, "-b 1024");
    for options in ["", "nodelalloc", "nobuffered_iomap,dioread_lock"] {
        let rig = Rig::tuned(&bytes, options, |_| ());
        let mut expected = Vec::new();
        for (number, (mode, offset, len)) in modes.into_iter().enumerate() {
            let node = rig.create(&format!("f{number}"));
            rig.write(&node, 0, &[1; 3000]);
            rig.volume.fsync(&node, false).unwrap();
            rig.write(&node, 2000, &[2; 17_000]);
            run(&rig, &node, mode, offset, len);
            rig.check(false);
            expected.push(rig.content(&node));
            rig.volume.fsync(&node, true).unwrap();
        }
        let crashed = rig.after_crash();
        for (number, bytes) in expected.iter().enumerate() {
            let found = crashed.content(&crashed.find(&format!("f{number}")));
            let what = format!("{options} {:?}", modes[number]);
            assert_eq!(found.len(), bytes.len(), "{what}");
            assert!(found == *bytes, "{what}");
        }
        crashed.end();
        rig.end();
    }
}

/// Space that was allocated ahead reads as zeros when the file grows over it, however it grows;
/// what lay behind the old end within its block is none of its business.
#[test]
fn j31_growing_over_allocated_space_shows_zeros() {
    for options in ["", "nobuffered_iomap"] {
        let rig = Rig::tuned(&image(32, "-b 4096"), options, |_| ());
        for how in 0..4 {
            let node = rig.create(&format!("f{how}"));
            rig.write(&node, 0, &[1; 9000]);
            rig.volume.fsync(&node, false).unwrap();
            rig.truncate(&node, 5000);
            run(&rig, &node, KEEP, 0, 60_000);
            match how {
                0 => rig.truncate(&node, 50_000),
                1 => rig.write(&node, 40_000, &[1; 10_000]),
                2 => run(&rig, &node, Allocate { keep_size: false }, 45_000, 5000),
                _ => run(&rig, &node, ZERO, 30_000, 20_000),
            }
            rig.volume.fsync(&node, false).unwrap();
        }
        let crashed = rig.after_crash();
        for rig in [rig, crashed] {
            for how in 0..4 {
                let bytes = rig.content(&rig.find(&format!("f{how}")));
                assert_eq!(bytes.len(), 50_000, "{how}");
                let end = if how == 1 { 40_000 } else { 50_000 };
                assert!(bytes[..5000].iter().all(|&byte| byte == 1), "{how}");
                assert!(bytes[5000..end].iter().all(|&byte| byte == 0), "{how}");
            }
            rig.end();
        }
    }
}

/// A gap that is inserted and collapsed again was never there; one that is collapsed and inserted
/// again is a hole.
#[test]
fn j41_collapse_after_insert_is_the_identity() {
    for options in ["", "nobuffered_iomap", "nobuffered_iomap,data=journal"] {
        let rig = Rig::tuned(&image(32, "-b 1024"), options, |_| ());
        let node = rig.create("f");
        let data = content::fill(9, 0, 300_000);
        rig.write(&node, 0, &data);
        for (offset, len) in [(0, 1024), (102_400, 65_536), (299_008, 2048)] {
            run(&rig, &node, InsertRange, offset, len);
            assert_eq!(rig.content(&node).len() as u64, 300_000 + len);
            run(&rig, &node, CollapseRange, offset, len);
            assert!(rig.content(&node) == data, "{options} {offset}");
        }
        rig.volume.fsync(&node, false).unwrap();
        // Still one run in the file: the cuts have healed.
        let whole = [(0, 300_032, ExtentState::Written)];
        assert_eq!(space(&rig.volume, &node), whole, "{options}");
        rig.end();
    }
}
