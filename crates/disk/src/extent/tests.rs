use extant_units::{BlockSize, Ino, Lblk, Pblk};

use super::*;

fn ext(lblk: u32, len: u32, pblk: u64, unwritten: bool) -> Extent {
    Extent {
        lblk: Lblk::new(lblk),
        len,
        pblk: Pblk::new(pblk),
        unwritten,
    }
}

fn slot(lblk: u32, len: u32, pblk: u64) -> Slot {
    ext(lblk, len, pblk, false).encode().unwrap()
}

fn leaf(entries: &[Slot]) -> Vec<u8> {
    let mut bytes = vec![0; 1024];
    let mut node = NodeMut::init(&mut bytes, 0, block_capacity(BlockSize::KIB1)).unwrap();
    node.insert(0, entries).unwrap();
    bytes
}

#[test]
fn extents_round_trip_to_their_limits() {
    for e in [
        ext(0, 1, 0, false),
        ext(7, MAX_WRITTEN, MAX_PBLK, false),
        ext(u32::MAX - 1, 1, 1 << 40, true),
        ext(9, MAX_UNWRITTEN, 5, true),
    ] {
        assert_eq!(Extent::decode(&e.encode().unwrap()), e);
    }
    for bad in [
        ext(0, 0, 1, false),
        ext(0, MAX_WRITTEN + 1, 1, false),
        ext(0, MAX_WRITTEN, 1, true),
        ext(u32::MAX, 1, 1, false),
        ext(u32::MAX - 1, 2, 1, false),
        ext(0, 1, MAX_PBLK + 1, false),
    ] {
        assert!(bad.encode().is_err(), "{bad:?}");
    }
    let index = Index {
        lblk: Lblk::new(77),
        child: Pblk::new(MAX_PBLK),
    };
    assert_eq!(Index::decode(&index.encode().unwrap()), index);
}

#[test]
fn merging_needs_place_kind_and_room() {
    let a = ext(0, 10, 100, false);
    assert!(a.merges_with(&ext(10, 5, 110, false)));
    assert!(!a.merges_with(&ext(11, 5, 110, false)));
    assert!(!a.merges_with(&ext(10, 5, 111, false)));
    assert!(!a.merges_with(&ext(10, 5, 110, true)));
    assert!(!a.merges_with(&ext(10, MAX_WRITTEN - 9, 110, false)));
    assert!(a.merges_with(&ext(10, MAX_WRITTEN - 10, 110, false)));
}

#[test]
fn slices_stay_inside() {
    let a = ext(10, 10, 100, true);
    assert_eq!(a.slice(Lblk::new(13), 4), Some(ext(13, 4, 103, true)));
    assert_eq!(a.slice(Lblk::new(19), 4), Some(ext(19, 1, 109, true)));
    assert_eq!(a.slice(Lblk::new(20), 4), None);
    assert_eq!(a.slice(Lblk::new(9), 4), None);
}

#[test]
fn edits_keep_order_and_zero_what_they_leave() {
    let mut bytes = leaf(&[slot(0, 1, 10), slot(5, 1, 20)]);
    let mut node = NodeMut::open(&mut bytes).unwrap();
    node.insert(1, &[slot(2, 1, 15), slot(3, 1, 17)]).unwrap();
    node.set(3, slot(6, 1, 21)).unwrap();
    node.remove(1..2).unwrap();
    assert_eq!(
        node.insert(9, &[]),
        Err(ExtentError::NoSuchEntry {
            index: 9,
            entries: 3
        })
    );
    assert!(node.set(3, slot(9, 1, 1)).is_err());
    assert!(node.remove(2..4).is_err());
    let starts: Vec<u32> = Node::open(&bytes)
        .unwrap()
        .extents()
        .map(|e| e.lblk.get())
        .collect();
    assert_eq!(starts, [0, 3, 6]);
    assert!(bytes[12 + 36..].iter().all(|&b| b == 0));
}

#[test]
fn a_full_node_takes_no_more() {
    let mut root = [0; ROOT_BYTES];
    let mut node = NodeMut::init(&mut root, 0, ROOT_CAPACITY).unwrap();
    let four: Vec<Slot> = (0..4).map(|i| slot(i * 2, 1, u64::from(i) + 9)).collect();
    node.insert(0, &four).unwrap();
    assert_eq!(
        node.insert(4, &[slot(9, 1, 9)]),
        Err(ExtentError::Full { max: 4 })
    );
    let node = Node::check_root(&root, |_, _| true).unwrap();
    assert!(node.is_full());
    assert_eq!(node.find(Lblk::new(3)), Some(1));
    assert_eq!(node.next_start(1, 99), 4);
    assert_eq!(node.next_start(3, 99), 99);
    assert!(node.index(0).is_none());
}

