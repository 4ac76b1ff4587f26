//! Range operations from the inside: against a model on both paths, and what only shows in sizes,
//! maps and counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extant_blockdev::{FileDevice, OpenError, OpenMode};
use extant_testkit::{Image, Rng, Stop};
use extant_units::{Lblk, Pblk};

use crate::api::inspect::verifier::Verifier;
use crate::config::{BufferedPath, MountOptions, Tuning};
use crate::file::range::fallocate;
use crate::file::{ReadMode, WriteAt, drop_caches, fsync, read, truncate, write};
use crate::state::inode::InodeRef;
use crate::state::map::{AllocateMode, MapState};
use crate::types::Cred;
use crate::types::FallocateMode::{self, *};
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::{map, mount, namei};

/// A mount whose flushers sleep, and one file.
struct Stage {
    image: Image,
    fs: Arc<Fs>,
    file: InodeRef,
}

impl Stage {
    fn new(args: &str, options: &str, path: BufferedPath) -> Self {
        Self::of(32, args, options, path)
    }

    fn of(mib: u64, args: &str, options: &str, path: BufferedPath) -> Self {
        let image = Image::with_args(mib, args).make().unwrap();
        Self::on(image, options, path)
    }

    fn on(image: Image, options: &str, path: BufferedPath) -> Self {
        let fs = open(&image, options, path);
        let root = fs.iget(extant_units::Ino::ROOT).unwrap();
        let file = namei::create(&fs, &root, b"file", 0o644, &Cred::root()).unwrap();
        drop(root);
        Self { image, fs, file }
    }

    fn put(&self, pos: u64, data: &[u8]) {
        let at = WriteAt::Pos(pos);
        let (_, done) = write(&self.fs, &self.file, None, at, data, &Cred::root()).unwrap();
        assert_eq!(done, data.len());
    }

    fn bytes(&self) -> Vec<u8> {
        let size = usize::try_from(self.file.size()).unwrap();
        let mut buf = vec![0x55; size + 10];
        let done = read(&self.fs, &self.file, None, ReadMode::Buffered, 0, &mut buf).unwrap();
        assert_eq!(done, size);
        buf.truncate(size);
        buf
    }

    fn run(&self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        fallocate(&self.fs, &self.file, mode, (offset, len), &Cred::root())
    }

    fn sync(&self) {
        fsync(&self.fs, &self.file, None, false).unwrap();
    }

    fn cut(&self, size: u64) {
        truncate(&self.fs, &self.file, size, &Cred::root()).unwrap();
    }

    fn check(&self) {
        Verifier::default().check(&self.fs, false).unwrap();
    }

    fn block(&self) -> u64 {
        self.fs.layout.block_size.bytes_u64()
    }

    /// A letter for each of the file's blocks up to its end, and for those behind it that have
    /// space.
    fn shape(&self) -> String {
        let blocks = self
            .file
            .size()
            .div_ceil(self.block())
            .max(map::last_end(&self.fs, &self.file).unwrap());
        let letter = |block| {
            let lblk = Lblk::new(u32::try_from(block).unwrap());
            match map::lookup(&self.fs, &self.file, lblk, 1).unwrap().state {
                MapState::Hole => '.',
                MapState::Delayed => 'd',
                MapState::Written(_) => 'w',
                MapState::Unwritten(_) => 'u',
            }
        };
        (0..blocks).map(letter).collect()
    }

    /// Unmounts, has e2fsck judge, and mounts again.
    fn remount(self, options: &str, path: BufferedPath) -> Self {
        let judge = |image: &Image| image.fsck_clean().unwrap();
        self.remount_after(judge, options, path)
    }

    /// Unmounts, does something to the image, and mounts again.
    fn remount_after(self, then: impl FnOnce(&Image), options: &str, path: BufferedPath) -> Self {
        let Self { image, fs, file } = self;
        drop(file);
        mount::unmount(&fs).unwrap();
        drop(fs);
        then(&image);
        let fs = open(&image, options, path);
        let root = fs.iget(extant_units::Ino::ROOT).unwrap();
        let file = namei::lookup(&fs, &root, b"file").unwrap();
        drop(root);
        Self { image, fs, file }
    }
}

