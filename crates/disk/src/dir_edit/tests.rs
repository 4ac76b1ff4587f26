use std::collections::BTreeMap;

use super::*;
use crate::dirent::tests::{Random, entry, format};

/// Records that fill the block, and whose names are those of `model`.
fn assert_holds(format: &DirFormat, block: &[u8], model: &BTreeMap<String, u32>) {
    format.check_leaf(block).unwrap();
    let found: BTreeMap<String, u32> = format
        .entries(block)
        .unwrap()
        .iter()
        .map(|e| (String::from_utf8(e.name.to_vec()).unwrap(), e.ino.get()))
        .collect();
    assert_eq!(&found, model);
}

#[test]
fn random_changes_agree_with_a_map() {
    for format in [format(10, None), format(11, Some(5)), format(16, Some(6))] {
        let mut random = Random(format.block_size.bytes_u64());
        let mut model = BTreeMap::new();
        let mut block = vec![0xaa; format.block_size.bytes()];
        format.init_leaf(&mut block);
        let (mut full, mut removed) = (0, 0);
        for round in 0..3000 {
            let number = random.below(400);
            let name = format!("{number:0w$}", w = 1 + number % 60);
            let ino = u32::try_from(1 + random.below(1000)).unwrap();
            let found = format
                .find(&block, name.as_bytes())
                .unwrap()
                .map(|r| r.offset);
            assert_eq!(found.is_some(), model.contains_key(&name));
            match (found, random.below(3)) {
                (None, _) => match format.insert(&mut block, &entry(&name, ino)).unwrap() {
                    Some(_) => drop(model.insert(name, ino)),
                    None => {
                        full += 1;
                        let fits = format.fits_compacted(&block, &entry(&name, ino)).unwrap();
                        format.compact(&mut block).unwrap();
                        let placed = format.insert(&mut block, &entry(&name, ino)).unwrap();
                        assert_eq!(placed.is_some(), fits);
                        if fits {
                            model.insert(name, ino);
                        }
                    }
                },
                (Some(at), 0) => {
                    let kind = FileType::Directory;
                    format
                        .retarget(&mut block, at, Ino::new(ino).unwrap(), kind)
                        .unwrap();
                    model.insert(name, ino);
                }
                (Some(at), _) => {
                    format.remove(&mut block, at).unwrap();
                    model.remove(&name);
                    removed += 1;
                }
            }
            if round % 16 == 0 {
                assert_holds(&format, &block, &model);
            }
        }
        assert_holds(&format, &block, &model);
        assert!(removed > 100 && (full > 10 || format.block_size.log2() == 16));
    }
}

#[test]
fn entries_of_a_linear_block_never_move() {
    let format = format(10, None);
    let mut block = vec![0; 1024];
    format.init_leaf(&mut block);
    let at = |block: &[u8], name: &[u8]| format.find(block, name).unwrap().map(|r| r.offset);
    for name in ["one", "two", "three"] {
        format
            .insert(&mut block, &entry(name, 11))
            .unwrap()
            .unwrap();
    }
    let three = at(&block, b"three").unwrap();
    let two = at(&block, b"two").unwrap();
    format.remove(&mut block, two).unwrap();
    assert_eq!(at(&block, b"three"), Some(three));
    format.insert(&mut block, &entry("2", 11)).unwrap().unwrap();
    assert_eq!(at(&block, b"2"), Some(two), "the gap is used again");
    assert_eq!(at(&block, b"three"), Some(three));
}

#[test]
fn a_removed_name_leaves_no_bytes() {
    let format = format(10, None);
    let mut block = vec![0; 1024];
    format.init_leaf(&mut block);
    for name in ["secret", "other"] {
        format
            .insert(&mut block, &entry(name, 11))
            .unwrap()
            .unwrap();
    }
    for name in ["secret", "other"] {
        let offset = format
            .find(&block, name.as_bytes())
            .unwrap()
            .unwrap()
            .offset;
        format.remove(&mut block, offset).unwrap();
        assert!(!block.windows(name.len()).any(|w| w == name.as_bytes()));
    }
}

#[test]
fn failed_changes_change_nothing() {
    let format = format(10, Some(3));
    let mut block = vec![0; 1024];
    format.init_leaf(&mut block);
    format.insert(&mut block, &entry("a", 11)).unwrap().unwrap();
    let before = block.clone();
    assert_eq!(
        format.remove(&mut block, 4),
        Err(DirentError::NoEntry { offset: 4 })
    );
    assert_eq!(
        format.remove(&mut block, 5000),
        Err(DirentError::NoEntry { offset: 5000 })
    );
    let nowhere = format.retarget(&mut block, 8, Ino::ROOT, FileType::Fifo);
    assert_eq!(nowhere, Err(DirentError::NoEntry { offset: 8 }));
    let long = "n".repeat(256);
    assert!(format.insert(&mut block, &entry(&long, 11)).is_err());
    assert!(format.insert(&mut block, &entry("", 11)).is_err());
    assert_eq!(block, before);
}

