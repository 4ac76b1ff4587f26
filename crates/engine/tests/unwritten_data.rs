//! Data that is on its way from the cache into unwritten space, while the cache drops what is
//! clean: what is zeroed meanwhile stays zero, and what is looked for is found.
//!
//! The device holds the data back until the other threads are at work. Which of them then meets
//! the converted block first is a race, so each test has several rounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extant_blockdev::MemoryDevice;
use extant_engine::{Cred, FallocateMode, Node, SeekTarget, Volume, VolumeOptions};
use extant_testkit::{GatedDevice, Image, Request, RequestKind, wait_until};

const BLOCK: usize = 4096;
/// Enough that a race which is lost in most rounds is lost in one of them.
const ROUNDS: usize = 12;
/// Byte that is written.
const DATA: u8 = 0xAA;

/// A file of unwritten blocks, one for each round.
struct Stage {
    volume: Volume,
    dev: Arc<GatedDevice<MemoryDevice>>,
    node: Node,
}

impl Stage {
    fn new() -> Self {
        let image = Image::of_mib(8).args("-b 4096").junk().make().unwrap();
        let memory = MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap());
        let dev = Arc::new(GatedDevice::new(memory));
        let volume = VolumeOptions::new()
            .write(true)
            .open_on(dev.clone())
            .unwrap();
        let (root, cred) = (volume.root().unwrap(), Cred::root());
        let node = volume.create(&root, b"file", 0o644, &cred).unwrap();
        let mode = FallocateMode::Allocate { keep_size: false };
        let all = (ROUNDS * BLOCK) as u64;
        volume.fallocate(&node, mode, 0, all, &cred).unwrap();
        volume.fsync(&node, false).unwrap();
        Self { volume, dev, node }
    }

    /// Writes the block at `pos`, and calls `beside` while the data is held back on its way to the
    /// device and another thread drops clean pages without end. The data goes on when `beside`
    /// calls the function that it gets, and has been converted when that returns.
    fn race(&self, pos: u64, beside: impl FnOnce(&dyn Fn())) {
        let (volume, node) = (&self.volume, &self.node);
        volume
            .write(node, pos, &[DATA; BLOCK], &Cred::root())
            .unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let closed = self.dev.gate().close(is_data);
            let syncer = scope.spawn(|| volume.fsync(node, false).unwrap());
            closed.wait_for(1);
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    volume.drop_cached(node);
                }
            });
            let closed = std::cell::Cell::new(Some(closed));
            beside(&|| {
                drop(closed.take());
                wait_until("the data", || syncer.is_finished());
            });
            done.store(true, Ordering::Relaxed);
        });
    }

    fn stable_waits(&self) -> u64 {
        let stats = self.volume.stats();
        let found = stats.iter().find(|(name, _)| *name == "stable_waits");
        found.unwrap().1
    }
}

fn is_data(request: &Request<'_>) -> bool {
    request.kind == RequestKind::Write
        && request.data.len() >= BLOCK
        && request.data[..BLOCK].iter().all(|&byte| byte == DATA)
}

/// A range that is zeroed while its block is written: the thread knows the block as unwritten, and
/// finds the folio gone.
fn zeroed_bytes_are_zero(mode: FallocateMode) {
    let stage = Stage::new();
    let (volume, node) = (&stage.volume, &stage.node);
    for round in 0..ROUNDS {
        let pos = (round * BLOCK) as u64;
        stage.race(pos, |go_on| {
            let waits = stage.stable_waits();
            std::thread::scope(|scope| {
                let change = || volume.fallocate(node, mode, pos + 100, 200, &Cred::root());
                let zeroer = scope.spawn(change);
                wait_until("the zeroer", || stage.stable_waits() > waits);
                go_on();
                zeroer.join().unwrap().unwrap();
            });
        });
        for cached in [true, false] {
            let mut found = [0x55; BLOCK];
            volume.read(node, pos, &mut found).unwrap();
            let mut expected = [DATA; BLOCK];
            expected[100..300].fill(0);
            assert!(found == expected, "round {round}, cached: {cached}");
            volume.fsync(node, false).unwrap();
            volume.drop_cached(node);
        }
    }
    volume.unmount().unwrap();
}

#[test]
fn j40_punched_bytes_are_zero_beside_writeback_and_drops() {
    zeroed_bytes_are_zero(FallocateMode::PunchHole);
}

#[test]
fn j40_zeroed_bytes_are_zero_beside_writeback_and_drops() {
    zeroed_bytes_are_zero(FallocateMode::ZeroRange { keep_size: true });
}

/// Data is found at every moment of its way, as a copy must find it.
#[test]
fn data_is_found_beside_writeback_and_drops() {
    let stage = Stage::new();
    let (volume, node) = (&stage.volume, &stage.node);
    for round in 0..ROUNDS {
        let pos = (round * BLOCK) as u64;
        let wrong = AtomicU64::new(0);
        stage.race(pos, |go_on| {
            let (done, looks) = (AtomicBool::new(false), AtomicU64::new(0));
            let begun = AtomicU64::new(0);
            std::thread::scope(|scope| {
                let look = || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    while !done.load(Ordering::Relaxed) {
                        let found = volume.seek(node, SeekTarget::Data(pos));
                        let right = matches!(found, Ok(at) if at == pos);
                        wrong.fetch_add(u64::from(!right), Ordering::Relaxed);
                        looks.fetch_add(1, Ordering::Relaxed);
                    }
                };
                scope.spawn(look);
                scope.spawn(look);
                // They may wait for the folio, which the device has now.
                wait_until("seekers", || begun.load(Ordering::Relaxed) == 2);
                go_on();
                let before = looks.load(Ordering::Relaxed);
                wait_until("looks", || looks.load(Ordering::Relaxed) > before + 2);
                done.store(true, Ordering::Relaxed);
            });
        });
        let wrong = wrong.into_inner();
        assert_eq!(wrong, 0, "round {round}: data was told to be a hole");
    }
    volume.unmount().unwrap();
}
