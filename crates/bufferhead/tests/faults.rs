//! Short writes, lack of space, lack of credits, and devices that fail.

mod rig;
#[path = "../../iomap/tests/toy/mod.rs"]
mod toy;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_bufferhead::{BufferState, write_ordered};
use extant_iomap::IomapOps;
use extant_testkit::{Fault, FaultyDevice, RequestKind};
use extant_units::{BlockSize, Pos};
use rig::{Dry, Rig};
use toy::{Setup, ToyError};

#[test]
fn a_short_write_gives_back_what_it_did_not_use() {
    let rig = Rig::new(Setup::default(), true);
    let done = rig.write_from(0, 100_000, &mut Dry(&[1; 5000])).unwrap();
    // The folio was not uptodate: only whole attempts count, until the folio is small enough.
    assert!(done <= 5000);
    assert_eq!(
        rig.toy.reserved(),
        rig.toy.pages.dirty_bytes() / 4096,
        "each reserved block is dirty"
    );
    rig.check_rings();
    rig.sync().unwrap();
    assert_eq!(rig.toy.reserved(), 0);
}

#[test]
fn lack_of_space_ends_a_write_at_the_last_block_that_had_some() {
    let setup = Setup {
        block: BlockSize::KIB4,
        blocks: 8,
        ..Setup::default()
    };
    let rig = Rig::new(setup, true);
    // Into an uptodate folio below the end of the file: the blocks that got space stay dirty.
    rig.toy.truncate(64 << 10);
    let stopped = rig.write(0, &[3; 64 << 10]).unwrap_err();
    assert!(matches!(stopped.error, ToyError::NoSpace));
    rig.check_rings();
    assert_eq!(rig.toy.reserved(), rig.toy.pages.dirty_bytes() / 4096);
    rig.sync().unwrap();
    assert_eq!(rig.toy.reserved(), 0);

    // Past the end: nothing stays.
    let setup = Setup {
        block: BlockSize::KIB4,
        blocks: 8,
        ..Setup::default()
    };
    let rig = Rig::new(setup, true);
    let stopped = rig.write(0, &[3; 64 << 10]).unwrap_err();
    assert!(matches!(stopped.error, ToyError::NoSpace));
    assert_eq!(rig.toy.reserved(), 0);
    assert_eq!(rig.toy.pages.dirty_bytes(), 0);
}

/// The file system decides how often to try again for space. After it has given up, each block is
/// asked for once.
#[test]
fn a_place_is_looked_for_as_long_as_room_can_be_made() {
    for (crowd, arrives) in [(20, true), (1021, false)] {
        let rig = Rig::new(Setup::default(), true);
        rig.write(0, &[1; 64 << 10]).unwrap();
        rig.crowd.store(crowd, Ordering::Relaxed);
        rig.patience.store(20, Ordering::Relaxed);
        let before = rig.buffers.snapshot().extent_maps;
        if arrives {
            rig.sync().unwrap();
            assert!(rig.toy.on_disk() == [1; 64 << 10]);
        } else {
            rig.sync().unwrap_err();
            assert_eq!(rig.crowd.load(Ordering::Relaxed), 1000);
            let asked = rig.buffers.snapshot().extent_maps - before;
            assert_eq!(asked, 21 + 16, "once for each block then");
        }
        assert_eq!(rig.toy.reserved(), 0);
        assert_eq!(rig.toy.pages.dirty_bytes(), 0);
        rig.check_rings();
    }
}

#[test]
fn large_03_04_credits_run_out_in_the_middle_of_a_folio() {
    let setup = Setup {
        block: BlockSize::KIB1,
        blocks: 64 << 10,
        ..Setup::default()
    };
    let rig = Rig::new(setup, true);
    let bytes = vec![5; 2 << 20];
    rig.write(0, &bytes).unwrap();
    // Every block becomes an extent of its own.
    rig.toy.max_map.store(1, Ordering::Relaxed);
    rig.credits.store(100, Ordering::Relaxed);
    let counted = rig.counted(|| {
        rig.sync().unwrap();
    });
    assert_eq!(counted.extent_maps, 2048);
    assert_eq!(counted.restarts, 2048 / 100);
    assert_eq!(rig.toy.reserved(), 0);
    assert!(rig.toy.on_disk() == bytes);
    rig.check_rings();
}