fn open(image: &Image, options: &str, path: BufferedPath) -> Arc<Fs> {
    let tuning = Tuning {
        page_cache_bytes: Some(64 << 20),
        buffered_path: path,
        flushers: 0,
        ..Tuning::default()
    };
    // A child that another test starts has our descriptors, and with them the lock, until it runs
    // its program.
    let mut tries = 0;
    let dev = loop {
        match FileDevice::open(image.path(), OpenMode::ReadWrite) {
            Err(OpenError::InUse(..)) if tries < 200 => {
                tries += 1;
                std::thread::sleep(Duration::from_millis(10));
            }
            other => break other.unwrap(),
        }
    };
    let options = MountOptions::parse(&format!("commit=3000,{options}")).unwrap();
    mount::mount(Arc::new(dev), options, tuning).unwrap()
}

fn index(n: u64) -> usize {
    usize::try_from(n).unwrap()
}

/// Changes the expected content of the file.
fn apply(model: &mut Vec<u8>, mode: FallocateMode, offset: usize, len: usize) {
    let end = offset + len;
    let size = model.len();
    match mode {
        Allocate { keep_size } | ZeroRange { keep_size } => {
            if !keep_size {
                model.resize(size.max(end), 0);
            }
            if let ZeroRange { .. } = mode {
                let size = model.len();
                model[offset.min(size)..end.min(size)].fill(0);
            }
        }
        PunchHole => model[offset.min(size)..end.min(size)].fill(0),
        CollapseRange => drop(model.drain(offset..end)),
        InsertRange => drop(model.splice(offset..offset, std::iter::repeat_n(0, len))),
    }
}

/// The longest that the model's file becomes.
const MOST: u64 = 400 << 10;

/// Writes to the file and to its model.
fn put(stage: &mut Stage, model: &mut Vec<u8>, offset: u64, data: &[u8]) {
    stage.put(offset, data);
    let (start, end) = (index(offset), index(offset) + data.len());
    model.resize(model.len().max(end), 0);
    model[start..end].copy_from_slice(data);
}

/// Runs an operation on the file and on its model, and compares them.
fn run_both(
    stage: &mut Stage,
    model: &mut Vec<u8>,
    mode: FallocateMode,
    (offset, len): (u64, u64),
    what: &str,
) {
    stage
        .run(mode, offset, len)
        .unwrap_or_else(|error| panic!("{what}: {error}"));
    apply(model, mode, index(offset), index(len));
    assert_eq!(stage.file.size(), model.len() as u64, "{what}");
    let bytes = stage.bytes();
    let wrong = bytes.iter().zip(model.iter()).position(|(a, b)| a != b);
    assert_eq!(wrong, None, "{what}: {}", stage.shape());
}

fn storm(args: &str, options: &str, path: BufferedPath, seed: u64, steps: u32) {
    let mut stage = Stage::new(args, options, path);
    let bs = stage.block();
    let mut model: Vec<u8> = Vec::new();
    let mut rng = Rng::new(seed);
    for step in 0..steps {
        let size = model.len() as u64;
        let (mut offset, mut len) = (rng.below(MOST / 2), rng.between(1, MOST / 4));
        if rng.chance(60) {
            offset -= offset % bs;
            len = len.next_multiple_of(bs);
        }
        let keep_size = rng.chance(50);
        let mode = match rng.below(11) {
            0..=2 => {
                let byte = |_| rng.next_u64().to_le_bytes()[0] | 1;
                let data: Vec<u8> = (0..len).map(byte).collect();
                put(&mut stage, &mut model, offset, &data);
                None
            }
            3 => {
                let to = rng.below(size + size / 4 + 2);
                stage.cut(to);
                model.resize(index(to), 0);
                None
            }
            4 => {
                stage.sync();
                if rng.chance(50) {
                    drop_caches(&stage.fs);
                }
                None
            }
            5 => Some(Allocate { keep_size }),
            6 => Some(PunchHole),
            7 => Some(ZeroRange { keep_size }),
            8 | 9 => {
                offset -= offset % bs;
                len = len.next_multiple_of(bs);
                (offset + len < size).then_some(CollapseRange)
            }
            _ => {
                offset = rng.below(size.max(1));
                offset -= offset % bs;
                len = len.next_multiple_of(bs);
                (offset < size && size + len < MOST).then_some(InsertRange)
            }
        };
        if let Some(mode) = mode {
            let what = format!("{seed}/{step}: {mode:?} {offset}+{len} of {size}");
            run_both(&mut stage, &mut model, mode, (offset, len), &what);
        }
        if step % 16 == 0 {
            stage.check();
        }
        if step % 100 == 99 {
            stage = stage.remount(options, path);
            assert!(stage.bytes() == model, "{seed}/{step} after a remount");
        }
    }
    let stage = stage.remount(options, path);
    assert!(stage.bytes() == model, "{seed} at the end");
}