#[test]
fn the_checksum_covers_all_before_it_and_its_owner() {
    for log2 in [10, 11, 12, 16] {
        let bs = BlockSize::from_log2(log2).unwrap();
        let seed = owner_seed(Crc32c::START, Ino::ROOT, 3);
        let mut block = vec![0; bs.bytes()];
        NodeMut::init(&mut block, 0, block_capacity(bs))
            .unwrap()
            .insert(0, &[slot(0, 1, 9)])
            .unwrap();
        set_checksum(&mut block, seed).unwrap();
        assert!(Node::check_block(&block, bs, Some(seed), |_, _| true).is_ok());
        let other = owner_seed(Crc32c::START, Ino::ROOT, 4);
        let wrong = Node::check_block(&block, bs, Some(other), |_, _| true);
        assert!(matches!(wrong, Err(ExtentError::BadChecksum { .. })));
        let last = ENTRY_BYTES * (usize::from(block_capacity(bs)) + 1) - 1;
        block[last] ^= 1;
        assert!(Node::check_block(&block, bs, Some(seed), |_, _| true).is_err());
        assert!(Node::check_block(&block, bs, None, |_, _| true).is_ok());
    }
}

#[test]
fn each_fault_of_a_node_has_its_name() {
    let any = |_: Pblk, _: u32| true;
    let good = leaf(&[slot(4, 2, 10), slot(6, 2, 20)]);
    let bs = BlockSize::KIB1;
    let with = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        Node::check_block(&bytes, bs, None, any)
            .map(|_| ())
            .unwrap_err()
    };
    assert!(matches!(with(0, 0), ExtentError::BadMagic { .. }));
    assert!(matches!(with(2, 200), ExtentError::BadCount { .. }));
    assert!(matches!(with(4, 0), ExtentError::BadMax { max: 0, .. }));
    assert!(matches!(
        with(4, 85),
        ExtentError::BadMax {
            max: 85,
            capacity: 84
        }
    ));
    assert!(matches!(with(6, 6), ExtentError::BadDepth { .. }));
    assert!(matches!(with(16, 0), ExtentError::BadLength { .. }));
    assert!(matches!(
        with(16, 3),
        ExtentError::OutOfOrder { index: 1, .. }
    ));
    let outside = Node::check_block(&good, bs, None, |p, n| p.get() + u64::from(n) <= 21);
    assert!(matches!(
        outside,
        Err(ExtentError::OutsideDevice { len: 2, .. })
    ));

    let node = Node::open(&good).unwrap();
    let expect = |depth, first, end| {
        node.agrees(&Expect {
            depth: Some(depth),
            first: Some(Lblk::new(first)),
            end,
        })
    };
    assert_eq!(expect(0, 4, 8), Ok(()));
    assert!(matches!(expect(1, 4, 8), Err(ExtentError::BadDepth { .. })));
    assert!(matches!(
        expect(0, 3, 8),
        Err(ExtentError::OutsideParent { .. })
    ));
    assert!(matches!(
        expect(0, 4, 7),
        Err(ExtentError::OutsideParent { .. })
    ));
    assert!(matches!(
        Node::open(&good[..11]),
        Err(ExtentError::TooShort { .. })
    ));
}

/// Every single byte of a node set to every value: an answer each time, and accesses stay inside.
#[test]
fn any_byte_may_be_anything() {
    let good = leaf(&[slot(4, 2, 10), slot(6, 2, 20), slot(9, 1, 30)]);
    for at in 0..ENTRY_BYTES * 5 {
        for to in 0..=u8::MAX {
            let mut bytes = good.clone();
            bytes[at] = to;
            if let Ok(node) = Node::check_block(&bytes, BlockSize::KIB1, None, |_, _| true) {
                let _ = node.agrees(&Expect::ROOT);
                let _ = node
                    .find(Lblk::new(5))
                    .map(|i| (node.extent(i), node.index(i), node.next_start(i, 0)));
                assert!(node.len() <= 84);
            }
            if let Ok(mut node) = NodeMut::open(&mut bytes) {
                let n = node.len();
                let _ = node.insert(n, &[slot(50, 1, 1)]);
                let _ = node.remove(0..n);
            }
            let _ = set_checksum(&mut bytes, Crc32c::START);
        }
    }
}
