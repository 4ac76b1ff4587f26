//! The parts of blocks that operations cut off or run into: rows 19 to 21.

use std::sync::atomic::{AtomicBool, Ordering};

use extant_blockdev::BlockDevice;
use extant_engine::{Cred, FallocateMode};
use extant_testkit::{Stop, content};
use extant_units::DevOff;

use crate::rig::{Rig, image};

fn read_device(rig: &Rig, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0x55; len];
    rig.device.read_at(DevOff::new(at), &mut bytes).unwrap();
    bytes
}

/// Only a truncation has its zeroed tail on the device when it returns. A write behind the end
/// zeroes the tail in the cache; it is written before the size that shows it.
#[test]
fn iomap_19_only_truncation_writes_its_zeros_at_once() {
    for (args, block) in [("-b 1024", 1024), ("-b 4096", 4096)] {
        let rig = Rig::new(args);
        let node = rig.create("f");
        rig.write(&node, 0, &vec![1; 20_000]);
        rig.volume.fsync(&node, false).unwrap();
        let counted = rig.counted(|| rig.write(&node, 100_000, b"far"));
        assert_eq!(counted["wb_bytes"], 0);
        rig.volume.fsync(&node, false).unwrap();
        let counted = rig.counted(|| rig.truncate(&node, 10_000));
        assert_eq!(counted["wb_bytes"], block, "one block");
        let counted = rig.counted(|| rig.truncate(&node, 8192));
        assert_eq!(counted["wb_bytes"], 0, "no block is cut");
        rig.end();
    }
}

/// A journal in which everything waits for everything; edges are zeroed, and their writeback is
/// waited for, all the time. With a handle held meanwhile this would hang (and assert before, in
/// this build).
#[test]
fn iomap_20_edges_are_zeroed_without_a_handle() {
    let bytes = image(32, "-b 1024 -J size=1");
    let rig = Rig::tuned(&bytes, "commit=1", |tuning| {
        tuning.flushers = 2;
        tuning.page_cache_bytes = Some(1 << 20);
    });
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let (rig, stop) = (&rig, &stop);
            scope.spawn(move || {
                let _stop = Stop::at_end(stop);
                let node = rig.create(&format!("f{thread}"));
                for round in 0..60u64 {
                    let size = 3000 + (round * 7919 + thread * 131) % 200_000;
                    rig.write(&node, size, &[1; 3000]);
                    rig.truncate(&node, size + 1501);
                    rig.truncate(&node, size / 2 + 1);
                    rig.truncate(&node, size);
                    if round % 8 == thread {
                        rig.volume.fsync(&node, true).unwrap();
                    }
                }
            });
        }
        // Metadata that fills the log beside it.
        let (rig, stop) = (&rig, &stop);
        scope.spawn(move || {
            let mut number = 0;
            while !stop.load(Ordering::Relaxed) {
                rig.create(&format!("n{number}"));
                number += 1;
            }
        });
    });
    assert!(rig.counters()["commits"] > 1);
    rig.volume.sync().unwrap();
    rig.check(true);
    rig.end();
}

/// The zeros of a cut block are on the device before the size: a crash right behind the truncation,
/// and an extension after it, show no byte of what was cut off.
#[test]
fn iomap_21_a_crash_and_an_extension_show_zeros() {
    for args in [
        "-b 1024",
        "-b 2048",
        "-b 4096",
        "-b 4096 -O ^metadata_csum",
        "-b 8192",
        "-b 65536",
    ] {
        let rig = Rig::new(args);
        let node = rig.create("f");
        let data = content::fill(5, 0, 30_000);
        rig.write(&node, 0, &data);
        rig.volume.fsync(&node, false).unwrap();
        for cached in [true, false] {
            if !cached {
                rig.volume.drop_caches();
            }
            let size: usize = if cached { 20_001 } else { 10_003 };
            let block = rig.volume.map(&node, size as u64).next().unwrap().unwrap();
            let behind = block.physical.unwrap() + size as u64 - block.logical;
            rig.truncate(&node, size as u64);
            let rest = size.next_multiple_of(1024) - size;
            let on_device = read_device(&rig, behind, rest);
            assert_eq!(on_device, vec![0; rest], "before the size changes");
            // The size is durable, and nothing else has been written since.
            let other = rig.create(&format!("other{size}"));
            rig.volume.fsync(&other, false).unwrap();
            let crashed = rig.after_crash();
            let found = crashed.find("f");
            assert!(crashed.content(&found) == data[..size], "{args}");
            crashed.truncate(&found, 25_000);
            let extended = crashed.content(&found);
            assert!(extended[..size] == data[..size]);
            assert_eq!(extended[size..].iter().find(|&&byte| byte != 0), None);
            let crashed_again = crashed.after_crash();
            drop(crashed);
            crashed_again.truncate(&crashed_again.find("f"), 40_000);
            let extended = crashed_again.content(&crashed_again.find("f"));
            assert_eq!(extended[size..].iter().find(|&&byte| byte != 0), None);
            crashed_again.end();
        }
        rig.end();
    }
}

/// Growth: zeros behind the old end are on the device before the size covers them, whatever
/// foreign hands left there.
#[test]
fn iomap_21_what_lies_behind_the_end_is_zero_before_the_size_covers_it() {
    let rig = Rig::new("-b 4096");
    let node = rig.create("f");
    rig.write(&node, 0, &[1; 5000]);
    rig.volume.fsync(&node, false).unwrap();
    let at = rig.volume.map(&node, 0).next().unwrap().unwrap();
    let tail = at.physical.unwrap() + 5000;
    rig.volume.drop_caches();
    // As a store through a mapping may leave it.
    rig.device
        .write_at(DevOff::new(tail), &[0xbb; 3192])
        .unwrap();
    for how in 0..5 {
        let rig = rig.after_crash();
        let node = rig.find("f");
        match how {
            0 => rig.truncate(&node, 9000),
            1 => rig.write(&node, 9000, b"x"),
            2 => {
                let grow = FallocateMode::Allocate { keep_size: false };
                let done = rig.volume.fallocate(&node, grow, 0, 9000, &Cred::root());
                done.unwrap();
            }
            3 => {
                let zero = FallocateMode::ZeroRange { keep_size: false };
                let done = rig.volume.fallocate(&node, zero, 8192, 808, &Cred::root());
                done.unwrap();
            }
            _ => rig.write(&node, 5001, b"x"),
        }
        rig.volume.fsync(&node, false).unwrap();
        let crashed = rig.after_crash();
        drop(rig);
        let content = crashed.content(&crashed.find("f"));
        assert!(content.len() > 5000);
        assert!(content[..5000].iter().all(|&byte| byte == 1));
        assert!(
            content[5000..]
                .iter()
                .all(|&byte| byte == 0 || byte == b'x'),
            "{how}"
        );
        crashed.end();
    }
}
