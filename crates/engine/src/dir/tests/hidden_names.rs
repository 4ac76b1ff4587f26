//! Directories that encrypt names and fold their case.

use std::collections::BTreeMap;

use extant_disk::dir_hash::HashAlgorithm;

use super::memory_dir::{MemoryDir, Random};
use crate::dir::dir_store::Store as _;
use crate::dir::name_form::NameForm;
use crate::dir::{entries, position};
use crate::types::error::Error;

fn hidden(csum: bool) -> MemoryDir {
    let mut store = MemoryDir::new(10, csum, HashAlgorithm::HalfMd4);
    store.hide_and_fold();
    store
}

/// A name in one of its spellings.
fn name_of(number: usize, random: &mut Random) -> String {
    let long = "Straße Å".repeat(1 + number % 9);
    let name = format!("{number} {long}");
    match random.below(3) {
        0 => name.to_uppercase(),
        1 => name.to_lowercase(),
        _ => name,
    }
}

fn listed(store: &MemoryDir) -> BTreeMap<Vec<u8>, u32> {
    let (listed, _) = store.list(position::FIRST, usize::MAX).unwrap();
    let count = listed.len();
    let folded = |name: &str| extant_casefold::key(name.as_bytes()).into_owned();
    let listed: BTreeMap<_, _> = listed
        .into_iter()
        .map(|(name, to)| (folded(&name), to))
        .collect();
    assert_eq!(listed.len(), count, "each once");
    listed
}

/// Names come and go in any spelling, with an index and without.
#[test]
fn names_are_found_in_any_spelling() {
    for round in 0..4 {
        let mut store = hidden(round % 2 == 0);
        store.profile.dir_index = round < 2;
        let mut random = Random(round);
        let mut model = BTreeMap::new();
        for step in 0..2500 {
            let number = random.below(500);
            let name = name_of(number, &mut random);
            let folded = extant_casefold::key(name.as_bytes()).into_owned();
            let to = u32::try_from(1 + random.below(10_000)).unwrap();
            let found = store.find(&name).unwrap();
            assert_eq!(found, model.get(&folded).copied(), "{name}");
            match found {
                None => {
                    store.insert(&name, to).unwrap();
                    model.insert(folded, to);
                }
                Some(old) if random.below(2) == 0 => {
                    store.remove(&name, old).unwrap();
                    model.remove(&folded);
                }
                Some(_) => {}
            }
            if step % 250 == 0 {
                assert_eq!(listed(&store), model);
            }
        }
        assert_eq!(store.indexed(), round < 2);
        assert_eq!(listed(&store), model);
        // What is shown without the key leads to the entries as well.
        store.profile.names = NameForm::Hidden;
        let (shown, _) = store.list(position::FIRST, usize::MAX).unwrap();
        assert_eq!(shown.len(), model.len());
        for (name, to) in shown {
            let found = crate::dir::find(&store, name.as_bytes()).unwrap();
            assert_eq!(found.unwrap().ino.get(), to);
        }
    }
}

/// A listing goes on where it ended, though the directory gets an index and its leaves are split.
#[test]
fn a_listing_keeps_its_place() {
    let store = hidden(true);
    let mut random = Random(9);
    let stays: Vec<String> = (0..8).map(|number| format!("stays {number}")).collect();
    for name in &stays {
        store.insert(name, 77).unwrap();
    }
    let (mut seen, mut from) = store.list(position::FIRST, 3).unwrap();
    for number in 0..400 {
        store.insert(&name_of(number, &mut random), 20).unwrap();
        if number % 40 == 0 {
            let (some, next) = store.list(from, 1).unwrap();
            seen.extend(some);
            from = next;
        }
    }
    assert!(store.indexed());
    seen.extend(store.list(from, usize::MAX).unwrap().0);
    let mut seen: Vec<_> = seen
        .into_iter()
        .filter(|(_, to)| *to == 77)
        .map(|(name, _)| name)
        .collect();
    seen.sort();
    assert_eq!(seen, stays);
}

/// An index of other hashes is not followed; an entry in a leaf of others is damage.
#[test]
fn wrong_hashes_are_named() {
    let store = hidden(false);
    let mut random = Random(9);
    for number in 0..200 {
        store.insert(&name_of(number, &mut random), 20).unwrap();
    }
    assert_eq!(store.blocks.borrow()[0][28], 6);
    store.blocks.borrow_mut()[0][28] = 1;
    let found = store.find("any");
    assert!(matches!(found, Err(Error::NotSupported(_))), "{found:?}");
    store.blocks.borrow_mut()[0][28] = 6;

    // The hash of a leaf's first entry.
    let at = 8 + usize::from(store.blocks.borrow()[1][6]).next_multiple_of(4);
    for byte in &mut store.blocks.borrow_mut()[1][at..at + 4] {
        *byte ^= 0xff;
    }
    let listed = store.list(position::FIRST, usize::MAX);
    assert!(matches!(listed, Err(Error::Corrupt { .. })), "{listed:?}");
    assert!(!entries::is_empty(&store).unwrap());
}
