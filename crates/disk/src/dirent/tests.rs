use super::*;
use crate::dir_edit::NewEntry;

pub(crate) fn format(log2: u32, seed: Option<u32>) -> DirFormat {
    DirFormat {
        block_size: BlockSize::from_log2(log2).unwrap(),
        file_type: true,
        max_ino: 100_000,
        seed: seed.map(Crc32c::from_raw),
        folded: false,
        hashes: false,
    }
}

pub(crate) fn entry(name: &str, ino: u32) -> NewEntry<'_> {
    NewEntry {
        name: name.as_bytes(),
        ino: Ino::new(ino).unwrap(),
        file_type: FileType::Regular,
        hash: None,
    }
}

/// A small deterministic generator (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % bound as u64).unwrap()
    }
}

#[test]
fn record_lengths_of_large_blocks() {
    let large = format(16, None);
    for len in [12, 4096, 65_532, 65_536] {
        assert_eq!(large.decode_rec_len(large.encode_rec_len(len)), len);
    }
    assert_eq!(large.decode_rec_len(0), 65_536);
    assert_eq!(format(12, None).decode_rec_len(0), 0);
    let mut block = vec![0; 65_536];
    large.init_leaf(&mut block);
    large.check_leaf(&block).unwrap();
    assert_eq!(
        large.records(&block).next().unwrap().unwrap().rec_len,
        65_536
    );
}

#[test]
fn a_new_directory_has_its_dots() {
    for format in [format(10, None), format(12, Some(7))] {
        let mut block = vec![0; format.block_size.bytes()];
        format.init_first(&mut block, Ino::new(12).unwrap(), Ino::ROOT);
        format.check_leaf(&block).unwrap();
        assert_eq!(format.dots(&block), Ok((Ino::new(12).unwrap(), Ino::ROOT)));
        let names: Vec<_> = format.records(&block).map(|r| r.unwrap().name).collect();
        assert_eq!(names[..2], [&b"."[..], b".."]);
    }
    let plain = format(10, None);
    let mut block = vec![0; 1024];
    plain.init_leaf(&mut block);
    for name in ["x", ".."] {
        plain.insert(&mut block, &entry(name, 11)).unwrap().unwrap();
    }
    assert_eq!(plain.dots(&block), Err(DirentError::NoDots));
}

#[test]
fn without_the_feature_no_type_is_written_or_read() {
    let plain = DirFormat {
        file_type: false,
        ..format(10, None)
    };
    let mut block = vec![0; 1024];
    plain.init_leaf(&mut block);
    plain.insert(&mut block, &entry("a", 11)).unwrap().unwrap();
    assert_eq!(block[7], 0);
    let typed = format(10, None);
    typed.insert(&mut block, &entry("b", 11)).unwrap().unwrap();
    assert_eq!(
        plain.find(&block, b"b").unwrap().unwrap().file_type,
        FileType::Unknown
    );
    assert_eq!(
        typed.find(&block, b"b").unwrap().unwrap().file_type,
        FileType::Regular
    );
}

#[test]
fn every_flipped_bit_of_a_sealed_block_is_noticed() {
    let format = format(10, Some(0xdead_beef));
    let mut block = vec![0; 1024];
    format.init_leaf(&mut block);
    format
        .insert(&mut block, &entry("name", 11))
        .unwrap()
        .unwrap();
    format.check_leaf(&block).unwrap();
    for bit in 0..1024 * 8 {
        block[bit / 8] ^= 1 << (bit % 8);
        assert!(format.check_leaf(&block).is_err(), "bit {bit}");
        block[bit / 8] ^= 1 << (bit % 8);
    }
    let other = DirFormat {
        seed: Some(Crc32c::from_raw(1)),
        ..format
    };
    assert!(matches!(
        other.check_leaf(&block),
        Err(DirentError::Checksum { .. })
    ));
}

#[test]
fn broken_records_are_named() {
    let format = format(10, None);
    let mut good = vec![0; 1024];
    format.init_leaf(&mut good);
    format
        .insert(&mut good, &entry("abcd", 11))
        .unwrap()
        .unwrap();
    let with = |at: usize, byte: u8| {
        let mut block = good.clone();
        block[at] = byte;
        format.check_leaf(&block).unwrap_err()
    };
    assert!(matches!(
        with(4, 3),
        DirentError::RecordLength { offset: 0, .. }
    ));
    assert!(matches!(
        with(5, 0xff),
        DirentError::Overrun { offset: 0, .. }
    ));
    assert!(matches!(
        with(3, 0xff),
        DirentError::InodeRange { offset: 0, .. }
    ));
    // A rest of eight bytes holds no record.
    let mut block = good.clone();
    block[4..6].copy_from_slice(&1016_u16.to_le_bytes());
    assert!(matches!(
        format.check_leaf(&block),
        Err(DirentError::Overrun { .. })
    ));
    assert!(matches!(
        format.check_leaf(&good[..1000]),
        Err(DirentError::BlockSize {
            found: 1000,
            expected: 1024
        })
    ));
    let slash = Record {
        name: b"a/b",
        ..format.find(&good, b"abcd").unwrap().unwrap()
    };
    assert_eq!(slash.check_name(), Err(DirentError::Name { offset: 0 }));
}

#[test]
fn hostile_blocks_end_every_walk() {
    let format = format(10, None);
    let mut random = Random(1);
    let mut base = vec![0; 1024];
    format.init_first(&mut base, Ino::ROOT, Ino::ROOT);
    for i in 0..40 {
        let name = format!("file-{i}");
        format
            .insert(&mut base, &entry(&name, 20 + i))
            .unwrap()
            .unwrap();
    }
    let mut faults = 0;
    for _ in 0..20_000 {
        let mut block = base.clone();
        for _ in 0..=random.below(3) {
            let at = random.below(block.len());
            block[at] = u8::try_from(random.below(256)).unwrap();
        }
        assert!(format.records(&block).count() <= 1024 / 12 + 1);
        faults += usize::from(format.check_leaf(&block).is_err());
        let _ = format.dots(&block);
        let _ = format.find(&block, b"file-39");
        let _ = format.insert(&mut block, &entry("newcomer", 99));
        let _ = format.remove(&mut block, 24);
        let _ = format.compact(&mut block);
        let _ = format.split(&block, &entry("x", 5), |name| {
            u32::from(name.first().copied().unwrap_or(0)) << 1
        });
        let _ = format.make_index(&block, 1);
    }
    assert!(faults > 1000, "the mutations did something");
}
