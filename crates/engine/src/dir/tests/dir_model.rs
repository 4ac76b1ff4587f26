//! Random changes against a map; full and growing indexes.

use std::collections::{BTreeMap, HashSet};

use extant_disk::dir_hash::HashAlgorithm;
use extant_disk::htree::IndexKind;
use extant_units::{Ino, Lblk};

use super::memory_dir::{MemoryDir, OWN, Random, ino};
use crate::dir::dir_store::{Shape, Store as _};
use crate::dir::{entries, position};
use crate::types::error::Error;

const ALGORITHMS: [HashAlgorithm; 3] = [
    HashAlgorithm::Legacy,
    HashAlgorithm::HalfMd4,
    HashAlgorithm::Tea,
];

/// Every block is intact as what it is, the leaves of the index are all there, and the listing is
/// the model.
fn assert_holds(store: &MemoryDir, model: &BTreeMap<String, u32>) {
    let (listed, end) = store.list(position::FIRST, usize::MAX).unwrap();
    assert_eq!(end, position::END);
    assert_eq!(listed.len(), model.len());
    let listed: BTreeMap<_, _> = listed.into_iter().collect();
    assert_eq!(&listed, model);
    assert_eq!(entries::is_empty(store).unwrap(), model.is_empty());
    if store.indexed() {
        let mut leaves = HashSet::new();
        crate::dir::htree::scan(store, |lblk, _| {
            assert!(leaves.insert(lblk), "one way leads to each leaf");
            Ok(None::<()>)
        })
        .unwrap();
        let nodes = (1..store.blocks())
            .filter(|raw| {
                let data = store.data(&(*raw as usize));
                store.profile.format.looks_like_node(&data)
                    && store
                        .read(Lblk::new(*raw), Shape::Index(IndexKind::Node))
                        .is_ok()
            })
            .count();
        assert_eq!(leaves.len() + nodes + 1, store.blocks() as usize);
    }
}

#[test]
fn random_changes_agree_with_a_map() {
    for (round, algorithm) in ALGORITHMS.into_iter().cycle().take(9).enumerate() {
        let mut store = MemoryDir::new(10, round % 2 == 0, algorithm);
        store.profile.dir_index = round < 6;
        let mut random = Random(round as u64);
        let mut model: BTreeMap<String, u32> = BTreeMap::new();
        for step in 0..6000 {
            // Grow for a while, then shrink.
            let grow = if step < 4000 { 3 } else { 1 };
            let number = random.below(3000);
            let name = format!("{number:0w$}", w = 1 + number % 90);
            let to = u32::try_from(1 + random.below(10_000)).unwrap();
            let found = store.find(&name).unwrap();
            assert_eq!(found, model.get(&name).copied());
            match found {
                None if random.below(4) < grow => {
                    store.insert(&name, to).unwrap();
                    model.insert(name, to);
                }
                None => {}
                Some(old) if random.below(5) == 0 => {
                    let kind = extant_disk::dirent::FileType::Fifo;
                    store.retarget(&name, old, (ino(to), kind)).unwrap();
                    model.insert(name, to);
                }
                Some(old) if random.below(4) >= grow => {
                    store.remove(&name, old).unwrap();
                    model.remove(&name);
                }
                Some(_) => {}
            }
            if step % 500 == 0 {
                assert_holds(&store, &model);
            }
        }
        assert_eq!(store.indexed(), store.profile.dir_index);
        for (name, to) in std::mem::take(&mut model) {
            store.remove(&name, to).unwrap();
        }
        assert_holds(&store, &model);
    }
}

#[test]
fn many_names_in_few_reads() {
    for algorithm in ALGORITHMS {
        let store = MemoryDir::new(12, false, algorithm);
        for i in 0..30_000_u32 {
            store.insert(&format!("file-{i:06}"), i + 20).unwrap();
        }
        store.reads.set(0);
        for i in (0..30_000_u32).step_by(97) {
            assert_eq!(store.find(&format!("file-{i:06}")).unwrap(), Some(i + 20));
            assert_eq!(store.find(&format!("none-{i:06}")).unwrap(), None);
        }
        // Root, node, leaf; a few names continue in another leaf.
        assert!(
            store.reads.get() < 2 * 310 * 3 + 20,
            "{}",
            store.reads.get()
        );
        let (listed, _) = store.list(0, usize::MAX).unwrap();
        assert_eq!(listed.len(), 30_002);
        let names: HashSet<_> = listed.into_iter().map(|(name, _)| name).collect();
        assert_eq!(names.len(), 30_002, "each once");
    }
}

/// Names that share their major hash with another: of so many there are some.
fn equal_names(store: &MemoryDir, wanted: usize) -> Vec<String> {
    let hasher = store.profile.new_hasher();
    let name = |i: u32| format!("{i:x}");
    let mut hashed: Vec<(u32, u32)> = (0..2_000_000)
        .map(|i| (hasher.hash(name(i).as_bytes()).major, i))
        .collect();
    hashed.sort_unstable();
    let equal = hashed.chunk_by(|a, b| a.0 == b.0).filter(|c| c.len() > 1);
    equal
        .flatten()
        .take(wanted)
        .map(|(_, i)| name(*i))
        .collect()
}

