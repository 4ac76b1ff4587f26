//! One file that many threads change at once: writers with a part of their own, writers of the
//! same part, appenders, and a thread that moves the end. What each may find, and what must be
//! there in the end, does not depend on their order.
//!
//! The file: [`OWNERS`] parts with a writer each, whose ends cut blocks; a part that several write
//! as a whole, each with one letter; and behind that records, which are appended, cut off and made
//! room for.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, Node, SetAttr, Tuning, Verifier, Volume, VolumeOptions};
use extant_testkit::{Image, Rng};

const OWNERS: usize = 3;
/// Bytes of a part with an owner.
const PART: usize = 300_001;
/// Bytes of the part that several write: more than the largest folio of some of the mounts.
const COMMON: usize = 150_003;
const RECORD: usize = 1000;
/// Offset of the first record.
const TAIL: usize = OWNERS * PART + COMMON;

struct World {
    volume: Volume,
    node: Node,
}

impl World {
    fn write(&self, pos: usize, bytes: &[u8]) {
        let done = self
            .volume
            .write(&self.node, pos as u64, bytes, &Cred::root());
        assert_eq!(done.unwrap(), bytes.len());
    }

    fn read(&self, pos: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0x55; len];
        let done = self.volume.read(&self.node, pos as u64, &mut bytes);
        bytes.truncate(done.unwrap());
        bytes
    }

    fn size(&self) -> usize {
        let attr = self.volume.getattr(&self.node).unwrap();
        usize::try_from(attr.size).unwrap()
    }

    fn truncate(&self, size: usize) {
        let to = SetAttr {
            size: Some(size as u64),
            ..SetAttr::default()
        };
        self.volume.setattr(&self.node, &to, &Cred::root()).unwrap();
    }
}

/// Writes, edits and reads its part alone: finds at any time what it left there. Returns that.
fn owner(world: &World, number: usize, mut rng: Rng, rounds: u32) -> Vec<u8> {
    let start = number * PART;
    let mut model = vec![0; PART];
    for _ in 0..rounds {
        let from = rng.index(PART);
        let most = if rng.chance(80) { 2000 } else { PART };
        let len = rng.index((PART - from).min(most)) + 1;
        let with = u8::try_from(rng.between(1, 255)).unwrap();
        match rng.below(10) {
            0..6 => {
                world.write(start + from, &vec![with; len]);
                model[from..from + len].fill(with);
            }
            6 => {
                let volume = &world.volume;
                let (pos, cred) = ((start + from) as u64, Cred::root());
                let shown = volume.edit(&world.node, pos, len, &cred, |_, bytes| bytes.fill(with));
                assert_eq!(shown.unwrap(), len);
                model[from..from + len].fill(with);
            }
            7 => {
                // As the kernel above a mount writes back.
                let pos = (start + from) as u64;
                let bytes = vec![with; len];
                let done = world
                    .volume
                    .write_back(&world.node, pos, &bytes, &Cred::root());
                assert_eq!(done.unwrap(), len);
                model[from..from + len].fill(with);
            }
            _ => assert!(
                world.read(start + from, len) == model[from..from + len],
                "owner {number} finds something else at {from}"
            ),
        }
    }
    model
}

/// Writes the common part as a whole, again and again at the same time as another; finds it of one
/// piece whenever both are done.
fn sharer(world: &World, letter: u8, together: &Barrier, rounds: u32) {
    let start = OWNERS * PART;
    let mut torn = 0;
    for _ in 0..rounds {
        together.wait();
        world.write(start, &[letter; COMMON]);
        together.wait();
        let common = world.read(start, COMMON);
        torn += u32::from(common.iter().any(|byte| *byte != common[0]));
    }
    // Not before: the other would wait for ever.
    assert_eq!(torn, 0, "of {rounds} rounds, writes interleaved");
}

/// Appends records; learns where each one went.
fn appender(world: &World, letter: u8, rounds: u32) {
    for number in 0..rounds {
        let mut record = vec![letter; RECORD];
        record[1..5].copy_from_slice(&number.to_le_bytes());
        let appended = world.volume.append(&world.node, &record, &Cred::root());
        let (pos, done) = appended.unwrap();
        assert_eq!(done, RECORD);
        let at = usize::try_from(pos).unwrap();
        assert!(at >= TAIL && (at - TAIL).is_multiple_of(RECORD), "at {at}");
    }
}

/// Moves the end of the file, by whole records, never into the parts before.
fn end_mover(world: &World, mut rng: Rng, rounds: u32) {
    for _ in 0..rounds {
        let records = (world.size() - TAIL) / RECORD;
        let to = rng.index(records + 3);
        world.truncate(TAIL + to * RECORD);
        std::thread::yield_now();
    }
}

