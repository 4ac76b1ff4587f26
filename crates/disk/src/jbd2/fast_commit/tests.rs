use extant_units::{BlockSize, Ino, Lblk, Pblk};

use super::record::{RECORD_HEADER, TAG_HEAD, TAG_TAIL};
use super::*;
use crate::csum::Crc32c;
use crate::extent::Extent;

fn record(tag: u16, value: &[u8]) -> Vec<u8> {
    let len = u16::try_from(value.len()).unwrap();
    [&tag.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
}

fn head(tid: u32, features: u32) -> Vec<u8> {
    record(
        TAG_HEAD,
        &[features.to_le_bytes(), tid.to_le_bytes()].concat(),
    )
}

fn inode(ino: u32) -> Vec<u8> {
    record(6, &[&ino.to_le_bytes()[..], &[1; 128]].concat())
}

/// A tail that fills the block of `len` bytes behind `records`.
fn with_tail(mut records: Vec<u8>, tid: u32, len: usize, spoil: u32) -> Vec<u8> {
    let value = len - records.len() - RECORD_HEADER;
    records.extend(TAG_TAIL.to_le_bytes());
    records.extend(u16::try_from(value).unwrap().to_le_bytes());
    records.extend(tid.to_le_bytes());
    let sum = Crc32c::from_raw(0).feed(&records).raw() ^ spoil;
    records.extend(sum.to_le_bytes());
    records.resize(len, 0);
    records
}

/// The operations of the complete commits of an area for transaction `tid`.
fn scanned(tid: u32, area: &[u8]) -> Result<Vec<usize>, UnknownFastCommitFeatures> {
    let mut scan = FastCommitScan::new(tid);
    for block in area.chunks(1024) {
        if !scan.block(block)? {
            break;
        }
    }
    let complete = scan.into_complete();
    let operations = |records: &Vec<u8>| Operations::of(records).map(Result::unwrap).count();
    Ok(complete.iter().map(operations).collect())
}

#[test]
fn a_whole_fast_commit_is_found() {
    let records = [head(9, 0), inode(12), record(7, &[0; 20])].concat();
    let block = with_tail(records, 9, 1024, 0);
    assert_eq!(scanned(9, &block), Ok(vec![3]));
    assert_eq!(scanned(8, &block), Ok(vec![]));
}

#[test]
fn one_that_spans_blocks_is_found_and_so_are_those_behind_one_head() {
    let mut area = head(9, 0);
    area.extend(record(7, &[0; 1024 - 12 - 4]));
    area = with_tail(area, 9, 2048, 0);
    assert_eq!(scanned(9, &area[..1024]), Ok(vec![]));
    assert_eq!(scanned(9, &area), Ok(vec![2]));
    // The second has no head; the third is torn, and the fourth comes behind it.
    area.extend(with_tail(inode(13), 9, 1024, 0));
    assert_eq!(scanned(9, &area), Ok(vec![2, 1]));
    area.extend(with_tail(inode(14), 9, 1024, 1));
    area.extend(with_tail(inode(15), 9, 1024, 0));
    assert_eq!(scanned(9, &area), Ok(vec![2, 1]));
}

#[test]
fn commits_without_records_are_none_and_each_other_one_costs_memory() {
    let mut area = with_tail([head(9, 0), inode(12)].concat(), 9, 1024, 0);
    area.extend(with_tail(Vec::new(), 9, 1024, 0));
    area.extend(with_tail(inode(13), 9, 1024, 0));
    assert_eq!(scanned(9, &area), Ok(vec![2, 1]));
    let mut scan = FastCommitScan::new(9);
    let held = area.chunks(1024).map(|block| {
        assert_eq!(scan.block(block), Ok(true));
        scan.bytes()
    });
    let [first, empty, second]: [usize; 3] = held.collect::<Vec<_>>().try_into().unwrap();
    assert!(first > head(9, 0).len() + inode(12).len());
    assert_eq!(empty, first);
    assert!(second > first + inode(13).len());
}

#[test]
fn torn_and_foreign_areas_hold_nothing() {
    let torn = with_tail(head(9, 0), 9, 1024, 1);
    let foreign = with_tail(head(9, 0), 8, 1024, 0);
    let headless = with_tail(inode(12), 9, 1024, 0);
    let unknown = with_tail([head(9, 0), record(10, &[])].concat(), 9, 1024, 0);
    let short = with_tail([head(9, 0), record(2, &[1; 11])].concat(), 9, 1024, 0);
    for block in [
        torn,
        foreign,
        headless,
        unknown,
        short,
        vec![0; 1024],
        vec![0xff; 1024],
        vec![],
    ] {
        assert_eq!(scanned(9, &block), Ok(vec![]));
    }
}

#[test]
fn unknown_features_are_no_end_of_the_area() {
    let block = with_tail(head(9, 4), 9, 1024, 0);
    assert_eq!(scanned(9, &block), Err(UnknownFastCommitFeatures(4)));
    assert_eq!(scanned(8, &block), Ok(vec![]), "of another transaction");
}

#[test]
fn operations_are_read_as_they_were_written() {
    let extent = Extent {
        lblk: Lblk::new(5),
        len: 7,
        pblk: Pblk::new(1 << 33),
        unwritten: true,
    };
    let [dir, file] = [2_u32, 12].map(u32::to_le_bytes);
    let name = [&dir[..], &file, b"na/me"].concat();
    let range = [12_u32, 3, 4].map(u32::to_le_bytes).concat();
    let records = [
        record(1, &[&file[..], &extent.encode().unwrap()].concat()),
        record(2, &range),
        record(3, &name),
        record(4, &name),
        record(5, &name),
        inode(12),
    ];
    let ino = Ino::new(12).unwrap();
    let change = EntryChange {
        parent: Ino::ROOT,
        ino,
        name: b"na/me",
    };
    let lblk = Lblk::new(3);
    let expected = [
        Operation::AddRange(ino, extent),
        Operation::DelRange { ino, lblk, len: 4 },
        Operation::Create(change),
        Operation::Link(change),
        Operation::Unlink(change),
        Operation::Inode(ino, &[1; 128]),
    ];
    let all = records.concat();
    let read: Result<Vec<_>, _> = Operations::of(&all).collect();
    assert_eq!(read.unwrap(), expected);
    // Inode 0, no name, too long a name, an extent of no blocks, a record that is cut.
    let none = [0; 4];
    let long = [&dir[..], &file, &[b'x'; 256]].concat();
    for (tag, value) in [
        (5, [&dir[..], &none, b"name"].concat()),
        (5, [&dir[..], &file].concat()),
        (5, long),
        (1, [&file[..], &[0; 12]].concat()),
        (6, [&file[..], &[0; 127]].concat()),
        (7, vec![]),
    ] {
        let bytes = record(tag, &value);
        let read = Operations::of(&bytes).next().unwrap();
        let len = value.len();
        match tag {
            7 => assert_eq!(read, Ok(Operation::Nothing)),
            _ => assert_eq!(read, Err(OperationError { tag, len })),
        }
    }
    let cut = Operations::of(&all[..all.len() - 1]).last().unwrap();
    assert!(cut.is_err(), "{cut:?}");
}

/// All that a fast commit of `operations` says, read back.
fn written_and_read(writer: FastCommitWriter, tid: u32, bs: usize) -> Vec<Vec<u8>> {
    let blocks = writer.blocks();
    let area = writer.finish();
    assert_eq!(area.len(), blocks * bs, "whole blocks, as it said");
    let mut scan = FastCommitScan::new(tid);
    for block in area.chunks(bs) {
        assert_eq!(scan.block(block), Ok(true));
    }
    scan.into_complete()
}

#[test]
fn any_operations_are_read_as_they_were_added() {
    for bs in [BlockSize::KIB1, BlockSize::KIB4] {
        // Lengths that leave any number of bytes at the end of a block.
        for step in 1..=40 {
            let names: Vec<Vec<u8>> = (1..60).map(|n| vec![b'n'; 1 + n * step % 255]).collect();
            let records: Vec<Vec<u8>> = (0..60).map(|n| vec![7; 128 + n * step % 33]).collect();
            let mut writer = FastCommitWriter::new(bs, 9, true);
            assert!(writer.is_empty());
            let mut expected = vec![Operation::Nothing];
            for (name, record) in names.iter().zip(&records) {
                let ino = Ino::new(12).unwrap();
                let lblk = Lblk::new(3);
                let change = EntryChange {
                    parent: Ino::ROOT,
                    ino,
                    name,
                };
                let extent = Extent {
                    lblk,
                    len: 9,
                    pblk: Pblk::new(1 << 40),
                    unwritten: name.len() % 2 == 0,
                };
                for operation in [
                    Operation::Unlink(change),
                    Operation::Inode(ino, record),
                    Operation::Create(change),
                    Operation::AddRange(ino, extent),
                    Operation::Link(change),
                    Operation::DelRange { ino, lblk, len: 3 },
                ] {
                    writer.add(&operation).unwrap();
                    expected.push(operation);
                }
            }
            assert!(!writer.is_empty());
            let read = written_and_read(writer, 9, bs.bytes());
            let [commit] = &read[..] else {
                panic!("{} commits", read.len())
            };
            let mut said: Vec<_> = Operations::of(commit).map(Result::unwrap).collect();
            // Padding says nothing.
            let mut first = true;
            said.retain(|op| *op != Operation::Nothing || std::mem::take(&mut first));
            assert!(said == expected, "step {step}");
        }
    }
}

#[test]
fn a_later_fast_commit_has_no_head_and_counts_behind_the_first() {
    let bs = BlockSize::KIB1;
    let ino = Ino::new(12).unwrap();
    let commit = |tid, first, fill| {
        let mut writer = FastCommitWriter::new(bs, tid, first);
        writer.add(&Operation::Inode(ino, &[fill; 160])).unwrap();
        writer.finish()
    };
    let (first, second) = (commit(9, true, 1), commit(9, false, 2));
    assert_eq!(scanned(9, &[&first[..], &second].concat()), Ok(vec![2, 1]));
    assert_eq!(scanned(9, &second), Ok(vec![]), "without the first");
    // What is left of an older transaction does not count behind it.
    let stale = commit(8, false, 3);
    assert_eq!(scanned(9, &[&first[..], &stale].concat()), Ok(vec![2]));
}

#[test]
fn what_no_record_says_is_not_added() {
    let ino = Ino::new(12).unwrap();
    let change = |name| EntryChange {
        parent: Ino::ROOT,
        ino,
        name,
    };
    let long = vec![b'x'; 256];
    let extent = Extent {
        lblk: Lblk::new(5),
        len: 0,
        pblk: Pblk::new(7),
        unwritten: false,
    };
    let mut writer = FastCommitWriter::new(BlockSize::KIB1, 9, false);
    for operation in [
        Operation::Nothing,
        Operation::Create(change(b"")),
        Operation::Create(change(&long)),
        Operation::AddRange(ino, extent),
        Operation::Inode(ino, &[0; 127]),
        Operation::Inode(ino, &[0; 1024]),
    ] {
        assert_eq!(writer.add(&operation), Err(OperationTooLong));
    }
    assert!(writer.is_empty());
}
