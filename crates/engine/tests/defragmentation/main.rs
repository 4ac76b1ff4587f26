//! Defragmentation and the exchange of blocks: fewer runs, the same data, while other threads read
//! and write, and whatever fails.

mod failures;
mod moves;
mod rig;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extant_engine::{Cred, ExtentState, FallocateMode, Node, SetAttr, Volume};
use extant_testkit::{Image, Rng, Stop, content};

use rig::{PATHS, bytes, close, compare, create, options, runs, scattered};

#[test]
fn a_file_comes_to_lie_in_one_run() {
    for (mkfs, mib) in [("-b 1024", 32), ("-b 4096 -O ^has_journal", 64)] {
        for mount in PATHS {
            let image = Image::of_mib(mib).args(mkfs).make().unwrap();
            let volume = options(mount).open(image.path()).unwrap();
            let node = scattered(&volume, "f", 900);
            let before = runs(&volume, &node);
            assert_eq!(before, 900);
            let mut reported = (0, 0);
            let done = volume
                .defragment(&node, &Cred::root(), |done, of| reported = (done, of))
                .unwrap();
            assert_eq!(
                (done.runs_before, done.runs_after),
                (before, 1),
                "{mkfs} {mount}"
            );
            let size = 900 * u64::from(volume.block_size());
            assert_eq!((done.moved, reported), (size, (size, size)));
            assert_eq!(runs(&volume, &node), 1);
            compare(&volume, &node, 900).unwrap();
            volume.drop_caches();
            compare(&volume, &node, 900).unwrap();
            // There is nothing left to do.
            let again = volume.defragment(&node, &Cred::root(), |_, _| {}).unwrap();
            assert_eq!(
                (again.runs_before, again.runs_after, again.moved),
                (1, 1, 0)
            );
            drop(node);
            close(&image, volume);
        }
    }
}

/// Holes, unwritten space and delayed data; and less free space than the file has.
#[test]
fn what_a_file_is_made_of_stays() {
    let image = Image::of_mib(24)
        .args("-b 1024 -m 0")
        .junk()
        .make()
        .unwrap();
    let volume = options("").open(image.path()).unwrap();
    let cred = Cred::root();
    let keep = FallocateMode::Allocate { keep_size: false };
    let room = create(&volume, "room");
    volume
        .fallocate(&room, keep, 0, 1500 * 1024, &cred)
        .unwrap();
    let node = scattered(&volume, "f", 3000);
    let (hole, unwritten) = (1000..1100, 2000..2300);
    let mode = |mode, blocks: &std::ops::Range<u64>| {
        let len = (blocks.end - blocks.start) * 1024;
        volume
            .fallocate(&node, mode, blocks.start * 1024, len, &cred)
            .unwrap();
    };
    mode(FallocateMode::PunchHole, &hole);
    mode(FallocateMode::ZeroRange { keep_size: true }, &unwritten);
    // Full but for that room.
    let filler = create(&volume, "filler");
    let free = volume.statfs().unwrap().blocks_free;
    volume
        .fallocate(&filler, keep, 0, (free - 600) * 1024, &cred)
        .unwrap();
    drop(room);
    let root = volume.root().unwrap();
    volume.unlink(&root, b"room").unwrap();
    drop(root);
    volume.sync().unwrap();
    volume
        .write(&node, 3000 * 1024, &bytes(3000, 1024), &cred)
        .unwrap();
    let before = runs(&volume, &node);
    let done = volume.defragment(&node, &cred, |_, _| {}).unwrap();
    assert!(
        done.runs_after < before / 4 * 3 && done.moved > 0,
        "{before}: {done:?}"
    );
    for dropped in [false, true] {
        if dropped {
            volume.drop_caches();
        }
        let mut buf = vec![0; 1024];
        for at in 0..3001 {
            volume.read(&node, at * 1024, &mut buf).unwrap();
            let zeros = hole.contains(&at) || unwritten.contains(&at);
            let want = if zeros {
                vec![0; 1024]
            } else {
                bytes(at, 1024)
            };
            assert!(buf == want, "block {at}, {dropped}");
        }
    }
    let state = |at: u64| {
        let extent = volume.map(&node, at * 1024).next().unwrap().unwrap();
        extent.state
    };
    assert_eq!(state(1050), ExtentState::Hole);
    assert_eq!(state(2100), ExtentState::Unwritten);
    drop((node, filler));
    close(&image, volume);
}