#[test]
fn range_operations_agree_with_a_model_on_ranges() {
    storm("-b 1024", "", BufferedPath::Iomap, 1, 400);
    storm("-b 4096", "", BufferedPath::Iomap, 2, 400);
    storm("-b 4096", "nodelalloc", BufferedPath::Iomap, 3, 200);
    storm("-b 8192", "", BufferedPath::Iomap, 7, 200);
    storm("-b 65536", "", BufferedPath::Iomap, 8, 200);
}

#[test]
fn range_operations_agree_with_a_model_block_by_block() {
    storm("-b 1024", "", BufferedPath::BufferHead, 4, 300);
    storm("-b 4096", "dioread_lock", BufferedPath::BufferHead, 5, 300);
    storm("-b 1024", "data=journal", BufferedPath::BufferHead, 6, 300);
    storm("-b 16384", "data=journal", BufferedPath::BufferHead, 9, 200);
    storm(
        "-b 65536",
        "dioread_lock",
        BufferedPath::BufferHead,
        10,
        200,
    );
}

/// A file with every other of `blocks` blocks written: an extent each.
fn comb(stage: &Stage, blocks: u64) -> Vec<u8> {
    let bs = stage.block();
    let mut model = vec![0; index(blocks * bs)];
    for block in (0..blocks).step_by(2) {
        let data = vec![u8::try_from(block % 251).unwrap() + 1; index(bs)];
        stage.put(block * bs, &data);
        model[index(block * bs)..index((block + 1) * bs)].copy_from_slice(&data);
    }
    stage.cut(blocks * bs);
    stage.sync();
    model
}

fn counter(stage: &Stage, name: &str) -> u64 {
    let all = crate::api::inspect::layer_counters::snapshot(&stage.fs);
    all.iter().find(|(known, _)| *known == name).unwrap().1
}

/// Thousands of extents: every leaf moves, and the nodes above say so; e2fsck and what is read
/// agree. One transaction holds it.
#[test]
fn deep_trees_move_as_one() {
    for (args, blocks) in [("-b 1024", 8000), ("-b 4096", 4000)] {
        let mut stage = Stage::new(args, "nodelalloc", BufferedPath::Iomap);
        let bs = stage.block();
        let mut model = comb(&stage, blocks);
        for (mode, first, len) in [
            (CollapseRange, 1000, 3),
            (InsertRange, 2001, 4000),
            (CollapseRange, 2, 1700),
            (PunchHole, 100, 1500),
            (ZeroRange { keep_size: true }, 1700, 701),
            (CollapseRange, 0, 1999),
        ] {
            stage.run(mode, first * bs, len * bs).unwrap();
            apply(&mut model, mode, index(first * bs), index(len * bs));
            assert!(stage.bytes() == model, "{args} {mode:?}");
            stage.check();
            stage = stage.remount("nodelalloc", BufferedPath::Iomap);
            assert!(stage.bytes() == model, "{args} {mode:?}, from the device");
            assert_eq!(counter(&stage, "stepwise_ranges"), 0);
        }
    }
}

/// The same with a log that cannot hold it: step by step.
#[test]
fn what_no_transaction_can_hold_moves_step_by_step() {
    let args = "-b 1024 -J size=1";
    let mut stage = Stage::new(args, "nodelalloc", BufferedPath::Iomap);
    let bs = stage.block();
    let mut model = comb(&stage, 44_000);
    for (mode, first, len) in [
        (InsertRange, 3, 2),
        (CollapseRange, 1, 1),
        (CollapseRange, 500, 12_000),
        (InsertRange, 400, 20_000),
    ] {
        let commits = counter(&stage, "commits");
        stage.run(mode, first * bs, len * bs).unwrap();
        apply(&mut model, mode, index(first * bs), index(len * bs));
        assert!(stage.bytes() == model, "{mode:?}");
        if first < 10 {
            assert_eq!(counter(&stage, "stepwise_ranges"), 1, "{mode:?}");
            assert!(counter(&stage, "commits") > commits, "{mode:?}");
        }
        stage = stage.remount("nodelalloc", BufferedPath::Iomap);
        assert!(stage.bytes() == model, "{mode:?}, from the device");
    }
}

