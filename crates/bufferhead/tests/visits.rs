//! Records that a write visits: the rows of the tail walk.

mod rig;
#[path = "../../iomap/tests/toy/mod.rs"]
mod toy;

use extant_units::BlockSize;
use rig::Rig;
use toy::Setup;

const FOLIO: u64 = 2 << 20;

/// A file of one folio of 2 MiB, written as a whole.
fn one_folio(block: BlockSize, stop: bool) -> Rig {
    let setup = Setup {
        block,
        ..Setup::default()
    };
    let rig = Rig::new(setup, stop);
    rig.write(0, &vec![7; usize::try_from(FOLIO).unwrap()])
        .unwrap();
    assert_eq!(rig.folios().len(), 1, "one folio of 2 MiB");
    rig
}

#[test]
fn tail_t1_t2_visits_end_with_the_range_in_an_uptodate_folio() {
    for (log2, n) in [(10, 2048), (12, 512)] {
        let block = BlockSize::from_log2(log2).unwrap();
        let size = block.bytes_u64();
        for (offset, len) in [
            (0, 1024),
            (0, 10 << 10),
            (0, 100 << 10),
            (FOLIO / 2, 1024),
            (FOLIO - 1024, 1024),
        ] {
            let to = (offset + len).div_ceil(size);
            for (stop, expected) in [(true, to), (false, n)] {
                let rig = one_folio(block, stop);
                let data = vec![9; usize::try_from(len).unwrap()];
                let counted = rig.counted(|| {
                    rig.write(offset, &data).unwrap();
                });
                let got = (counted.begin_visits, counted.commit_visits);
                let what = format!("{len} bytes at {offset} with blocks of {size}, stop {stop}");
                assert_eq!(got, (expected, expected), "{what}");
                assert_eq!(counted.block_maps, 0, "{what}");
            }
        }
    }
}

#[test]
fn tail_t1_t2_a_folio_that_is_not_uptodate_is_walked_to_its_end() {
    for stop in [true, false] {
        let rig = one_folio(BlockSize::KIB4, stop);
        rig.sync().unwrap();
        rig.toy.pages.drop_range(
            &rig.toy.pages.invalidate_lock().write(),
            extant_units::Pos::ZERO,
            extant_units::Pos::MAX,
        );
        // A write of the folio's size that runs dry leaves a large folio without content.
        let nothing = rig.write_from(0, usize::try_from(FOLIO).unwrap(), &mut rig::Dry(&[]));
        assert_eq!(nothing.unwrap(), 0);
        let counted = rig.counted(|| {
            rig.write(0, &[1; 1024]).unwrap();
        });
        assert_eq!((counted.begin_visits, counted.commit_visits), (512, 512));
        assert_eq!(counted.edge_reads, 1, "the rest of the block is read");
        rig.check_rings();
    }
}

#[test]
fn append_a5_the_size_on_disk_moves_early_only_over_written_space() {
    let rig = Rig::new(Setup::default(), true);
    rig.write(0, &[1; 1000]).unwrap();
    rig.write(1000, &[2; 1000]).unwrap();
    let delayed: Vec<_> = rig.wrote.lock().unwrap().drain(..).collect();
    assert!(delayed.iter().all(|w| w.grew() && !w.last_block_written));
    rig.sync().unwrap();
    // The same block, now written: no writeback will choose a place for it.
    rig.write(2000, &[3; 1000]).unwrap();
    // The next one: delayed.
    rig.write(3000, &[4; 2000]).unwrap();
    // Inside of the file.
    rig.write(0, &[5; 10]).unwrap();
    let wrote: Vec<_> = rig.wrote.lock().unwrap().drain(..).collect();
    let seen: Vec<_> = wrote
        .iter()
        .map(|w| (w.grew(), w.last_block_written))
        .collect();
    let grown: Vec<_> = seen.iter().filter(|(grew, _)| *grew).map(|s| s.1).collect();
    assert!(grown[0], "written space: {seen:?}");
    assert!(!grown[grown.len() - 1], "delayed space: {seen:?}");
    assert!(!seen[seen.len() - 1].0, "inside: {seen:?}");
}
