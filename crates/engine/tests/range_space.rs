//! Range operations on volumes with few blocks left, from none on: whichever allocation finds none,
//! nothing is lost, no lock stays held, promises are balanced, and with space the same call
//! succeeds.

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_check::{CheckOptions, check};
use extant_engine::FallocateMode::{
    self, Allocate, CollapseRange, InsertRange, PunchHole, ZeroRange,
};
use extant_engine::{
    BufferedPath, Cred, Error, Node, SetAttr, Tuning, Verifier, Volume, VolumeOptions,
};
use extant_testkit::{Image, content, report};

const BLOCK: u64 = 1024;
/// Room for everything.
const ROOM: u64 = 300;
/// Extents of the file: too many for its inode.
const PIECES: u64 = 24;

/// Operation that is tried.
#[derive(Clone, Copy, Debug)]
enum Try {
    Range(FallocateMode, u64, u64),
    Copy(u64, u64, u64),
}

/// Over holes and data, over dirty data, in the middle of extents, behind the end.
const TRIES: &[Try] = &[
    Try::Range(Allocate { keep_size: false }, 3 * BLOCK, 60 * BLOCK),
    Try::Range(Allocate { keep_size: true }, 90 * BLOCK + 5, 40 * BLOCK),
    Try::Range(ZeroRange { keep_size: true }, 2 * BLOCK + 100, 50 * BLOCK),
    Try::Range(ZeroRange { keep_size: false }, 80 * BLOCK + 9, 60 * BLOCK),
    Try::Range(PunchHole, 5 * BLOCK + 7, BLOCK * 3),
    Try::Range(PunchHole, 9 * BLOCK, BLOCK),
    Try::Range(CollapseRange, 9 * BLOCK, 7 * BLOCK),
    Try::Range(InsertRange, 9 * BLOCK, 5 * BLOCK),
    Try::Copy(0, 200 * BLOCK + 3, 30 * BLOCK),
    Try::Copy(8 * BLOCK, 47 * BLOCK, 20 * BLOCK),
];

fn mount(dev: &Arc<MemoryDevice>, path: BufferedPath, options: &str) -> Volume {
    let mut tuning = Tuning::default();
    tuning.flushers = 0;
    tuning.page_cache_bytes = Some(32 << 20);
    tuning.buffered_path = path;
    let mut how = VolumeOptions::new();
    how.write(true).mount_options(options).tuning(tuning);
    how.open_on(dev.clone()).unwrap()
}

fn node(volume: &Volume, name: &str) -> Node {
    let root = volume.root().unwrap();
    volume.lookup(&root, name.as_bytes()).unwrap()
}

fn bytes(volume: &Volume, node: &Node) -> Vec<u8> {
    let size = volume.getattr(node).unwrap().size;
    let mut buf = vec![0; usize::try_from(size).unwrap()];
    assert_eq!(volume.read(node, 0, &mut buf).unwrap(), buf.len());
    buf
}

fn cut(volume: &Volume, node: &Node, size: u64) {
    let to = SetAttr {
        size: Some(size),
        ..SetAttr::default()
    };
    volume.setattr(node, &to, &Cred::root()).unwrap();
}

/// An image with a file of many extents, and another that takes all the space there is for files.
fn full(path: BufferedPath, options: &str) -> Vec<u8> {
    let args = "-b 1024 -m 0 -N 64 -J size=1";
    let image = Image::of_mib(6).args(args).junk().make().unwrap();
    let made = std::fs::read(image.path()).unwrap();
    let dev = Arc::new(MemoryDevice::from_bytes(&made));
    let (volume, cred) = (mount(&dev, path, options), Cred::root());
    let root = volume.root().unwrap();
    let file = volume.create(&root, b"file", 0o644, &cred).unwrap();
    for piece in 0..PIECES {
        // Three blocks, and a hole of one.
        let pos = piece * 4 * BLOCK;
        let data = content::fill(1, pos, 3 * 1024);
        volume.write(&file, pos, &data, &cred).unwrap();
    }
    volume.fsync(&file, false).unwrap();
    let filler = volume.create(&root, b"filler", 0o644, &cred).unwrap();
    let (mut end, mut step) = (0, 1 << 20);
    while step >= BLOCK {
        let mode = Allocate { keep_size: false };
        match volume.fallocate(&filler, mode, end, step, &cred) {
            Ok(()) => end += step,
            Err(Error::NoSpace) => {
                end = volume.getattr(&filler).unwrap().size;
                step /= 2;
            }
            Err(error) => panic!("{error}"),
        }
    }
    drop((root, file, filler));
    volume.unmount().unwrap();
    dev.to_bytes()
}

/// Does it; the second file of a copy is the first.
fn attempt(volume: &Volume, file: &Node, what: Try) -> Result<(), Error> {
    let cred = Cred::root();
    match what {
        Try::Range(mode, pos, len) => volume.fallocate(file, mode, pos, len, &cred),
        Try::Copy(pos, to, len) => match volume.copy_range((file, pos), (file, to), len, &cred)? {
            done if done == len => Ok(()),
            // Space ran out before the end: what was copied is there.
            _ => Err(Error::NoSpace),
        },
    }
}