/// Every record is whole, and each appender's follow each other; what was never written is zero.
fn judge_tail(bytes: &[u8]) {
    assert!(bytes.len().is_multiple_of(RECORD), "{} bytes", bytes.len());
    let mut last = [None; 256];
    for (slot, record) in bytes.chunks(RECORD).enumerate() {
        let letter = record[0];
        let number = u32::from_le_bytes(record[1..5].try_into().unwrap());
        assert!(
            record[5..].iter().all(|&byte| byte == letter),
            "record {slot} is torn"
        );
        if letter == 0 {
            assert_eq!(number, 0, "record {slot} is torn");
            continue;
        }
        let before = last[usize::from(letter)].replace(number);
        assert!(before < Some(number), "record {slot} of {letter} is old");
    }
}

/// Checks the whole file: the parts of the owners, the range that two write, and the records.
fn judge(world: &World, models: &[Vec<u8>]) {
    for (number, model) in models.iter().enumerate() {
        assert!(world.read(number * PART, PART) == *model, "part {number}");
    }
    let common = world.read(OWNERS * PART, COMMON);
    assert!(
        common.iter().all(|byte| *byte == common[0]) && common[0] != 0,
        "two writes of everything interleaved"
    );
    judge_tail(&world.read(TAIL, world.size() - TAIL));
}

fn storm(args: &str, options: &str, order: u8, seed: u64) {
    let image = Image::of_mib(32).args(args).make().unwrap();
    let device = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
    let device = Arc::new(device);
    let mut tuning = Tuning::default();
    tuning.page_cache_bytes = Some(4 << 20);
    tuning.max_folio_order = order;
    tuning.flushers = 1;
    let mut open = VolumeOptions::new();
    open.write(true).tuning(tuning).mount_options(options);
    let volume = open.open_on(device.clone()).unwrap();
    let root = volume.root().unwrap();
    let node = volume.create(&root, b"f", 0o644, &Cred::root()).unwrap();
    let world = World { volume, node };
    world.truncate(TAIL);
    let mut rng = Rng::new(seed);
    let (busy, together) = (AtomicBool::new(true), Barrier::new(2));
    let models: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let world = &world;
        let owners: Vec<_> = (0..OWNERS)
            .map(|number| {
                let rng = rng.fork();
                scope.spawn(move || owner(world, number, rng, 120))
            })
            .collect();
        let others = [
            scope.spawn(|| sharer(world, b'x', &together, 150)),
            scope.spawn(|| sharer(world, b'y', &together, 150)),
            scope.spawn(|| appender(world, b'a', 150)),
            scope.spawn(|| appender(world, b'b', 150)),
            scope.spawn({
                let rng = rng.fork();
                move || end_mover(world, rng, 60)
            }),
        ];
        let disturber = scope.spawn(|| {
            while busy.load(Ordering::Relaxed) {
                world.volume.fsync(&world.node, true).unwrap();
                world.volume.drop_cached(&world.node);
                std::thread::yield_now();
            }
        });
        let ended: Vec<_> = others.into_iter().map(|other| other.join()).collect();
        let models: Vec<_> = owners.into_iter().map(|owner| owner.join()).collect();
        busy.store(false, Ordering::Relaxed);
        disturber.join().unwrap();
        ended.into_iter().for_each(|ended| ended.unwrap());
        models.into_iter().map(|model| model.unwrap()).collect()
    });
    judge(&world, &models);
    let mut verifier = Verifier::default();
    world.volume.verify(&mut verifier, false).unwrap();
    world.volume.fsync(&world.node, false).unwrap();
    world.volume.verify(&mut verifier, true).unwrap();
    world.volume.drop_caches();
    judge(&world, &models);
    world.volume.unmount().unwrap();
    drop(world);
    Image::of_bytes(&device.to_bytes())
        .unwrap()
        .fsck_clean()
        .unwrap();
}

#[test]
fn many_change_one_file_in_blocks_of_1_kib() {
    storm("-b 1024", "", 9, 1);
    storm("-b 1024", "nodelalloc", 0, 2);
}

#[test]
fn many_change_one_file_in_blocks_of_4_kib() {
    storm("-b 4096", "", 9, 3);
    storm("-b 4096", "", 2, 4);
    storm("-b 16384", "", 9, 6);
    storm("-b 65536", "nobuffered_iomap", 9, 7);
}

#[test]
fn many_change_one_file_block_by_block() {
    storm("-b 1024", "nobuffered_iomap", 5, 5);
}
