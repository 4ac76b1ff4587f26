use super::*;
use crate::dir_edit::NewEntry;
use crate::dirent::tests::{Random, entry, format};
use std::collections::BTreeMap;

fn hash_of(name: &str) -> DirHash {
    let sum = name
        .bytes()
        .fold(7_u32, |sum, byte| sum.wrapping_mul(31) + u32::from(byte));
    DirHash::stored(sum.rotate_left(13), sum)
}

fn hashed(name: &str, ino: u32) -> NewEntry<'_> {
    NewEntry {
        hash: Some(hash_of(name)),
        ..entry(name, ino)
    }
}

fn find(format: &DirFormat, block: &[u8], name: &str) -> Option<EntrySlot> {
    let wanted = HashedName {
        hash: Some(hash_of(name)),
        is_name: &|stored| stored.eq_ignore_ascii_case(name.as_bytes()),
        len: name.len(),
    };
    let found = format.find_hashed(block, &wanted).unwrap();
    assert_eq!(
        format.find_hashed_or_gap(block, &wanted).unwrap() == NameOrGap::Name,
        found.is_some()
    );
    found.map(|(record, slot)| {
        assert_eq!(record.hash, wanted.hash);
        slot
    })
}

/// The bytes of a first block, as Linux lays them out.
#[test]
fn hashes_stand_behind_padded_names() {
    let format = DirFormat {
        hashes: true,
        ..format(10, None)
    };
    let mut block = vec![0; 1024];
    let ino = |raw| extant_units::Ino::new(raw).unwrap();
    format.init_first(&mut block, ino(12), ino(2));
    format.check_leaf(&block).unwrap();
    let new = NewEntry {
        hash: Some(DirHash::stored(0x0102_0304, 0x0506_0708)),
        ..entry("abcde", 11)
    };
    // ".." keeps the room of a hash, which it does not have.
    assert_eq!(format.insert(&mut block, &new).unwrap(), Some(32));
    assert_eq!(block[..12], *b"\x0c\0\0\0\x0c\0\x01\x02.\0\0\0");
    assert_eq!(block[12..24], *b"\x02\0\0\0\x14\0\x02\x02..\0\0");
    let record = b"\x0b\0\0\0\xe0\x03\x05\x01abcde\0\0\0\x04\x03\x02\x01\x08\x07\x06\x05";
    assert_eq!(block[32..56], *record);
    let record = format.records(&block).nth(2).unwrap().unwrap();
    assert_eq!((record.hash, record.used()), (new.hash, 24));
    assert!(
        format
            .records(&block)
            .take(2)
            .all(|dot| dot.unwrap().hash.is_none())
    );

    // A record without room for its hash.
    block[32 + 4..32 + 6].copy_from_slice(&20_u16.to_le_bytes());
    let found = format.check_leaf(&block);
    assert!(matches!(
        found,
        Err(DirentError::RecordLength { offset: 32, .. })
    ));
}

#[test]
fn random_changes_keep_every_hash() {
    for seed in [None, Some(3)] {
        let format = DirFormat {
            hashes: true,
            ..format(11, seed)
        };
        let (mut random, mut model) = (Random(4), BTreeMap::new());
        let mut block = vec![0; 2048];
        format.init_leaf(&mut block);
        let mut splits = 0;
        for _ in 0..4000 {
            let number = random.below(300);
            let name = format!("{number:0w$}x", w = 1 + number % 50);
            let slot = find(&format, &block, &name);
            assert_eq!(slot.is_some(), model.contains_key(&name));
            match slot {
                Some(slot) => {
                    format.remove_slot(&mut block, slot).unwrap();
                    model.remove(&name);
                }
                None => {
                    let new = hashed(&name, 9);
                    let fits = format.fits_compacted(&block, &new).unwrap();
                    if format.insert(&mut block, &new).unwrap().is_none() {
                        if !fits {
                            let split = format.split(&block, &new, |_| unreachable!()).unwrap();
                            let (low, high) = (split.low, split.high);
                            let count = |half| format.records(half).flatten().count();
                            assert_eq!(count(&low) + count(&high), model.len() + 1);
                            let least = format.records(&high).flatten().map(|r| r.hash);
                            assert_eq!(
                                least.flatten().map(|h| h.major).min(),
                                Some(split.key & !1)
                            );
                            splits += 1;
                            continue;
                        }
                        format.compact(&mut block).unwrap();
                        format.insert(&mut block, &new).unwrap().unwrap();
                    }
                    model.insert(name, ());
                }
            }
            format.check_leaf(&block).unwrap();
            for record in format.records(&block).map(Result::unwrap) {
                if record.ino.is_some() {
                    let name = str::from_utf8(record.name).unwrap();
                    assert_eq!(record.hash, Some(hash_of(name)), "{name}");
                }
            }
        }
        assert!(splits > 20, "{splits}");
    }
}

#[test]
fn a_name_is_one_by_its_hash_and_its_judge() {
    let format = DirFormat {
        hashes: true,
        ..format(10, None)
    };
    let mut block = vec![0; 1024];
    format.init_leaf(&mut block);
    format
        .insert(&mut block, &hashed("one", 9))
        .unwrap()
        .unwrap();
    let found = |hash, is_name: &dyn Fn(&[u8]) -> bool| {
        let name = HashedName {
            hash,
            is_name,
            len: 3,
        };
        format.find_hashed(&block, &name).unwrap().is_some()
    };
    assert!(found(Some(hash_of("one")), &|name| name == b"one"));
    assert!(found(None, &|name| name == b"one"));
    assert!(!found(Some(hash_of("two")), &|_| true));
    assert!(!found(Some(hash_of("one")), &|_| false));
}
