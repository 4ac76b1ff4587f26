//! Many threads on one file: every block that a reader sees is whole, from one write, and no write
//! is lost. (Not more than a block: where a mapping ends within a folio, a write takes the folio's
//! lock twice.)

mod toy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use extant_iomap::*;
use extant_units::{BlockSize, Pos};
use parking_lot::RwLock;
use toy::{Rng, Setup, Toy};

/// A block that says which write made it, checkably.
fn stamp(number: u64, version: u64, len: usize) -> Vec<u8> {
    let word = (number << 32 | version).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut block = Vec::with_capacity(len);
    block.extend(version.to_le_bytes());
    for i in 1..len as u64 / 8 {
        block.extend((word ^ i).to_le_bytes());
    }
    block
}

/// The version in a block, or `None` for zeros. Anything else is a torn or foreign block.
fn check(number: u64, block: &[u8]) -> Option<u64> {
    if block.iter().all(|&byte| byte == 0) {
        return None;
    }
    let version = u64::from_le_bytes(block[..8].try_into().unwrap());
    let good = stamp(number, version, block.len());
    assert!(block == good, "block {number} is torn");
    Some(version)
}

/// Reads and checks random blocks until `stop`.
fn read_until(stop: &AtomicBool, toy: &Toy, blocks: u64, mut rng: Rng) {
    let len = toy.pages.block_size().bytes();
    let bs = len as u64;
    while !stop.load(Ordering::Relaxed) {
        let first = rng.below(blocks);
        let count = 1 + rng.below(40);
        let bytes = toy.read(first * bs, usize::try_from(count * bs).unwrap());
        for (i, block) in bytes.chunks_exact(len).enumerate() {
            check(first + i as u64, block);
        }
    }
}

fn storm(toy: &Arc<Toy>, blocks: u64, time: Duration) {
    let len = toy.pages.block_size().bytes();
    let bs = len as u64;
    let stop = AtomicBool::new(false);
    let lock = RwLock::new(());
    // What is known to have been written, per block.
    let written: Vec<AtomicU64> = (0..blocks).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for seed in 1..=3 {
            let (lock, stop, written) = (&lock, &stop, &written);
            scope.spawn(move || {
                let mut rng = Rng(seed * 7919);
                let mut version = seed;
                while !stop.load(Ordering::Relaxed) {
                    let first = rng.below(blocks);
                    let count = 1 + rng.below((blocks - first).min(64));
                    version += 3;
                    let data: Vec<u8> = (first..first + count)
                        .flat_map(|number| stamp(number, version, len))
                        .collect();
                    let _one_writer = lock.write();
                    toy.write(first * bs, &data).unwrap();
                    for number in first..first + count {
                        written[usize::try_from(number).unwrap()].store(version, Ordering::Release);
                    }
                }
            });
        }
        for seed in 1..=3 {
            let stop = &stop;
            scope.spawn(move || read_until(stop, toy, blocks, Rng(seed * 104_729)));
        }
        let (lock, stop_ref) = (&lock, &stop);
        scope.spawn(move || {
            let mut rng = Rng(31);
            while !stop_ref.load(Ordering::Relaxed) {
                match rng.below(4) {
                    0 => {
                        toy.sync().unwrap();
                    }
                    1 => toy.pages.drop_clean(Pos::ZERO, Pos::MAX),
                    _ => {
                        let _alone = lock.write();
                        toy.truncate(rng.below(blocks) * bs);
                    }
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    toy.sync().unwrap();
    toy.check_idle();
    assert_eq!(toy.reserved(), 0);
    let disk = toy.on_disk();
    assert_eq!(disk.len() as u64, toy.size());
    for (number, block) in disk.chunks_exact(len).enumerate() {
        if let Some(version) = check(number as u64, block) {
            // Either the last write survived, or a truncation took it away.
            assert_eq!(version, written[number].load(Ordering::Acquire));
        }
    }
}

#[test]
fn readers_writers_truncation_and_writeback() {
    let toy = Setup {
        flushers: 2,
        ..Setup::default()
    }
    .build();
    storm(&toy, 1500, Duration::from_secs(3));
}

#[test]
fn the_same_in_little_memory_and_small_blocks() {
    let toy = Setup {
        block: BlockSize::KIB1,
        budget: 1 << 20,
        flushers: 2,
        blocks: 64 << 10,
        ..Setup::default()
    }
    .build();
    storm(&toy, 6000, Duration::from_secs(3));
    let stats = toy.cache.stats();
    assert!(stats.held_bytes <= stats.budget_bytes);
}
