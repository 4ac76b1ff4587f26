//! Data inside of inodes (`inline_data`): what is durable, what moves to a block and when, and what
//! happens where there is no block to move to.

use std::sync::atomic::{AtomicBool, Ordering};

use extant_engine::{Cred, Error, FallocateMode, Node, SetAttr, Volume, VolumeOptions};
use extant_testkit::{Image, content};

/// Bytes that an inode of 256 bytes holds: `i_block`, and 68 behind the attribute's entry.
const MOST: usize = 60 + 68;

fn open(image: &Image) -> Volume {
    let mut options = VolumeOptions::new();
    options.write(true).open(image.path()).unwrap()
}

fn image(mib: u64, args: &str) -> Image {
    let image = Image::of_mib(mib).args("-O inline_data").args(args);
    image.make().unwrap()
}

fn create(volume: &Volume, name: &[u8]) -> Node {
    let root = volume.root().unwrap();
    volume.create(&root, name, 0o644, &Cred::root()).unwrap()
}

fn read(volume: &Volume, node: &Node) -> Vec<u8> {
    let size = volume.getattr(node).unwrap().size;
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    assert_eq!(volume.read(node, 0, &mut bytes).unwrap(), bytes.len());
    bytes
}

fn set_size(volume: &Volume, node: &Node, size: u64) -> Result<(), Error> {
    let to = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(node, &to, &Cred::root()).map(drop)
}

/// Inodes that have moved to blocks since the mount.
fn left(volume: &Volume) -> u64 {
    let counters = volume.stats();
    let found = counters.iter().find(|(name, _)| *name == "inline_left");
    found.unwrap().1
}

