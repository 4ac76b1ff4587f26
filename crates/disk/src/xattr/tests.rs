#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
use extant_units::Pblk;

use super::block::entry_hash;
use super::*;
use crate::csum::Crc32c;

fn user(rest: &[u8]) -> XattrName<'_> {
    XattrName {
        index: NameIndex::USER,
        rest,
    }
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn both_forms_come_back() {
    let mut set = XattrSet::default();
    set.set(&user(b"zz"), b"last");
    set.set(&user(b"a"), b"");
    set.set(&XattrName::ACL_ACCESS, &[1, 0, 0, 0]);
    set.set(&user(b"zz"), b"replaced");
    let mut area = vec![0xff; 96];
    assert_eq!(set.write_area(&mut area), Fit::Fits);
    assert_eq!(XattrSet::read(area_entries(&area).unwrap()).unwrap(), set);

    let mut block = vec![0xff; 1024];
    assert_eq!(set.write_block(&mut block), Fit::Fits);
    let seed = Some(Crc32c::START);
    seal_block(seed, Pblk::new(77), &mut block);
    check_block(seed, Pblk::new(77), &block).unwrap();
    let names: Vec<_> = block_entries(&block)
        .unwrap()
        .map(|e| e.unwrap().name.full().unwrap())
        .collect();
    assert_eq!(
        names,
        [&b"user.a"[..], b"user.zz", b"system.posix_acl_access"],
        "sorted by index, then length, then bytes"
    );
    let found = block_entries(&block).unwrap().find(&user(b"zz")).unwrap();
    assert_eq!(found.unwrap().value, b"replaced");
    assert!(matches!(
        check_block(seed, Pblk::new(78), &block),
        Err(XattrError::Checksum { .. })
    ));
}

#[test]
fn the_hash_as_documented() {
    // name "a": 0x61; value "b\0\0\0": rotate by 16, xor 0x62.
    assert_eq!(entry_hash(b"a", b"b"), 0x0061_0062);
}

#[test]
fn an_area_without_magic_is_empty() {
    assert_eq!(area_entries(&[0xab; 96]).unwrap().count(), 0);
    assert_eq!(area_entries(&[]).unwrap().count(), 0);
    let mut area = [1; 96];
    assert_eq!(XattrSet::default().write_area(&mut area), Fit::Fits);
    assert_eq!(area, [0; 96]);
}

#[test]
fn room_is_used_to_the_last_byte() {
    // 4 magic + 16 entry + 4 name + 4 end leave 68 of 96.
    let mut set = XattrSet::default();
    set.set(&user(b"abcd"), &[7; 68]);
    let mut area = [0; 96];
    assert_eq!(set.write_area(&mut area), Fit::Fits);
    assert_eq!(XattrSet::read(area_entries(&area).unwrap()).unwrap(), set);
    set.set(&user(b"abcd"), &[7; 69]);
    let before = area;
    assert_eq!(set.write_area(&mut area), Fit::TooLarge);
    assert_eq!(area, before);
}

/// As Linux stores it: a size, no offset, and a hash of the name and of the value's hash, also in
/// an inode.
#[test]
fn references_come_back_in_both_forms() {
    let (big, small) = (user(b"big"), user(b"small"));
    let at = ValueRef::new(&big, 13, 10_000, 0x51fe_538e);
    assert_eq!(at.hash, 0xd4b9_538f);
    let mut set = XattrSet::default();
    set.refer(&big, at);
    set.set(&small, &[0; 40]);
    assert_eq!((set.value_bytes(), set.get(&big)), (40, None));
    assert!(set.contains(&big) && set.reference(&small).is_none());
    let mut area = vec![0; 96];
    assert_eq!(set.write_area(&mut area), Fit::Fits);
    let entry = [
        3, 1, 0, 0, 13, 0, 0, 0, 0x10, 0x27, 0, 0, 0x8f, 0x53, 0xb9, 0xd4,
    ];
    assert_eq!(area[4..20], entry);
    let mut block = vec![0; 4096];
    assert_eq!(set.write_block(&mut block), Fit::Fits);
    assert_eq!(block[32..48], entry);
    assert_eq!(BlockHeader::of(&block).unwrap().hash.get(), 0x5488_dd55);
    for entries in [area_entries(&area), block_entries(&block)] {
        let entries = entries.unwrap();
        assert!(
            XattrSet::read(entries.clone()).is_err(),
            "without the feature"
        );
        assert_eq!(XattrSet::read_with_references(entries).unwrap(), set);
    }
    assert_eq!(set.take_elsewhere(0), []);
    assert_eq!(set.take_elsewhere(7), [at]);
    assert_eq!(set.elsewhere().count(), 0);
    assert!(!set.contains(&big) && set.contains(&small));
}

#[test]
fn damage_is_named() {
    let mut set = XattrSet::default();
    set.set(&user(b"name"), b"value");
    let mut good = vec![0; 1024];
    set.write_block(&mut good);
    let broken = |change: fn(&mut [u8])| {
        let mut block = good.clone();
        change(&mut block);
        check_block(None, Pblk::ZERO, &block)
            .and_then(|()| XattrSet::read(block_entries(&block)?))
            .unwrap_err()
    };
    assert!(matches!(broken(|b| b[0] = 1), XattrError::Magic { .. }));
    assert!(matches!(broken(|b| b[4] = 0), XattrError::RefCount { .. }));
    assert!(matches!(broken(|b| b[8] = 2), XattrError::Blocks { .. }));
    assert!(matches!(
        broken(|b| b[34..36].copy_from_slice(&[40, 0])),
        XattrError::Value { .. }
    ));
    assert!(matches!(
        broken(|b| b[36] = 5),
        XattrError::ValueInode { .. }
    ));
    assert!(matches!(broken(|b| b[43] = 0xff), XattrError::Value { .. }));
    assert!(matches!(broken(|b| b[49] = 0), XattrError::Name { .. }));
    assert!(matches!(
        broken(|b| b[32..].fill(0xff)),
        XattrError::Entry { .. }
    ));
}

#[test]
fn hostile_tables_never_panic() {
    let mut state = 88_172_645_463_325_252_u64;
    let mut set = XattrSet::default();
    for i in 0..6_u8 {
        set.set(&user(&[b'a' + i; 9]), &vec![i; usize::from(i) * 9]);
    }
    let mut good = vec![0; 1024];
    set.write_block(&mut good);
    for _ in 0..20_000 {
        let mut block = good.clone();
        for _ in 0..=random(&mut state) % 4 {
            let at = usize::try_from(random(&mut state) % 300).unwrap();
            block[at] = random(&mut state).to_le_bytes()[3];
        }
        if let Ok(entries) = block_entries(&block) {
            for entry in entries {
                let Ok(entry) = entry else { break };
                assert!(entry.value.len() <= block.len());
            }
        }
        let _ = area_entries(&block[28..]).map(Iterator::count);
    }
}

/// Such an entry would end the table when it is written back, and hide those behind it.
#[test]
fn an_entry_without_prefix_and_name_is_damage() {
    let mut set = XattrSet::default();
    set.set(&user(b""), b"first");
    set.set(&user(b"b"), b"second");
    let mut area = vec![0; 96];
    assert_eq!(set.write_area(&mut area), Fit::Fits);
    area[5] = 0;
    let read = XattrSet::read(area_entries(&area).unwrap());
    assert_eq!(read, Err(XattrError::Name { offset: 4 }));
}
