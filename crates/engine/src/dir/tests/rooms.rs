//! The room for an entry, as the search for its name met it.

use extant_disk::dir_hash::HashAlgorithm;

use super::memory_dir::{MemoryDir, Random, entry, ino};
use crate::dir::dir_store::Store as _;
use crate::dir::entries;
use crate::dir::room::{NameOrRoom, Room};

/// The room for a name that the directory does not have.
fn room(store: &MemoryDir, name: &str) -> Option<Room<usize>> {
    match store.find_or_room(name).unwrap() {
        NameOrRoom::Name => panic!("{name} is there"),
        NameOrRoom::Room(room) => room,
    }
}

/// Two directories get the same names, one of them into the room of the search. With and without
/// an index, and where a feature that goes has the index dropped.
#[test]
fn an_entry_goes_where_an_insertion_alone_puts_it() {
    let algorithms = [HashAlgorithm::Legacy, HashAlgorithm::HalfMd4];
    for (round, algorithm) in algorithms.into_iter().cycle().take(6).enumerate() {
        let mut pair = [(); 2].map(|()| MemoryDir::new(10, round % 4 == 0, algorithm));
        let mut random = Random(round as u64);
        let mut met = 0;
        for step in 0..4000 {
            for store in &mut pair {
                store.profile.dir_index = round < 2 || (round < 4 && step < 2000);
            }
            let [searched, alone] = &pair;
            let number = random.below(1500);
            let name = format!("{number:0w$}", w = 1 + number % 90);
            match searched.find_or_room(&name).unwrap() {
                NameOrRoom::Name if random.below(3) > 0 => {
                    searched.remove(&name, 77).unwrap();
                    alone.remove(&name, 77).unwrap();
                }
                NameOrRoom::Name => {}
                NameOrRoom::Room(room) => {
                    met += u32::from(room.is_some());
                    searched.insert_into(&name, 77, room.as_ref()).unwrap();
                    alone.insert(&name, 77).unwrap();
                }
            }
            if step % 100 == 0 {
                assert!(
                    searched.blocks == alone.blocks,
                    "step {step} of round {round}"
                );
            }
        }
        let [searched, alone] = pair;
        assert!(searched.blocks == alone.blocks, "round {round}");
        assert_eq!(searched.index_flag, alone.index_flag);
        assert!(met > 500, "{met} times there was room");
    }
}

#[test]
fn an_entry_with_room_reads_no_block() {
    let store = MemoryDir::new(12, true, HashAlgorithm::HalfMd4);
    for i in 0..3000 {
        store.insert(&format!("n{i}"), 20).unwrap();
    }
    let room = room(&store, "new").expect("leaves are half full after a split");
    store.reads.set(0);
    store.insert_into("new", 30, Some(&room)).unwrap();
    assert_eq!(store.reads.get(), 0);
    assert_eq!(store.find("new").unwrap(), Some(30));
}

/// Names of one hash may go on in the next leaf. A name there is found, but the room there is not
/// where its entry goes.
#[test]
fn room_in_the_leaf_that_goes_on_is_not_used() {
    let store = MemoryDir::new(10, false, HashAlgorithm::HalfMd4);
    for i in 0..60 {
        store.insert(&format!("{i:050}"), 20).unwrap();
    }
    // The index's second entry: key and block.
    let word = |at: usize| u32::from_le_bytes(*store.data(&0)[at..].first_chunk().unwrap());
    let (key, second) = (word(40), word(44) as usize);
    let hash = |name: &str| store.profile.new_hasher().hash(name.as_bytes()).major;
    // The first leaf fills up, and cannot be split.
    store.space.set(0);
    let mut names = (0..).map(|i| format!("new{i:050}"));
    let name = names.find(|name| hash(name) < key & !1 && store.insert(name, 21).is_err());
    let name = name.unwrap();
    let goes_on = hash(&name) | 1;
    store.blocks.borrow_mut()[0][40..44].copy_from_slice(&goes_on.to_le_bytes());
    assert!(room(&store, &name).is_none());
    let format = store.profile.format;
    let put = format.insert(&mut store.blocks.borrow_mut()[second], &entry(&name, 22));
    put.unwrap().expect("the second leaf has room");
    assert!(matches!(store.find_or_room(&name), Ok(NameOrRoom::Name)));
}

/// A block may belong to two directories, and the other one may have used the room.
#[test]
fn an_entry_whose_room_is_gone_goes_elsewhere() {
    for dir_index in [false, true] {
        let mut store = MemoryDir::new(10, true, HashAlgorithm::HalfMd4);
        store.profile.dir_index = dir_index;
        for i in 0..100 {
            store.insert(&format!("n{i}"), 20).unwrap();
        }
        let room = room(&store, "new").expect("some room");
        store.insert_into("other", 30, Some(&room)).unwrap();
        store.insert_into("new", 31, Some(&room)).unwrap();
        // In any leaf, as the other directory may hash otherwise.
        let other = entries::find_where(&store, |record| record.name == b"other");
        assert_eq!(other.unwrap().map(|slot| slot.ino), Some(ino(30)));
        assert_eq!(store.find("new").unwrap(), Some(31));
        for i in 0..100 {
            assert_eq!(store.find(&format!("n{i}")).unwrap(), Some(20));
        }
    }
}