#[test]
fn names_of_equal_hash_are_all_found_and_listed_once() {
    let store = MemoryDir::new(10, true, HashAlgorithm::Legacy);
    let names = equal_names(&store, 600);
    assert_eq!(names.len(), 600);
    let mut model = BTreeMap::new();
    for (name, to) in names.iter().zip(20..) {
        store.insert(name, to).unwrap();
        model.insert(name.clone(), to);
    }
    for (name, to) in &model {
        assert_eq!(store.find(name).unwrap(), Some(*to));
    }
    assert_holds(&store, &model);
    let mut from = position::FIRST;
    let mut seen = Vec::new();
    while from < position::END {
        let (some, next) = store.list(from, 1).unwrap();
        seen.extend(some);
        from = next;
    }
    assert_eq!(seen.len(), 600);
    assert_eq!(seen.into_iter().collect::<BTreeMap<_, _>>(), model);
}

#[test]
fn a_full_index_says_no_space_and_keeps_its_entries() {
    let store = MemoryDir::new(10, false, HashAlgorithm::HalfMd4);
    // Names of 250 bytes: three to a leaf, 123 + 123 * 127 leaves.
    let name = |i: u32| format!("{i:0250}");
    let mut count = 0;
    let full = loop {
        match store.insert(&name(count), count + 20) {
            Ok(()) => count += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::NoSpace));
    assert!(count > 20_000, "{count}");
    for i in (0..count).step_by(101) {
        assert_eq!(store.find(&name(i)).unwrap(), Some(i + 20));
    }
    assert_eq!(
        store.list(position::FIRST, usize::MAX).unwrap().0.len(),
        count as usize
    );

    // The same directory with large_dir goes on.
    let mut store = store;
    store.profile.max_levels = 2;
    for i in count..count + 3000 {
        store.insert(&name(i), i + 20).unwrap();
    }
    assert_eq!(store.find(&name(count + 2999)).unwrap(), Some(count + 3019));
    let listed = store.list(position::FIRST, usize::MAX).unwrap().0;
    assert_eq!(listed.len(), count as usize + 3000);
}

#[test]
fn no_space_on_the_way_loses_nothing() {
    // Every insertion that fails leaves an intact directory; the name fits once there is space
    // again.
    let store = MemoryDir::new(10, true, HashAlgorithm::Tea);
    let mut model = BTreeMap::new();
    let mut failed = 0;
    for i in 0..4000_u32 {
        let name = format!("{i:0100}");
        store.space.set(0);
        match store.insert(&name, i + 20) {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                failed += 1;
                assert_eq!(store.find(&name).unwrap(), None);
                if failed % 50 == 0 {
                    assert_holds(&store, &model);
                }
                store.space.set(1);
                while let Err(error) = store.insert(&name, i + 20) {
                    assert!(matches!(error, Error::NoSpace));
                    store.space.set(1);
                }
            }
            Err(other) => panic!("{other}"),
        }
        model.insert(name, i + 20);
    }
    assert!(failed > 400);
    assert_holds(&store, &model);
}

#[test]
fn the_parent_can_change_in_both_forms() {
    let store = MemoryDir::new(10, true, HashAlgorithm::HalfMd4);
    assert_eq!(entries::dots(&store).unwrap(), (ino(OWN), Ino::ROOT));
    entries::set_parent(&store, &mut (), ino(99)).unwrap();
    assert_eq!(entries::dots(&store).unwrap(), (ino(OWN), ino(99)));
    for i in 0..200 {
        store.insert(&format!("{i:050}"), 20).unwrap();
    }
    assert!(store.indexed());
    assert_eq!(entries::dots(&store).unwrap(), (ino(OWN), ino(99)));
    entries::set_parent(&store, &mut (), ino(98)).unwrap();
    assert_eq!(entries::dots(&store).unwrap(), (ino(OWN), ino(98)));
    assert_eq!(
        store
            .find("00000000000000000000000000000000000000000000000007")
            .unwrap(),
        Some(20)
    );
}

#[test]
fn without_the_feature_an_index_is_read_linearly_and_dropped_by_a_change() {
    let mut store = MemoryDir::new(10, false, HashAlgorithm::HalfMd4);
    let mut model = BTreeMap::new();
    for i in 0..3000_u32 {
        store.insert(&format!("n{i}"), i + 20).unwrap();
        model.insert(format!("n{i}"), i + 20);
    }
    assert!(store.indexed());
    store.profile.dir_index = false;
    assert_holds(&store, &model);
    assert_eq!(store.find("n1234").unwrap(), Some(1254));
    assert!(store.index_flag.get(), "reading changes nothing");
    for i in 0..300 {
        store.insert(&format!("later{i}"), 7).unwrap();
        model.insert(format!("later{i}"), 7);
    }
    assert!(!store.index_flag.get());
    store.profile.dir_index = true;
    assert_holds(&store, &model);
}
