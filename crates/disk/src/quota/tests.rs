use super::*;

fn entry(id: u32) -> QuotaEntry {
    QuotaEntry {
        id,
        usage: QuotaUsage {
            bytes: 4096 * u64::from(id),
            inodes: 1,
        },
        limits: QuotaLimits {
            bytes_hard: 1 << 20,
            ..QuotaLimits::default()
        },
        ..QuotaEntry::default()
    }
}

/// Ids that differ in each byte, and neighbours that share a block of entries.
fn ids() -> Vec<u32> {
    let mut ids = vec![0, 255, 256, 65_535, 65_536, 1 << 24, u32::MAX];
    ids.extend(1000..1040);
    ids.sort_unstable();
    ids
}

#[test]
fn what_is_added_is_found_and_walked_over_in_order() {
    let mut backwards = ids();
    backwards.reverse();
    let entries = backwards.iter().map(|id| entry(*id));
    let times = QuotaTimes::default();
    let mut file = MemoryQuotas::new(QuotaKind::Group, times, entries).unwrap();
    let (header, all) = file.entries(QuotaKind::Group).unwrap();
    assert_eq!(all, ids().into_iter().map(entry).collect::<Vec<_>>());
    assert_eq!(header.times, QuotaTimes::default());
    assert_eq!(file.bytes().len(), header.blocks as usize * BLOCK);
    for id in ids() {
        let (place, found) = find(&mut file, &header, id).unwrap().unwrap();
        assert_eq!(found, entry(id));
        let at = usize::try_from(place.byte()).unwrap();
        assert_eq!(file.bytes()[at..at + 72], entry_at(&found));
    }
    assert_eq!(find(&mut file, &header, 7), Ok(None));
    for from in [
        0,
        1,
        7,
        255,
        257,
        999,
        1000,
        1039,
        1040,
        65_537,
        1 << 24,
        u32::MAX,
    ] {
        let next = first_from(&mut file, &header, from).unwrap();
        let next = next.map(|entry| entry.id);
        let expected = ids().into_iter().find(|id| *id >= from);
        assert_eq!(next, expected, "from {from}");
    }
    let mut header = header;
    let twice = insert(&mut file, &mut header, &entry(1000));
    assert!(matches!(twice, Err(QuotaError::NoEntry { id: 1000, .. })));
}

#[test]
fn an_entry_of_root_that_says_nothing_is_there() {
    let nothing = QuotaEntry::of(0);
    let times = QuotaTimes::default();
    let mut file = MemoryQuotas::new(QuotaKind::User, times, [nothing]).unwrap();
    assert_eq!(file.entries(QuotaKind::User).unwrap().1, [nothing]);
}

#[test]
fn damage_is_named() {
    let make = || MemoryQuotas::new(QuotaKind::User, QuotaTimes::default(), [entry(5)]).unwrap();
    let damaged = |at: usize, byte: u8| {
        let mut bytes = make().bytes().to_vec();
        bytes[at] = byte;
        MemoryQuotas::of(bytes).entries(QuotaKind::User).err()
    };
    assert!(matches!(damaged(0, 0), Some(QuotaError::Magic { .. })));
    assert!(matches!(damaged(4, 0), Some(QuotaError::Version { .. })));
    assert!(matches!(damaged(20, 9), Some(QuotaError::Blocks { .. })));
    assert!(matches!(damaged(20, 1), Some(QuotaError::Blocks { .. })));
    assert!(matches!(damaged(28, 7), Some(QuotaError::Reference { .. })));
    // The root leads to itself, outside, and to another node twice.
    let root = BLOCK;
    assert!(matches!(
        damaged(root, 1),
        Some(QuotaError::Reference { .. })
    ));
    assert!(matches!(
        damaged(root, 6),
        Some(QuotaError::Reference { .. })
    ));
    let next = make().bytes()[root];
    assert!(matches!(
        damaged(root + 4, next),
        Some(QuotaError::Repeated { .. })
    ));
    let leaf = 5 * BLOCK;
    assert_eq!(make().bytes()[leaf + 16], 5, "the entry");
    assert!(matches!(
        damaged(leaf + 16, 6),
        Some(QuotaError::NoEntry { id: 5, .. })
    ));
    assert!(matches!(
        damaged(leaf + 8, 3),
        Some(QuotaError::Count { .. })
    ));
}