/// The longest extent of the file, as debugfs sees it.
fn longest(image: &Image) -> u32 {
    let listed = image.debugfs("ex /file").unwrap();
    // Level, entries, file blocks, device blocks, length, flags: those above the leaves have one
    // device block only.
    let leaves = listed
        .lines()
        .filter(|line| line.matches(" - ").count() == 2);
    let words = leaves.map(|line| line.split_whitespace().collect::<Vec<_>>());
    let length = |words: Vec<&str>| words.iter().rev().find_map(|word| word.parse().ok());
    words.filter_map(length).max().unwrap()
}

/// The longest written extent is one block longer than the longest unwritten one.
#[test]
fn the_longest_extents_become_unwritten() {
    // Groups without copies of the superblock lie side by side.
    let stage = Stage::of(256, "-b 1024", "", BufferedPath::Iomap);
    let blocks = 80_000;
    stage.cut(u64::from(blocks) << 10);
    let mut at = 0;
    while at < blocks {
        let mut h = stage
            .fs
            .start(crate::volume::credits::allocate(&stage.fs))
            .unwrap();
        let (lblk, how) = (Lblk::new(at), AllocateMode::default());
        let made = map::allocate(&stage.fs, &mut h, &stage.file, lblk, blocks - at, how).unwrap();
        at += made.len;
    }
    let stage = stage.remount("", BufferedPath::Iomap);
    assert_eq!(longest(&stage.image), 32_768);
    // What an operation does before it drops what is cached: no cut is left for later.
    let (mut from, end) = (Some(0), u64::from(blocks));
    while let Some(at) = from {
        let mut h = stage
            .fs
            .start(crate::volume::credits::allocate(&stage.fs))
            .unwrap();
        from = map::split_longest(&stage.fs, &mut h, &stage.file, at, end).unwrap();
    }
    let stage = stage.remount("", BufferedPath::Iomap);
    assert_eq!(longest(&stage.image), 32_767);
    let to = ZeroRange { keep_size: false };
    stage.run(to, 1024, 79_000 << 10).unwrap();
    let expected = format!("w{}{}", "u".repeat(79_000), "w".repeat(999));
    assert_eq!(stage.shape(), expected);
    stage.remount("", BufferedPath::Iomap);
}

/// Readers fill the cache, and flushers empty it, while ranges move: neither may keep or write what
/// belonged to the map of a moment ago.
#[test]
fn readers_and_flushers_keep_nothing_of_the_old_map() {
    for path in [BufferedPath::Iomap, BufferedPath::BufferHead] {
        let stage = Stage::new("-b 1024", "", path);
        let blocks = 600u64;
        let mut model: Vec<u8> = (0..blocks).flat_map(|b| [tag(b); 1024]).collect();
        stage.put(0, &model);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let (stage, done) = (&stage, &done);
                scope.spawn(move || {
                    let mut rng = Rng::new(thread);
                    while !done.load(Ordering::Relaxed) {
                        let (pos, mut buf) = (rng.below(blocks) << 10, vec![0; 16 << 10]);
                        read(
                            &stage.fs,
                            &stage.file,
                            None,
                            ReadMode::Buffered,
                            pos,
                            &mut buf,
                        )
                        .unwrap();
                        if rng.chance(10) {
                            drop_caches(&stage.fs);
                        }
                    }
                });
            }
            let (other, stopped) = (&stage, &done);
            scope.spawn(move || {
                while !stopped.load(Ordering::Relaxed) {
                    other.sync();
                }
            });
            // They end as well if this thread fails.
            let _stop = Stop::at_end(&done);
            let mut rng = Rng::new(7);
            for round in 0..100 {
                let (first, len) = (rng.below(500), rng.between(1, 60));
                let (offset, bytes) = (first << 10, len << 10);
                let mode = match round % 4 {
                    0 => InsertRange,
                    1 => CollapseRange,
                    2 => PunchHole,
                    _ => ZeroRange { keep_size: true },
                };
                stage.run(mode, offset, bytes).unwrap();
                apply(&mut model, mode, index(offset), index(bytes));
                let data = vec![tag(round); index(bytes)];
                stage.put(offset + 512, &data);
                let start = index(offset + 512);
                model.resize(model.len().max(start + data.len()), 0);
                model[start..start + data.len()].copy_from_slice(&data);
                let (now, size) = (model.len() as u64, blocks << 10);
                if now != size {
                    stage.cut(size);
                    model.resize(index(size), 0);
                }
                let found = stage.bytes();
                let wrong = found.iter().zip(&model).position(|(a, b)| a != b);
                assert_eq!(wrong, None, "{path:?} {round}: {mode:?} {first}+{len}");
            }
        });
        let stage = stage.remount("", path);
        assert!(stage.bytes() == model, "{path:?}");
    }
}

