//! Directories with broken bytes: errors, never panics, never without end.

use extant_disk::dir_hash::HashAlgorithm;
use extant_units::Lblk;

use super::memory_dir::{MemoryDir, Random, ino};
use crate::dir::dir_store::Store as _;
use crate::dir::{entries, position};
use crate::types::error::{Error, Location};

fn attack(store: &MemoryDir, random: &mut Random) -> (u32, u32) {
    let (mut fine, mut corrupt) = (0, 0);
    let mut note = |result: Result<(), Error>| match result {
        Ok(()) => fine += 1,
        Err(Error::Corrupt { location, .. }) => {
            assert!(matches!(location, Location::DirBlock(..)));
            corrupt += 1;
        }
        Err(Error::NoSpace | Error::NotFound) => {}
        Err(other) => panic!("{other}"),
    };
    store.reads.set(0);
    for i in 0..20 {
        let name = format!("n{}", i * 37);
        note(store.find(&name).map(drop));
        note(store.insert(&format!("new{i}"), 9));
        note(store.remove(&name, 20 + i * 37));
        let kind = extant_disk::dirent::FileType::Regular;
        note(store.retarget(&name, 9, (ino(10), kind)));
    }
    note(entries::is_empty(store).map(drop));
    note(entries::set_parent(store, &mut (), ino(5)));
    note(store.list(0, 5000).map(drop));
    note(
        store
            .list((random.below(usize::MAX) as u64) >> 1, 5000)
            .map(drop),
    );
    assert!(
        store.reads.get() < 2_000_000,
        "work is bounded: {} reads",
        store.reads.get()
    );
    (fine, corrupt)
}

#[test]
fn broken_bytes_give_errors() {
    let mut random = Random(8);
    let (mut fine, mut corrupt) = (0, 0);
    for round in 0..400_u32 {
        let store = MemoryDir::new(10, false, HashAlgorithm::HalfMd4);
        let names = [10, 200, 3000][(round % 3) as usize];
        if round % 3 == 2 && round % 20 != 2 {
            continue; // the large ones are slow to make
        }
        for i in 0..names {
            store.insert(&format!("n{i}"), 20 + i).unwrap();
        }
        for _ in 0..=random.below(12) {
            let mut blocks = store.blocks.borrow_mut();
            // The root and its table more often than the rest.
            let (often, any) = (random.below(2), random.below(blocks.len()));
            let block = often * any;
            let range = [64, 1024][random.below(2)];
            let at = random.below(range);
            blocks[block][at] = u8::try_from(random.below(256)).unwrap();
        }
        let (f, c) = attack(&store, &mut random);
        fine += f;
        corrupt += c;
    }
    assert!(fine > 500 && corrupt > 500, "{fine} {corrupt}");
}

#[test]
fn index_entries_that_lead_astray_are_damage() {
    let make = || {
        let store = MemoryDir::new(10, false, HashAlgorithm::HalfMd4);
        for i in 0..200 {
            store.insert(&format!("n{i}"), 20).unwrap();
        }
        store
    };
    let blocks = make().blocks();
    // To the root, past the end; all to one leaf, whose entries then have no business in most
    // places.
    for target in [0, blocks, u32::MAX >> 4, 1] {
        let store = make();
        for entry in 0..12 {
            let at = 32 + 8 * entry + 4;
            store.blocks.borrow_mut()[0][at..at + 4].copy_from_slice(&target.to_le_bytes());
        }
        let listed = store.list(position::FIRST, usize::MAX);
        assert!(matches!(listed, Err(Error::Corrupt { .. })), "{target}");
    }
}

#[test]
fn a_run_of_equal_hashes_over_all_leaves_keeps_memory_bounded() {
    // All keys say "continues": a reader must take the leaves as one run, a lookup must not loop.
    let store = MemoryDir::new(12, false, HashAlgorithm::HalfMd4);
    for i in 0..40_000 {
        store.insert(&format!("n{i}"), 20).unwrap();
    }
    let data = store.data(&0);
    let count = usize::from(u16::from_le_bytes([data[34], data[35]]));
    for entry in 1..count {
        store.blocks.borrow_mut()[0][32 + 8 * entry..][..4].copy_from_slice(&1_u32.to_le_bytes());
    }
    assert!(store.list(position::FIRST, usize::MAX).is_err());
    assert!(store.find("n77").is_ok());
    assert!(
        store
            .read(Lblk::ZERO, crate::dir::dir_store::Shape::Leaf)
            .is_ok()
    );
}
