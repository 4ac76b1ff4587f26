//! Large folios on the buffer-head path: what each must cost, and no more.

mod rig;
#[path = "../../iomap/tests/toy/mod.rs"]
mod toy;

use std::sync::atomic::Ordering;

use extant_bufferhead::BufferState;
use extant_iomap::{Miss, read, zero_range};
use extant_pagecache::RecentFolios;
use extant_units::{BlockSize, Pos};
use rig::Rig;
use toy::{Rng, Setup};

const FOLIO: usize = 2 << 20;

fn small_blocks() -> Setup {
    Setup {
        block: BlockSize::KIB1,
        blocks: 64 << 10,
        ..Setup::default()
    }
}

/// A file of one folio whose 2048 blocks lie apart from each other on the device.
fn scattered() -> (Rig, Vec<u8>) {
    let rig = Rig::new(small_blocks(), true);
    let bytes = Rng(5).bytes(FOLIO);
    rig.toy.max_map.store(1, Ordering::Relaxed);
    // Every second block first, so that no two neighbours are neighbours on the device.
    for start in [0, 1024] {
        for pos in (start..FOLIO).step_by(2048) {
            rig.write(pos as u64, &bytes[pos..pos + 1024]).unwrap();
        }
        rig.sync().unwrap();
    }
    rig.toy.pages.drop_range(
        &rig.toy.pages.invalidate_lock().write(),
        Pos::ZERO,
        Pos::MAX,
    );
    (rig, bytes)
}

/// The map may still lead to the bytes of a part that was dropped: a reader that waits for no lock
/// finds them on the device, and no zeros in their place.
#[test]
fn a_part_that_was_dropped_is_read_again() {
    let rig = Rig::new(small_blocks(), true);
    let bytes = Rng(7).bytes(8 << 10);
    rig.write(0, &bytes).unwrap();
    rig.sync().unwrap();
    let no_fills = rig.toy.pages.invalidate_lock().write();
    let from = Pos::new(2560);
    rig.toy.pages.drop_range(&no_fills, from, Pos::MAX);
    drop(no_fills);
    rig.check_rings();
    let mut back = vec![0; bytes.len()];
    let done = read(
        &rig,
        &RecentFolios::default(),
        Miss::Fill(&rig.toy.readahead),
        Pos::ZERO,
        &mut back[..],
    );
    assert_eq!(done.unwrap(), bytes.len());
    // Only the part of a block is zeros.
    let mut expected = bytes;
    expected[2560..3072].fill(0);
    assert!(back == expected);
    rig.check_rings();
}

#[test]
fn large_01_02_a_folio_of_2048_separate_blocks_is_filled_in_one_go() {
    let (rig, bytes) = scattered();
    // A large folio with records and without content: a write of its size whose source is dry.
    let nothing = rig.write_from(0, FOLIO, &mut rig::Dry(&[]));
    assert_eq!(nothing.unwrap(), 0);
    let mut back = vec![0; FOLIO];
    let done = read(
        &rig,
        &RecentFolios::default(),
        Miss::Fill(&rig.toy.readahead),
        Pos::ZERO,
        &mut back[..],
    )
    .unwrap();
    assert_eq!(done, FOLIO);
    assert!(back == bytes);
    let folios = rig.folios();
    assert_eq!((folios.len(), folios[0].order), (1, 9));
    let ring = folios[0].ring.as_ref().unwrap();
    assert_eq!(ring.records().count(), 2048);
    assert!(
        ring.records()
            .all(|record| record.is(BufferState::UPTODATE))
    );
    assert!(
        rig.toy.stats.fill_reads.get() >= 2048,
        "each block is a read of its own"
    );
}

#[test]
fn large_03_a_write_is_trimmed_to_its_folio() {
    let rig = Rig::new(Setup::default(), true);
    // From the second page on: folios grow with the alignment of where they begin.
    let counted = rig.counted(|| {
        rig.write(4096, &vec![7; 1 << 20]).unwrap();
    });
    let orders: Vec<_> = rig.folios().iter().map(|folio| folio.order).collect();
    assert_eq!(orders, [0, 1, 2, 3, 4, 5, 6, 7, 0]);
    assert_eq!(counted.begins, 9, "one folio at a time");
    // One that is there already is used as it is, whatever its size.
    let counted = rig.counted(|| {
        rig.write(4096 + 100, &vec![8; 20_000]).unwrap();
    });
    assert_eq!(counted.begins, 3);
}

#[test]
fn large_04_a_part_is_zeroed_where_the_folio_says() {
    let rig = Rig::new(small_blocks(), true);
    let mut bytes = Rng(6).bytes(FOLIO);
    rig.write(0, &bytes).unwrap();
    rig.sync().unwrap();
    for (pos, len) in [(1_500_100, 300), (1_048_576, 1024), (700_001, 70_000)] {
        zero_range(&rig, Pos::new(pos as u64), len as u64).unwrap();
        bytes[pos..pos + len].fill(0);
    }
    rig.check_rings();
    let folios = rig.folios();
    assert_eq!(folios.len(), 1);
    assert!(folios[0].bytes == bytes);
    let dirty = folios[0].state.iter().filter(|(_, dirty)| *dirty).count();
    assert_eq!(
        dirty,
        1 + 1 + 70,
        "the blocks of those bytes, and no others"
    );
    rig.sync().unwrap();
    assert!(rig.toy.on_disk() == bytes);
}

#[test]
fn large_05_06_fragments_cost_extents_not_folios() {
    let rig = Rig::new(small_blocks(), true);
    rig.credits.store(10, Ordering::Relaxed);
    let bytes = vec![3; FOLIO];
    rig.write(0, &bytes).unwrap();
    let whole = rig.counted(|| {
        rig.sync().unwrap();
    });
    assert_eq!(
        (whole.extent_maps, whole.restarts),
        (1, 0),
        "one run, one extent"
    );
    let (rig, _) = scattered();
    rig.credits.store(10, Ordering::Relaxed);
    // Unwritten fragments anew: every second block is delayed.
    rig.toy.truncate(0);
    for pos in (0..FOLIO).step_by(2048) {
        rig.write(pos as u64, &[9; 1024]).unwrap();
    }
    let fragments = rig.counted(|| {
        rig.sync().unwrap();
    });
    assert_eq!(fragments.extent_maps, 1024);
    assert!(fragments.restarts >= 1024 / 10 - 1, "{fragments:?}");
    assert_eq!(rig.toy.reserved(), 0);
    rig.check_rings();
}
