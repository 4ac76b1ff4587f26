use super::*;
use crate::dirent::tests::{Random, entry, format};

/// The search's gap is the one that an insertion finds by itself, until it is used.
#[test]
fn an_entry_goes_into_the_gap_of_the_search() {
    for format in [format(10, None), format(11, Some(5)), format(16, Some(6))] {
        let mut random = Random(format.block_size.bytes_u64());
        let mut block = vec![0xaa; format.block_size.bytes()];
        format.init_leaf(&mut block);
        let (mut full, mut inner) = (0, 0);
        for _ in 0..2000 {
            let number = random.below(400);
            let name = format!("{number:0w$}", w = 1 + number % 60);
            let found = format.find(&block, name.as_bytes()).unwrap();
            let found = found.map(|record| record.offset);
            let gap = match format.find_or_gap(&block, name.as_bytes()).unwrap() {
                NameOrGap::Name => {
                    format.remove(&mut block, found.unwrap()).unwrap();
                    continue;
                }
                NameOrGap::Gap(gap) => gap,
            };
            assert_eq!(found, None);
            let before = block.clone();
            let entry = entry(&name, 11);
            let alone = format.insert(&mut block, &entry).unwrap();
            assert_eq!(gap.is_some(), alone.is_some());
            let Some(gap) = gap else {
                full += 1;
                continue;
            };
            inner += usize::from(gap.offset + gap.rec_len < format.entries_end());
            let mut searched = before;
            assert_eq!(format.insert_into(&mut searched, gap, &entry), Ok(alone));
            assert_eq!(searched, block);
            assert_eq!(format.insert_into(&mut searched, gap, &entry), Ok(None));
            assert_eq!(searched, block, "a gap that is gone changes nothing");
        }
        assert!(inner > 100 && (full > 10 || format.block_size.log2() == 16));
    }
}

#[test]
fn a_gap_takes_no_longer_name_and_no_other_block() {
    let format = format(10, Some(3));
    let mut block = vec![0; 1024];
    format.init_leaf(&mut block);
    for name in ["one", "two", "three"] {
        format.insert(&mut block, &entry(name, 11)).unwrap();
    }
    format.remove(&mut block, 0).unwrap();
    let NameOrGap::Gap(Some(gap)) = format.find_or_gap(&block, b"new").unwrap() else {
        panic!("a removed name leaves a gap");
    };
    assert_eq!((gap.offset, gap.used, gap.rec_len), (0, 0, 12));
    let before = block.clone();
    let longer = format.insert_into(&mut block, gap, &entry("longer", 12));
    assert_eq!(longer, Ok(None));
    let unnamed = format.insert_into(&mut block, gap, &entry("", 12));
    assert_eq!(unnamed, Err(DirentError::Name { offset: 0 }));
    assert_eq!(block, before);
    let mut short = vec![0; 512];
    let other = format.insert_into(&mut short, gap, &entry("new", 12));
    assert!(matches!(other, Err(DirentError::BlockSize { .. })));
    let past = Gap {
        offset: 1024,
        ..gap
    };
    assert!(!format.has_gap(&block, past));
}
