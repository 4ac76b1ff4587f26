#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
use super::checksum::checksum;
use super::codec::encode_sectors;
use super::*;

fn format(size: u16, csum: bool) -> InodeFormat {
    InodeFormat {
        inode_size: size,
        block_size: BlockSize::KIB4,
        huge_file: true,
        wide_blocks: true,
        large_dir: false,
        csum_seed: csum.then(|| Crc32c::START.feed(b"some uuid")),
    }
}

fn sample(format: &InodeFormat) -> InodeCore {
    let mut core = InodeCore::blank(format, 32);
    core.mode = 0o100_644;
    core.links = 3;
    core.uid = 0x0001_0203;
    core.gid = 0xfffe_fdfc;
    core.flags = InodeFlags::EXTENTS | InodeFlags::NOATIME;
    core.disk_size = 0x12_3456_789a;
    core.sectors = 0x1_2345_6789;
    core.mtime = InodeTime {
        secs: if format.is_large() { 5_000_000_000 } else { 5 },
        nanos: if format.is_large() { 7 } else { 0 },
    };
    core.crtime = core.crtime.map(|_| InodeTime {
        secs: -1,
        nanos: 999_999_999,
    });
    core.dtime = 77;
    core.version = if format.is_large() { 1 << 40 } else { 9 };
    core.generation = 0xdead_beef;
    core.file_acl = Pblk::new(0xabcd_1234_5678);
    core.i_block = core::array::from_fn(|i| u8::try_from(i).unwrap());
    core.xattrs.fill(0x5a);
    core
}

#[test]
fn every_size_comes_back() {
    for size in [128, 256, 512, 1024, 4096] {
        for csum in [false, true] {
            let format = format(size, csum);
            let core = sample(&format);
            let mut record = vec![0; size.into()];
            let ino = Ino::new(12).unwrap();
            core.encode(&format, ino, &mut record).unwrap();
            assert_eq!(InodeCore::decode(&format, ino, &record).unwrap(), core);
        }
    }
}

#[test]
fn unknown_bytes_survive() {
    let format = format(256, true);
    let mut record = vec![0xee; 256];
    record[0x80..0x82].copy_from_slice(&40_u16.to_le_bytes());
    let mut core = InodeCore::blank(&format, 40);
    core.mode = 0o100_600;
    let ino = Ino::ROOT;
    core.encode(&format, ino, &mut record).unwrap();
    assert_eq!(record[0x70..0x74], [0xee; 4], "obsolete fragment address");
    assert_eq!(
        record[0xa0..0xa8],
        [0xee; 8],
        "fields behind the known ones"
    );
    assert_eq!(record[0xa8..], [0; 88], "attributes");
    assert_eq!(InodeCore::decode(&format, ino, &record).unwrap(), core);
}

#[test]
fn each_flipped_bit_is_found() {
    let format = format(256, true);
    let ino = Ino::new(12).unwrap();
    let mut record = vec![0; 256];
    sample(&format).encode(&format, ino, &mut record).unwrap();
    for bit in 0..256 * 8 {
        record[bit / 8] ^= 1 << (bit % 8);
        assert!(
            InodeCore::decode(&format, ino, &record).is_err(),
            "bit {bit}"
        );
        record[bit / 8] ^= 1 << (bit % 8);
    }
    let other = Ino::new(13).unwrap();
    assert!(matches!(
        InodeCore::decode(&format, other, &record),
        Err(InodeError::Checksum { .. })
    ));
}

#[test]
fn extra_size_is_bounded() {
    let format = format(256, false);
    let mut record = vec![0; 256];
    for bad in [129_u16, 132, 30, 0xffff] {
        record[0x80..0x82].copy_from_slice(&bad.to_le_bytes());
        assert_eq!(
            InodeCore::decode(&format, Ino::ROOT, &record),
            Err(InodeError::ExtraSize { found: bad })
        );
    }
    record[0x80..0x82].copy_from_slice(&128_u16.to_le_bytes());
    let core = InodeCore::decode(&format, Ino::ROOT, &record).unwrap();
    assert!(core.xattrs.is_empty());
}