/// A byte that is not zero for each block.
fn tag(block: u64) -> u8 {
    u8::try_from(block % 250).unwrap() + 1
}

/// A crash between a conversion and the size that follows it leaves written blocks behind the end.
/// Growing over them takes neither folios, which could not be written, nor their contents.
#[test]
fn j31_written_blocks_behind_the_end_become_unwritten() {
    for how in 0..3 {
        // Whatever is shown of those blocks must not be what they hold: the image is full of junk.
        let image = Image::of_mib(32).args("-b 1024").junk().make().unwrap();
        let stage = Stage::on(image, "", BufferedPath::Iomap);
        stage.put(0, &[1; 3000]);
        stage.sync();
        let mut h = stage
            .fs
            .start(crate::volume::credits::allocate(&stage.fs))
            .unwrap();
        let how_to = AllocateMode::default();
        let made = map::allocate(&stage.fs, &mut h, &stage.file, Lblk::new(10), 20, how_to);
        assert_eq!(made.unwrap().len, 20);
        drop(h);
        assert_eq!(
            stage.shape(),
            format!("www{}{}", ".".repeat(7), "w".repeat(20))
        );
        let before = counter(&stage, "wb_bytes");
        match how {
            0 => stage.cut(40_000),
            1 => stage.put(25_000, &[2; 15_000]),
            _ => stage.run(Allocate { keep_size: false }, 0, 40_000).unwrap(),
        }
        // The tail of the old last block at most.
        assert!(counter(&stage, "wb_bytes") - before <= 1024, "{how}");
        // The write, from within block 24 to the end of block 39, goes over five blocks that stay
        // written ones.
        let behind = match how {
            0 => format!("{}{}{}", ".".repeat(7), "u".repeat(20), ".".repeat(10)),
            1 => format!("{}{}wwwww{}", ".".repeat(7), "u".repeat(15), "d".repeat(10)),
            _ => "u".repeat(37),
        };
        assert_eq!(stage.shape(), format!("www{behind}"), "{how}");
        let mut model = vec![1; 3000];
        model.resize(if how == 1 { 25_000 } else { 40_000 }, 0);
        model.resize(40_000, 2);
        assert!(stage.bytes() == model, "{how}");
        let stage = stage.remount("", BufferedPath::Iomap);
        assert!(stage.bytes() == model, "{how}, from the device");
    }
}

/// The size of a file with a block map may be forged to be larger than a map can be.
#[test]
fn a_punch_behind_what_the_map_can_hold_does_nothing() {
    let stage = Stage::new(
        "-b 4096 -O ^extent,^64bit,huge_file",
        "",
        BufferedPath::Iomap,
    );
    stage.put(0, &[1; 3000]);
    let forge = |image: &Image| {
        image
            .debugfs_write("sif file size 10995116277760")
            .map(drop)
    };
    let stage = stage.remount_after(|image| forge(image).unwrap(), "", BufferedPath::Iomap);
    assert_eq!(stage.file.size(), 10 << 40);
    stage.run(PunchHole, 5 << 40, 8 << 40).unwrap();
    assert_eq!(
        map::lookup(&stage.fs, &stage.file, Lblk::ZERO, 1)
            .unwrap()
            .len,
        1
    );
}

/// A punch that finds no block for its map leaves the bytes at its ends as they were.
#[test]
fn a_punch_without_space_zeroes_nothing() {
    let stage = Stage::of(8, "-b 1024 -m 0 -J size=1", "", BufferedPath::Iomap);
    // As many extents as an inode holds.
    (0..4).for_each(|piece| stage.put(piece * 16 * 1024, &[1; 8 * 1024]));
    stage.sync();
    let before = stage.bytes();
    let next = || crate::alloc::hold_blocks(&stage.fs, Pblk::new(0), (1, 1 << 20)).unwrap();
    let held: Vec<_> = std::iter::from_fn(next).collect();
    let punch = || stage.run(PunchHole, 1024 + 100, 3 * 1024);
    let refused = punch();
    assert!(matches!(refused, Err(Error::NoSpace)), "{refused:?}");
    assert!(stage.bytes() == before);
    assert_eq!(stage.shape(), ["wwwwwwww"; 4].join("........"));
    drop(held);
    punch().unwrap();
    assert_eq!(stage.shape()[..9], *"ww..wwww.");
    let mut expected = before;
    expected[1124..4196].fill(0);
    assert!(stage.bytes() == expected);
}