#[test]
fn a_failed_write_converts_nothing_and_is_reported() {
    let broken = Arc::new(AtomicBool::new(false));
    let setup = Setup::default();
    let plan = {
        let broken = broken.clone();
        move |request: extant_testkit::Request| {
            if request.kind == RequestKind::Write && broken.load(Ordering::SeqCst) {
                Fault::Fail(std::io::ErrorKind::Other)
            } else {
                Fault::Pass
            }
        }
    };
    let device = Arc::new(FaultyDevice::new(setup.device(), plan));
    let mut rig = Rig::new(Setup::default(), true);
    rig.toy = setup.build_on(device);
    rig.write(0, &[1; 8192]).unwrap();
    broken.store(true, Ordering::SeqCst);
    let cursor = rig.toy.pages.errors().cursor();
    assert!(rig.sync().is_err());
    assert!(rig.toy.pages.errors().check(&cursor).is_some());
    assert_eq!(rig.toy.pages.dirty_bytes(), 0, "nothing piles up");
    for folio in rig.folios() {
        for record in folio.ring.iter().flat_map(|ring| ring.records()) {
            assert!(!record.is(BufferState::ASYNC_WRITE));
        }
    }
    // The blocks still read as zero after a crash.
    assert!(rig.toy.on_disk().iter().all(|&byte| byte == 0));
    broken.store(false, Ordering::SeqCst);
    rig.write(0, &[2; 8192]).unwrap();
    rig.sync().unwrap();
    assert!(rig.toy.on_disk() == [2; 8192]);
    rig.toy.pages.drop_range(
        &rig.toy.pages.invalidate_lock().write(),
        Pos::ZERO,
        Pos::MAX,
    );
}

/// A completion converts unwritten space, under a handle. A thread that waits for the writeback of
/// a folio relies on that: the next commit has the conversion.
#[test]
fn j21_writeback_ends_after_its_metadata_has_joined() {
    let rig = Rig::new(Setup::default(), true);
    rig.write(0, &[1; 8192]).unwrap();
    rig.sync().unwrap();
    let completed = rig.completed.lock().unwrap().clone();
    assert!(!completed.is_empty());
    assert!(completed.iter().all(|under| *under), "{completed:?}");
    let folio = rig.toy.pages.next(Pos::ZERO).unwrap();
    assert!(!folio.is_under_writeback(), "the pass has ended");
}

/// A write that makes the file longer over written space moves the size on disk after its folio is
/// unlocked. A commit that comes in between writes the data, and leaves the size to the write:
/// moving it would take a handle, on the thread that commits.
#[test]
fn a_commit_writes_ordered_data_and_starts_no_handle() {
    let rig = Rig::new(Setup::default(), true);
    rig.write(0, &[1; 1000]).unwrap();
    rig.sync().unwrap();
    rig.write(1000, &[2; 1000]).unwrap();
    assert_eq!((rig.size(), rig.toy.disk_size()), (2000, 1000));
    write_ordered(&rig, Pos::ZERO, Pos::MAX).unwrap();
    assert_eq!(rig.toy.pages.dirty_bytes(), 0);
    assert_eq!(rig.toy.disk_size(), 1000);
    rig.toy.raise_disk_size(2000);
    assert!(rig.toy.on_disk()[1000..] == [2; 1000]);
    rig.check_rings();
}

/// Writeback of data that goes through the journal logs it, and allocates space for what has none.
#[test]
fn logged_blocks_get_space_once() {
    let rig = Rig::new(Setup::default(), true);
    rig.write(0, &[1; 8192]).unwrap();
    rig.sync().unwrap();
    rig.at_once.store(true, Ordering::Relaxed);
    rig.write(4096, &[2; 4096]).unwrap();
    rig.at_once.store(false, Ordering::Relaxed);
    rig.write(8192, &[3; 4096]).unwrap();
    rig.allocated.lock().unwrap().clear();
    rig.logs.store(true, Ordering::Relaxed);
    rig.at_once.store(true, Ordering::Relaxed);
    assert_eq!(rig.sync().unwrap(), 8192);
    assert_eq!(*rig.logged.lock().unwrap(), [2, 3]);
    assert_eq!(
        *rig.allocated.lock().unwrap(),
        [8192],
        "the other has its own"
    );
    assert_eq!((rig.toy.reserved(), rig.toy.pages.dirty_bytes()), (0, 0));
    rig.check_rings();
}