/// A write that changes neither size nor blocks is durable after fdatasync.
#[test]
fn bytes_inside_are_durable_after_fdatasync() {
    let image = image(16, "-b 1024");
    let volume = open(&image);
    let cred = Cred::root();
    let node = create(&volume, b"f");
    for round in 0..3_u64 {
        let bytes = content::fill(round, 0, 100);
        volume.write(&node, 0, &bytes, &cred).unwrap();
        volume.fsync(&node, true).unwrap();
    }
    assert_eq!(volume.getattr(&node).unwrap().blocks, 1, "as Linux counts");
    volume.shutdown(false).unwrap();
    let _ = volume.unmount();
    drop((node, volume));
    let volume = open(&image);
    let root = volume.root().unwrap();
    let node = volume.lookup(&root, b"f").unwrap();
    assert_eq!(read(&volume, &node), content::fill(2, 0, 100));
    drop((node, root));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// Data moves if it has no room or an operation needs blocks, and for nothing else.
#[test]
fn data_moves_to_a_block_when_it_must() {
    let image = image(16, "-b 1024");
    let volume = open(&image);
    let cred = Cred::root();
    let make = |name: &str| {
        let node = create(&volume, name.as_bytes());
        volume
            .write(&node, 0, &content::fill(5, 0, 50), &cred)
            .unwrap();
        node
    };
    let stays = make("stays");
    volume
        .write(&stays, (MOST - 10) as u64, &[7; 10], &cred)
        .unwrap();
    set_size(&volume, &stays, 20).unwrap();
    set_size(&volume, &stays, MOST as u64).unwrap();
    let mut expected = content::fill(5, 0, 20);
    expected.resize(MOST, 0);
    assert_eq!(read(&volume, &stays), expected);
    assert_eq!(left(&volume), 0);

    let mut moved = 0;
    let mut each = |name: &str, change: &dyn Fn(&Node), expected: &[u8]| {
        let node = make(name);
        change(&node);
        moved += 1;
        assert_eq!(left(&volume), moved, "{name}");
        assert_eq!(read(&volume, &node), expected, "{name}");
    };
    let whole = |len: usize| {
        let mut bytes = content::fill(5, 0, 50);
        bytes.resize(len, 0);
        bytes
    };
    let mut longer = whole(MOST + 1);
    longer[MOST] = 9;
    let write = |node: &Node| {
        volume.write(node, MOST as u64, &[9], &cred).unwrap();
    };
    each("written", &write, &longer);
    let size = |node: &Node| set_size(&volume, node, 5000).unwrap();
    each("lengthened", &size, &whole(5000));
    let mode = FallocateMode::Allocate { keep_size: true };
    let space = |node: &Node| volume.fallocate(node, mode, 0, 3000, &cred).unwrap();
    each("allocated", &space, &whole(50));
    let punch = |node: &Node| {
        volume
            .fallocate(node, FallocateMode::PunchHole, 0, 10, &cred)
            .unwrap();
    };
    let mut punched = whole(50);
    punched[..10].fill(0);
    each("punched", &punch, &punched);
    let direct = |node: &Node| {
        volume.write_direct(node, 0, &[3; 1024], &cred).unwrap();
    };
    each("direct", &direct, &[3; 1024]);
    let edit = |node: &Node| {
        let done = volume.edit(node, 0, 50, &cred, |_, bytes| bytes.fill(4));
        assert_eq!(done.unwrap(), 50);
    };
    each("edited", &edit, &[4; 50]);
    drop(stays);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// Without a free block what is inside stays as it was, and goes on to be changed there.
#[test]
fn a_full_volume_loses_nothing_inside() {
    let image = image(8, "-b 1024 -m 0 -O ^has_journal");
    let volume = open(&image);
    let cred = Cred::root();
    let node = create(&volume, b"small");
    volume
        .write(&node, 0, &content::fill(1, 0, 100), &cred)
        .unwrap();
    let root = volume.root().unwrap();
    let dir = volume.mkdir(&root, b"dir", 0o755, &cred).unwrap();
    volume.create(&dir, b"inside", 0o644, &cred).unwrap();
    let filler = create(&volume, b"filler");
    let mut at = 0;
    for len in [1 << 20, 4096, 1024] {
        while let Ok(done) = volume.write(&filler, at, &vec![1; len], &cred) {
            at += done as u64;
            if done < len {
                break;
            }
        }
        volume.fsync(&filler, false).unwrap();
    }
    let error = volume.write(&node, 90, &[2; 100], &cred).unwrap_err();
    assert!(matches!(error, Error::NoSpace), "{error}");
    assert_eq!(read(&volume, &node), content::fill(1, 0, 100));
    let error = set_size(&volume, &node, 2000).unwrap_err();
    assert!(matches!(error, Error::NoSpace), "{error}");
    volume.write(&node, 0, &[2; 10], &cred).unwrap();
    let mut made = 0;
    let error = loop {
        let name = format!("a name of some length {made}");
        match volume.create(&dir, name.as_bytes(), 0o644, &cred) {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::NoSpace), "{error}");
    assert!((1..5).contains(&made), "{made}");
    assert_eq!(left(&volume), 1, "the filler");
    assert!(volume.lookup(&dir, b"inside").is_ok());
    drop((node, dir, filler, root));
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}

/// Readers see the data before a move or after it, and never anything else.
#[test]
fn readers_meet_the_move_to_a_block() {
    let image = image(32, "-b 1024");
    let volume = open(&image);
    let cred = Cred::root();
    for round in 0..60_u64 {
        let node = create(&volume, format!("f{round}").as_bytes());
        let bytes = content::fill(round, 0, 100);
        volume.write(&node, 0, &bytes, &cred).unwrap();
        let (is_over, begun) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut seen = [0; 100];
                    while !is_over.load(Ordering::Acquire) {
                        assert_eq!(volume.read(&node, 0, &mut seen).unwrap(), 100);
                        assert_eq!(seen, bytes[..], "round {round}");
                        begun.store(true, Ordering::Release);
                    }
                });
            }
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            volume.write(&node, 2000, &[1; 100], &cred).unwrap();
            is_over.store(true, Ordering::Release);
        });
    }
    assert_eq!(left(&volume), 60);
    volume.unmount().unwrap();
    image.fsck_clean().unwrap();
}
