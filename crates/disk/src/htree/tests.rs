use super::*;
use crate::dirent::tests::{Random, entry, format};

fn indexed(format: &DirFormat) -> (Vec<u8>, Vec<u8>) {
    let mut first = vec![0; format.block_size.bytes()];
    format.init_first(&mut first, Ino::new(12).unwrap(), Ino::ROOT);
    for name in ["a", "bc", "def"] {
        format
            .insert(&mut first, &entry(name, 11))
            .unwrap()
            .unwrap();
    }
    format.make_index(&first, 1).unwrap()
}

#[test]
fn a_linear_block_becomes_a_root_and_a_leaf() {
    for format in [format(10, None), format(12, Some(1)), format(16, Some(2))] {
        let (mut root, leaf) = indexed(&format);
        format.check_index(&root, IndexKind::Root, 1).unwrap();
        format.check_leaf(&leaf).unwrap();
        assert_eq!(format.entries(&leaf).unwrap().len(), 3);
        let index = format.index(&root, IndexKind::Root).unwrap();
        assert_eq!((index.len(), index.block(0)), (1, Some(Lblk::new(1))));
        assert_eq!(format.root_info(&root, 0).unwrap().hash_version, 1);
        let parent = Ino::new(77).unwrap();
        format
            .set_dotdot(&mut root, Some(IndexKind::Root), parent)
            .unwrap();
        format.check_index(&root, IndexKind::Root, 1).unwrap();
        assert_eq!(format.dots(&root).unwrap().1, parent);
    }
}

#[test]
fn limits_are_those_of_the_format() {
    // A 4 KiB block: 4096 - 32 - 8 bytes in a root, 4096 - 8 - 8 in a node.
    let with_tail = format(12, Some(1));
    assert_eq!(with_tail.index_limit(IndexKind::Root), 507);
    assert_eq!(with_tail.index_limit(IndexKind::Node), 510);
    assert_eq!(format(12, None).index_limit(IndexKind::Root), 508);
    assert_eq!(format(10, None).index_limit(IndexKind::Node), 127);
}

#[test]
fn search_insert_split_and_grow_agree_with_a_sorted_list() {
    for format in [format(10, None), format(10, Some(9))] {
        let (mut root, _) = indexed(&format);
        let mut random = Random(5);
        let mut model = vec![(0_u32, Lblk::new(1))];
        let limit = format.index_limit(IndexKind::Root);
        while model.len() < limit {
            let key = u32::try_from(random.below(400)).unwrap();
            let after = format.index(&root, IndexKind::Root).unwrap().search(key);
            let expected = model.iter().rposition(|(k, _)| *k <= key).unwrap();
            assert_eq!(after, expected);
            let lblk = Lblk::new(u32::try_from(model.len()).unwrap() + 1);
            format
                .insert_index(&mut root, IndexKind::Root, after, key, lblk)
                .unwrap();
            model.insert(after + 1, (key, lblk));
            format.check_index(&root, IndexKind::Root, 1).unwrap();
        }
        assert_eq!(format.table(&root, IndexKind::Root).unwrap(), model);
        let full = root.clone();
        assert!(matches!(
            format.insert_index(&mut root, IndexKind::Root, 0, 1, Lblk::new(9)),
            Err(HtreeError::Count { .. })
        ));
        assert_eq!(root, full);

        let node = format.grow(&mut root, Lblk::new(500), 1).unwrap();
        format.check_index(&root, IndexKind::Root, 1).unwrap();
        format.check_index(&node, IndexKind::Node, 1).unwrap();
        assert!(format.looks_like_node(&node));
        assert_eq!(format.root_info(&root, 1).unwrap().indirect_levels, 1);
        assert_eq!(
            format.table(&root, IndexKind::Root).unwrap(),
            [(0, Lblk::new(500))]
        );
        assert_eq!(format.table(&node, IndexKind::Node).unwrap(), model);
        assert_eq!(
            format.grow(&mut root, Lblk::new(501), 1),
            Err(HtreeError::Levels(2))
        );

        let split = format.split_node(&node).unwrap();
        format.check_index(&split.low, IndexKind::Node, 1).unwrap();
        format.check_index(&split.high, IndexKind::Node, 1).unwrap();
        let low = format.table(&split.low, IndexKind::Node).unwrap();
        let mut high = format.table(&split.high, IndexKind::Node).unwrap();
        high[0].0 = split.key;
        assert_eq!([low, high].concat(), model);
    }
}

#[test]
fn broken_indexes_are_named() {
    let format = format(10, None);
    let (root, _) = indexed(&format);
    let with = |at: usize, byte: u8| {
        let mut block = root.clone();
        block[at] = byte;
        format.check_index(&block, IndexKind::Root, 1).unwrap_err()
    };
    assert!(matches!(
        with(29, 9),
        HtreeError::RootInfo { info_length: 9, .. }
    ));
    assert!(matches!(with(31, 1), HtreeError::RootInfo { flags: 1, .. }));
    assert!(matches!(with(30, 2), HtreeError::Levels(2)));
    assert!(matches!(with(32, 1), HtreeError::Limit { .. }));
    assert!(matches!(with(34, 0), HtreeError::Count { count: 0, .. }));
    assert!(matches!(with(35, 1), HtreeError::Count { count: 257, .. }));
    assert!(matches!(
        with(8, b'x'),
        HtreeError::Entry(DirentError::NoDots)
    ));
    let mut block = root.clone();
    for (after, key) in [(0, 8), (1, 4)] {
        format
            .insert_index(&mut block, IndexKind::Root, after, key, Lblk::new(2))
            .unwrap();
    }
    let order = format.check_index(&block, IndexKind::Root, 1);
    assert_eq!(order, Err(HtreeError::Order { at: 2 }));
    assert_eq!(
        format.check_index(&root, IndexKind::Node, 1),
        Err(HtreeError::NodeHeader)
    );
}

#[test]
fn hostile_indexes_do_no_harm() {
    let format = format(10, None);
    let (mut root, _) = indexed(&format);
    for i in 0..60 {
        let after = usize::try_from(i).unwrap();
        format
            .insert_index(&mut root, IndexKind::Root, after, i * 8, Lblk::new(i + 2))
            .unwrap();
    }
    let node = format.grow(&mut root.clone(), Lblk::new(3), 1).unwrap();
    let mut random = Random(2);
    let mut faults = 0;
    for _ in 0..20_000 {
        for (base, kind) in [(&root, IndexKind::Root), (&node, IndexKind::Node)] {
            let mut block = base.clone();
            let at = random.below(48);
            block[at] = u8::try_from(random.below(256)).unwrap();
            faults += usize::from(format.check_index(&block, kind, 1).is_err());
            if let Ok(index) = format.index(&block, kind) {
                let at = index.search(u32::try_from(random.below(1000)).unwrap());
                assert!(at < index.len() && index.block(at).is_some());
            }
            let _ = format.split_node(&block);
            let _ = format.insert_index(&mut block, kind, random.below(200), 1, Lblk::new(1));
            let _ = format.grow(&mut block, Lblk::new(1), 1);
            let _ = format.set_dotdot(&mut block, Some(kind), Ino::ROOT);
        }
    }
    assert!(faults > 1000, "the mutations did something");
}