/// A block as full as names of random lengths make it.
fn full_block(format: &DirFormat, random: &mut Random, longest: usize) -> (Vec<u8>, String) {
    let mut block = vec![0; format.block_size.bytes()];
    format.init_leaf(&mut block);
    for serial in 0.. {
        let name = format!("{serial:0w$}", w = 1 + random.below(longest));
        if format
            .insert(&mut block, &entry(&name, 9))
            .unwrap()
            .is_none()
        {
            return (block, name);
        }
    }
    unreachable!("a block is finite")
}

#[test]
fn a_split_keeps_every_name_and_divides_by_hash() {
    let mut random = Random(99);
    let mut continued = 0;
    for round in 0..600 {
        let format = format(10 + round % 3, (round % 2 == 0).then_some(round));
        let longest = [8, 60, 255][usize::try_from(round % 3).unwrap()];
        let (block, name) = full_block(&format, &mut random, longest);
        // Few distinct values: equal hashes are common.
        let values = 1 + random.below(12);
        let hash = |name: &[u8]| {
            let sum: usize = name.iter().map(|&b| usize::from(b)).sum();
            u32::try_from(sum % values).unwrap() << 1
        };
        let new = entry(&name, 9);
        assert!(!format.fits_compacted(&block, &new).unwrap());
        let split = format.split(&block, &new, hash).unwrap();
        format.check_leaf(&split.low).unwrap();
        format.check_leaf(&split.high).unwrap();
        let low = format.entries(&split.low).unwrap();
        let high = format.entries(&split.high).unwrap();
        assert!(!low.is_empty() && !high.is_empty());
        assert_eq!(
            low.len() + high.len(),
            format.entries(&block).unwrap().len() + 1
        );
        let last = low.iter().map(|e| hash(e.name)).max().unwrap();
        let first = high.iter().map(|e| hash(e.name)).min().unwrap();
        assert_eq!(split.key & !1, first);
        assert!(last <= first);
        assert_eq!(split.key & 1 == 1, last == first);
        continued += split.key & 1;
        assert!(low.iter().chain(&high).any(|e| e.name == new.name));
    }
    assert!(continued > 10);
}

#[test]
fn an_entry_beside_a_damaged_one_without_a_name_reads_back() {
    let format = format(10, Some(5));
    let mut block = vec![0; format.block_size.bytes()];
    format.init_leaf(&mut block);
    let at = format.insert(&mut block, &entry("x", 12)).unwrap().unwrap();
    // The name's length: zero, with an inode.
    block[at + 6] = 0;
    let placed = format.insert(&mut block, &entry("y", 13)).unwrap().unwrap();
    let all: Vec<_> = format.records(&block).collect::<Result<_, _>>().unwrap();
    let found = all.iter().find(|record| record.offset == placed).unwrap();
    assert_eq!(found.name, b"y");
}

/// As the search left the block, and after a change that took the record before the entry.
#[test]
fn an_entry_goes_by_its_slot_as_by_its_offset() {
    for format in [format(10, None), format(12, Some(5)), format(16, Some(6))] {
        let mut random = Random(format.block_size.bytes_u64());
        let mut block = vec![0; format.block_size.bytes()];
        format.init_leaf(&mut block);
        let slot = |block: &[u8], name: &str| {
            let found = format.find_slot(block, name.as_bytes()).unwrap();
            found.map(|(_, slot)| slot)
        };
        let (mut firsts, mut stale) = (0, 0);
        for _ in 0..3000 {
            let [name, other] = [(); 2].map(|()| format!("n{}", random.below(30)));
            let Some(at) = slot(&block, &name) else {
                format.insert(&mut block, &entry(&name, 11)).unwrap();
                continue;
            };
            firsts += u32::from(at.before.is_none());
            if random.below(4) == 0
                && other != name
                && let Some(other) = slot(&block, &other)
            {
                stale += u32::from(at.before == Some(other.offset));
                format.remove_slot(&mut block, other).unwrap();
            }
            let mut expected = block.clone();
            format.remove(&mut expected, at.offset).unwrap();
            format.remove_slot(&mut block, at).unwrap();
            assert_eq!(block, expected);
            let again = format.remove_slot(&mut block, at);
            assert_eq!(again, Err(DirentError::NoEntry { offset: at.offset }));
        }
        assert!(firsts > 10 && stale > 5, "{firsts} {stale}");
    }
}