/// Returns whether what must be as it was when `what` has failed is so: the bytes of a file, as far
/// as nothing was done.
fn kept(what: Try, before: &[u8], now: &[u8]) -> bool {
    match what {
        // Some of the space is there, and the file as long.
        Try::Range(Allocate { keep_size: false }, ..) => {
            now.len() >= before.len()
                && now[..before.len()] == *before
                && now[before.len()..].iter().all(|&byte| byte == 0)
        }
        Try::Range(..) => now == before,
        Try::Copy(from, to, len) => {
            let (from, to) = (usize::try_from(from).unwrap(), usize::try_from(to).unwrap());
            let len = usize::try_from(len).unwrap();
            now.iter().enumerate().all(|(at, byte)| {
                let old = before.get(at).copied().unwrap_or(0);
                let copied = (to..to + len).contains(&at).then(|| before[from + at - to]);
                old == *byte || copied == Some(*byte) || (at >= before.len() && *byte == 0)
            })
        }
    }
}

/// Every try with every number of blocks left; returns how many found no space, and how many
/// enough.
fn scan(path: BufferedPath, options: &str) -> (u64, u64) {
    let (base, cred) = (full(path, options), Cred::root());
    let (mut refused, mut served) = (0, 0);
    for what in TRIES {
        let mut expected: Option<Vec<u8>> = None;
        for left in [ROOM, 36, 32, 28, 24, 20].into_iter().chain((0..=16).rev()) {
            let dev = Arc::new(MemoryDevice::from_bytes(&base));
            let volume = mount(&dev, path, options);
            let (file, filler) = (node(&volume, "file"), node(&volume, "filler"));
            let all = volume.getattr(&filler).unwrap().size;
            cut(&volume, &filler, all - left * BLOCK);
            // What is free comes back with a commit that an allocation asks for.
            if left % 2 == 0 {
                volume.sync().unwrap();
            }
            // What is durable, with dirty bytes over it: none of them may go.
            let dirty = content::fill(2, 9000, 700);
            volume.write(&file, 9000, &dirty, &cred).unwrap();
            let before = bytes(&volume, &file);
            let what_now = format!("{what:?} with {left} blocks left, {path:?} {options}");
            match attempt(&volume, &file, *what) {
                Ok(()) => {
                    served += 1;
                    let now = bytes(&volume, &file);
                    let expected = expected.get_or_insert_with(|| now.clone());
                    assert!(now == *expected, "{what_now}: other bytes than with space");
                }
                Err(Error::NoSpace) => {
                    refused += 1;
                    let now = bytes(&volume, &file);
                    assert!(kept(*what, &before, &now), "{what_now}: bytes are lost");
                }
                Err(error) => panic!("{what_now}: {error}"),
            }
            let mut verifier = Verifier::default();
            let sound = volume.verify(&mut verifier, false);
            sound.unwrap_or_else(|why| panic!("{what_now}: {why}"));
            // No lock is held, and what has space can be written.
            volume.write(&file, 512, &[7; 512], &cred).unwrap();
            // With space it goes on.
            cut(&volume, &filler, 0);
            if let Try::Range(mode, ..) = *what
                && !matches!(mode, CollapseRange | InsertRange)
            {
                let again = attempt(&volume, &file, *what);
                again.unwrap_or_else(|error| panic!("{what_now}, with space: {error}"));
            }
            let now = bytes(&volume, &file);
            volume.sync().unwrap();
            let sound = volume.verify(&mut verifier, true);
            sound.unwrap_or_else(|why| panic!("{what_now}, synced: {why}"));
            drop((file, filler));
            volume.unmount().unwrap();
            let options_of_check = CheckOptions {
                threads: 1,
                ..CheckOptions::default()
            };
            let found = check(dev.clone(), &options_of_check).unwrap().findings;
            assert!(found.is_empty(), "{what_now}: {found:?}");
            let volume = mount(&dev, path, options);
            let kept = bytes(&volume, &node(&volume, "file"));
            assert!(kept == now, "{what_now}: other bytes after a mount");
            volume.unmount().unwrap();
        }
        assert!(expected.is_some(), "{what:?} never finds space");
    }
    (refused, served)
}

#[test]
fn space_that_runs_out_loses_nothing() {
    for (path, options) in [
        (BufferedPath::Iomap, ""),
        (BufferedPath::BufferHead, ""),
        (BufferedPath::BufferHead, "data=journal"),
    ] {
        let (refused, served) = scan(path, options);
        report(&format!(
            "range operations on full volumes, {path:?} {options}: \
             {refused} found no space, {served} did"
        ));
        assert!(refused > 50 && served > 100, "{refused}, {served}");
    }
}