#[test]
fn fields_outside_of_extra_size_are_not_read() {
    let format = format(256, false);
    let mut record = vec![0xff; 256];
    record[..128].fill(0);
    record[0x80..0x82].copy_from_slice(&12_u16.to_le_bytes());
    let core = InodeCore::decode(&format, Ino::ROOT, &record).unwrap();
    assert_eq!(core.crtime, None);
    assert_eq!(core.atime, InodeTime::default());
    assert_eq!(core.mtime.nanos, 999_999_999);
    assert_eq!(core.projid, 0);
    assert_eq!(core.xattrs.len(), 116);
}

#[test]
fn an_unused_extra_part_is_taken() {
    let format = format(256, true);
    let ino = Ino::new(11).unwrap();
    let mut record = vec![0; 256];
    record[0] = 1;
    let seed = format.inode_seed(ino, 0).unwrap();
    let csum = checksum(seed, false, &record).to_le_bytes();
    record[0x7c..0x7e].copy_from_slice(&csum[..2]);
    let core = InodeCore::decode(&format, ino, &record).unwrap();
    assert_eq!(core.extra_isize, 32);
    assert_eq!(core.xattrs.len(), 96);
    core.encode(&format, ino, &mut record).unwrap();
    assert_eq!(InodeCore::decode(&format, ino, &record).unwrap(), core);
}

#[test]
fn space_used_switches_units() {
    let wide = format(256, false);
    let narrow = InodeFormat {
        huge_file: false,
        ..wide
    };
    assert_eq!(encode_sectors(&wide, 8), Ok((8, 0, false)));
    assert_eq!(encode_sectors(&wide, 1 << 32), Ok((0, 1, false)));
    assert_eq!(encode_sectors(&wide, 1 << 48), Ok((0, 0x2000, true)));
    assert!(encode_sectors(&wide, 1 << 51).is_err());
    assert!(encode_sectors(&narrow, 1 << 32).is_err());
    let mut core = sample(&wide);
    core.sectors = 1 << 48;
    let mut record = vec![0; 256];
    core.encode(&wide, Ino::ROOT, &mut record).unwrap();
    let back = InodeCore::decode(&wide, Ino::ROOT, &record).unwrap();
    assert_eq!(back.sectors, 1 << 48);
    assert!(back.flags.contains(InodeFlags::HUGE_FILE));
    core.sectors = 8;
    core.encode(&wide, Ino::ROOT, &mut record).unwrap();
    let back = InodeCore::decode(&wide, Ino::ROOT, &record).unwrap();
    assert!(!back.flags.contains(InodeFlags::HUGE_FILE));
}

#[test]
fn directories_are_as_large_as_files_with_large_dir() {
    for large_dir in [false, true] {
        let format = InodeFormat {
            large_dir,
            ..format(256, true)
        };
        let mut core = sample(&format);
        core.mode = 0o040_755;
        let mut record = vec![0; 256];
        core.encode(&format, Ino::ROOT, &mut record).unwrap();
        let back = InodeCore::decode(&format, Ino::ROOT, &record).unwrap();
        let stored = if large_dir {
            u64::MAX
        } else {
            u64::from(u32::MAX)
        };
        assert_eq!(back.disk_size, core.disk_size & stored);
    }
}

#[test]
fn sizes_with_the_top_bit_are_refused() {
    let format = format(128, false);
    let mut record = vec![0; 128];
    record[1] = 0x81;
    record[0x6f] = 0x80;
    assert!(matches!(
        InodeCore::decode(&format, Ino::ROOT, &record),
        Err(InodeError::Size { .. })
    ));
    record[1] = 0x41;
    assert_eq!(
        InodeCore::decode(&format, Ino::ROOT, &record)
            .unwrap()
            .disk_size,
        0,
        "a directory has no high half"
    );
}

#[test]
fn hostile_records_never_panic() {
    let mut state = 0x1234_5678_9abc_def1_u64;
    for round in 0..2000 {
        let size = [128_u16, 256, 1024][round % 3];
        let format = format(size, false);
        let mut record = vec![0; size.into()];
        for b in &mut record {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            *b = state.to_le_bytes()[0];
        }
        if let Ok(core) = InodeCore::decode(&format, Ino::ROOT, &record) {
            let mut again = record.clone();
            core.encode(&format, Ino::ROOT, &mut again).unwrap();
            let mut back = InodeCore::decode(&format, Ino::ROOT, &again).unwrap();
            // The codec chooses the unit of the space used by itself.
            back.flags.set(
                InodeFlags::HUGE_FILE,
                core.flags.contains(InodeFlags::HUGE_FILE),
            );
            assert_eq!(back, core);
        }
    }
}
