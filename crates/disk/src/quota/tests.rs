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