/// Returns whether a block of the file in use is one that writers change.
fn is_written(at: u64) -> bool {
    at % 16 == 5
}

/// Returns the bytes of version `version` of such a block.
fn written(at: u64, version: u64, block: u64) -> Vec<u8> {
    content::fill(at << 20 | version, 0, usize::try_from(block).unwrap())
}

/// Reads blocks at random until `stop`, and checks those that no writer changes.
fn check_blocks(
    (volume, node): (&Volume, &Node),
    blocks: u64,
    reader: u64,
    stop: &AtomicBool,
    checked: &AtomicU64,
) {
    let block = u64::from(volume.block_size());
    let mut rng = Rng::new(reader + 100);
    let mut buf = vec![0; usize::try_from(block).unwrap()];
    while !stop.load(Ordering::Relaxed) {
        let at = rng.below(blocks);
        let done = if reader.is_multiple_of(2) {
            volume.read(node, at * block, &mut buf)
        } else {
            volume.read_uncached(node, at * block, &mut buf)
        };
        assert_eq!(done.unwrap() as u64, block);
        if !is_written(at) {
            assert!(buf == bytes(at, block), "block {at}");
            checked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes blocks of writer `writer` at random until `stop`; returns the last version of each.
fn change_blocks(
    (volume, node): (&Volume, &Node),
    blocks: u64,
    writer: u64,
    stop: &AtomicBool,
) -> HashMap<u64, u64> {
    let (block, cred) = (u64::from(volume.block_size()), Cred::root());
    let mut rng = Rng::new(writer);
    let mut last = HashMap::new();
    for version in 1.. {
        let at = rng.below(blocks / 32) * 32 + 5 + 16 * writer;
        if at < blocks {
            let data = written(at, version, block);
            volume.write(node, at * block, &data, &cred).unwrap();
            last.insert(at, version);
        }
        if version % 64 == 0 {
            volume.fsync(node, true).unwrap();
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    last
}

/// Eight readers check the data and two writers change theirs while a file is defragmented again
/// and again.
fn in_use(image: &Image, mount: &str, blocks: u64, rounds: u64) -> (u64, u64) {
    let volume = options(mount).open(image.path()).unwrap();
    let cred = Cred::root();
    let block = u64::from(volume.block_size());
    let node = scattered(&volume, "f", blocks);
    let before = runs(&volume, &node);
    let (stop, checked) = (AtomicBool::new(false), AtomicU64::new(0));
    for at in (0..blocks).filter(|&at| is_written(at)) {
        let data = written(at, 0, block);
        volume.write(&node, at * block, &data, &cred).unwrap();
    }
    let mut after = 0;
    std::thread::scope(|scope| {
        let (volume, node, stop, checked) = (&volume, &node, &stop, &checked);
        for reader in 0..8 {
            scope.spawn(move || check_blocks((volume, node), blocks, reader, stop, checked));
        }
        let writers: Vec<_> = (0..2)
            .map(|writer| scope.spawn(move || change_blocks((volume, node), blocks, writer, stop)))
            .collect();
        let at_end = Stop::at_end(stop);
        for round in 0..rounds {
            let done = volume
                .defragment(node, &cred, |_, _| volume.drop_cached(node))
                .unwrap();
            after = done.runs_after;
            if round + 1 < rounds {
                // Scattered again while it is in use: exchanged with a file that is.
                let other = scattered(volume, "again", blocks);
                volume
                    .move_extents(node, &other, 0..blocks * block, 0)
                    .unwrap();
                drop(other);
                let root = volume.root().unwrap();
                volume.unlink(&root, b"again").unwrap();
            }
        }
        drop(at_end);
        volume.drop_caches();
        for writer in writers {
            for (at, version) in writer.join().unwrap() {
                let mut buf = vec![0; usize::try_from(block).unwrap()];
                volume.read(node, at * block, &mut buf).unwrap();
                assert!(buf == written(at, version, block), "block {at}");
            }
        }
    });
    assert!(checked.into_inner() > 0);
    drop(node);
    close(image, volume);
    (before, after)
}

#[test]
fn readers_and_writers_go_on_meanwhile() {
    for mount in PATHS {
        let image = Image::of_mib(48).args("-b 1024 -N 64").make().unwrap();
        let (before, after) = in_use(&image, mount, 600, 2);
        assert!(before == 600 && after == 1, "{mount}: {before}, {after}");
    }
}

/// A file of `EXTANT_DEFRAG_MIB` MiB in ten thousand runs comes to lie in as few as free space
/// allows, while eight readers check it. Small by default.
#[test]
fn soak() {
    let asked = std::env::var("EXTANT_DEFRAG_MIB").ok();
    let mib: u64 = asked.map_or(8, |mib| mib.parse().unwrap());
    let image = Image::of_mib(mib * 3 + 32)
        .args("-b 4096 -N 64")
        .make()
        .unwrap();
    let volume = options("").open(image.path()).unwrap();
    let cred = Cred::root();
    let pieces = (mib << 8).min(10_000);
    let piece = (mib << 20) / pieces / 4096 * 4096;
    let node = create(&volume, "f");
    let change = |mode, at: u64, len: u64| volume.fallocate(&node, mode, at, len, &cred).unwrap();
    // A block behind each piece is taken out.
    let keep = FallocateMode::Allocate { keep_size: false };
    change(keep, 0, pieces * (piece + 4096) + 4096);
    for at in (0..pieces).rev() {
        change(
            FallocateMode::CollapseRange,
            at * (piece + 4096) + piece,
            4096,
        );
    }
    let size = SetAttr {
        size: Some(pieces * piece),
        ..SetAttr::default()
    };
    volume.setattr(&node, &size, &cred).unwrap();
    let data = |at: u64| content::fill(at + 1, at * piece, usize::try_from(piece).unwrap());
    for at in 0..pieces {
        volume.write(&node, at * piece, &data(at), &cred).unwrap();
    }
    volume.sync().unwrap();
    let before = runs(&volume, &node);
    let (stop, checked) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut report = None;
    std::thread::scope(|scope| {
        let (volume, node, stop, data, checked) = (&volume, &node, &stop, &data, &checked);
        for reader in 0..8 {
            scope.spawn(move || {
                let mut rng = Rng::new(reader);
                let mut buf = vec![0; usize::try_from(piece).unwrap()];
                while !stop.load(Ordering::Relaxed) {
                    let at = rng.below(pieces);
                    volume.read(node, at * piece, &mut buf).unwrap();
                    assert!(buf == data(at), "piece {at}");
                    checked.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let _stop = Stop::at_end(stop);
        let clock = std::time::Instant::now();
        let done = volume.defragment(node, &cred, |_, _| {}).unwrap();
        report = Some((done, clock.elapsed()));
    });
    let (done, took) = report.unwrap();
    println!(
        "{mib} MiB: {before} runs before, {} after, in {took:?}; {} pieces checked meanwhile",
        done.runs_after,
        checked.into_inner()
    );
    assert!(
        before >= pieces && done.runs_before == before,
        "{before}: {done:?}"
    );
    // One for each stretch of groups without metadata in between.
    assert!(done.runs_after <= 1 + mib / 32, "{done:?}");
    drop(node);
    close(&image, volume);
}