/// Bytes of a file with two blocks of entries, of which the second has room, and a free block.
fn lists() -> (Vec<u8>, u32) {
    let entries = (0..20).map(entry);
    let file = MemoryQuotas::new(QuotaKind::User, QuotaTimes::default(), entries).unwrap();
    let mut bytes = file.bytes().to_vec();
    let free = u32::try_from(bytes.len() / BLOCK).unwrap();
    bytes.resize(bytes.len() + BLOCK, 0);
    bytes[20..24].copy_from_slice(&(free + 1).to_le_bytes());
    bytes[24..28].copy_from_slice(&free.to_le_bytes());
    (bytes, free)
}

#[test]
fn lists_lead_where_an_insertion_may_write() {
    let (bytes, free) = lists();
    let read = |bytes: Vec<u8>| MemoryQuotas::of(bytes).entries(QuotaKind::User).err();
    assert_eq!(read(bytes.clone()), None);
    let head = u32::from_le_bytes(bytes[28..32].try_into().unwrap());
    let at = |block: u32, byte: usize| block as usize * BLOCK + byte;
    for (place, value, damage) in [
        // A full block among those with room, one that nothing leads to, and a way back.
        (28, head - 1, QuotaError::List { block: head - 1 }),
        (28, free, QuotaError::List { block: free }),
        (at(head, 4), 2, QuotaError::List { block: head }),
        (at(head, 0), head, QuotaError::Repeated { block: head }),
        // Entries among those without use, and a circle.
        (24, head, QuotaError::Repeated { block: head }),
        (24, head - 1, QuotaError::List { block: head - 1 }),
        (at(free, 0), free, QuotaError::Repeated { block: free }),
    ] {
        let mut bytes = bytes.clone();
        bytes[place..place + 4].copy_from_slice(&value.to_le_bytes());
        assert_eq!(read(bytes), Some(damage), "{place}: {value}");
    }
    // A reference less: its entry is not reached.
    let mut bytes = bytes;
    let node = at(4, 0);
    assert_eq!(bytes[node + 4 * 3], 5, "id 3 is in block 5");
    bytes[node + 4 * 3] = 0;
    assert_eq!(read(bytes), Some(QuotaError::Unreached { block: 5 }));
}

#[test]
fn what_is_left_of_a_damaged_file_is_found() {
    let (mut bytes, _) = lists();
    // Another magic number, a wrong count, and an id less.
    bytes[0] = 0;
    bytes[5 * BLOCK + 8] = 3;
    let second = 5 * BLOCK + 16 + 72;
    bytes[second] = 99;
    let first = *bytes.first_chunk().unwrap();
    let header = QuotaHeader::guess(QuotaKind::User, bytes.len() as u64, &first);
    let mut found = Vec::new();
    let mut file = MemoryQuotas::of(bytes);
    salvage(&mut file, &header, &mut |_, entry| {
        found.push(entry);
        Ok(())
    })
    .unwrap();
    let expected: Vec<QuotaEntry> = (0..20).filter(|id| *id != 1).map(entry).collect();
    assert_eq!(found, expected);
}

/// A tree without its root: the blocks of entries say what they are.
#[test]
fn entries_that_nothing_leads_to_are_found() {
    let (mut bytes, _) = lists();
    bytes[BLOCK..2 * BLOCK].fill(0);
    let first = *bytes.first_chunk().unwrap();
    let header = QuotaHeader::guess(QuotaKind::User, bytes.len() as u64, &first);
    let mut found = Vec::new();
    salvage(&mut MemoryQuotas::of(bytes), &header, &mut |_, entry| {
        found.push(entry);
        Ok(())
    })
    .unwrap();
    found.sort_unstable_by_key(|entry| entry.id);
    assert_eq!(found, (0..20).map(entry).collect::<Vec<_>>());
}

#[test]
fn usage_is_set_and_the_rest_stays() {
    let mut bytes = entry_at(&entry(7));
    // A limit that no number of bytes stands for.
    bytes[32..40].fill(0xff);
    let usage = QuotaUsage {
        bytes: 1,
        inodes: 2,
    };
    let before = bytes;
    assert!(!set_usage(&mut bytes, 8, usage) && bytes == before);
    assert!(set_usage(&mut bytes, 7, usage));
    assert_eq!(bytes[24..32], 2_u64.to_le_bytes());
    assert_eq!(bytes[48..56], 1_u64.to_le_bytes());
    assert_eq!(
        (&bytes[..24], &bytes[32..48]),
        (&before[..24], &before[32..48])
    );
    // Nothing of id 0 says so.
    let mut nothing = entry_at(&QuotaEntry::of(0));
    assert!(set_usage(&mut nothing, 0, usage) && nothing[64] == 0);
    assert!(set_usage(&mut nothing, 0, QuotaUsage::default()) && nothing[64] == 1);
}
