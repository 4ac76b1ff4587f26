//! Fast-commit areas: the scan over any blocks, and over blocks whose checksums are right.

use extant_disk::csum::Crc32c;
use extant_disk::jbd2::fast_commit::{FastCommitScan, Operations};

use super::Cost;
use crate::feed::Feed;

const BLOCK: usize = 1024;

/// Bytes that the scan counts for a complete commit beside its records.
const COMMIT_COST: usize = 64;

pub(super) fn run(data: &[u8]) -> Cost {
    let mut feed = Feed::new(data);
    let tid = u32::from(feed.u8());
    if feed.u8().is_multiple_of(2) {
        scan(tid, feed.rest());
    } else {
        let area = area(tid, &mut feed);
        // A whole commit is always recognised: else a log would be replayed without it.
        assert_eq!(scan(tid, &area), 1);
    }
    Cost::default()
}

/// The number of complete commits. Reads all of their operations.
fn scan(tid: u32, area: &[u8]) -> usize {
    let mut scan = FastCommitScan::new(tid);
    for block in area.chunks(BLOCK) {
        match scan.block(block) {
            Ok(true) => {}
            Ok(false) | Err(_) => break,
        }
    }
    let bytes = scan.bytes();
    let complete = scan.into_complete();
    let held = area.len() + complete.len() * COMMIT_COST;
    assert!(bytes <= held, "each record is there once");
    for records in &complete {
        let sound = Operations::of(records).all(|operation| operation.is_ok());
        assert!(sound, "the scan has read them");
    }
    complete.len()
}

/// An area with a complete commit, of records as the bytes say.
fn area(tid: u32, feed: &mut Feed<'_>) -> Vec<u8> {
    let mut area = Vec::new();
    let record = |area: &mut Vec<u8>, tag: u16, len: usize, value: &[u8]| {
        let len = u16::try_from(len).unwrap_or(u16::MAX);
        area.extend(tag.to_le_bytes());
        area.extend(len.to_le_bytes());
        area.extend(value);
        let padded = area.len() + usize::from(len) - value.len();
        area.resize(padded, 0);
    };
    record(&mut area, 9, 8, &[[0; 4], tid.to_le_bytes()].concat());
    for _ in 0..feed.u8() % 40 {
        let tag = 1 + u16::from(feed.u8() % 7);
        let len = match tag {
            1 => 16,
            2 => 12,
            3..=5 => 9 + usize::from(feed.u8()) % 255,
            6 => 132 + usize::from(feed.u8()),
            _ => usize::from(feed.u8()),
        };
        // A record does not cross blocks: padding fills what is left, where a header fits.
        let left = BLOCK - area.len() % BLOCK;
        if left < len + 8 {
            let pad = left.saturating_sub(4);
            record(&mut area, 7, pad, &[]);
            area.resize(area.len().next_multiple_of(BLOCK), 0);
        }
        let mut value = feed.take(len).to_vec();
        value.resize(len, 1);
        // No inode is 0, and no extent is empty.
        for at in [0, 4, 8] {
            if let Some(byte) = value.get_mut(at) {
                *byte |= 1;
            }
        }
        record(&mut area, tag, len, &value);
    }
    let left = BLOCK - area.len() % BLOCK;
    if left < 12 {
        record(&mut area, 7, left.saturating_sub(4), &[]);
        area.resize(area.len().next_multiple_of(BLOCK), 0);
    }
    let value = BLOCK - area.len() % BLOCK - 4;
    area.extend(8u16.to_le_bytes());
    area.extend(u16::try_from(value).unwrap_or(0).to_le_bytes());
    area.extend(tid.to_le_bytes());
    let sum = Crc32c::from_raw(0).feed(&area).raw();
    area.extend(sum.to_le_bytes());
    area.resize(area.len().next_multiple_of(BLOCK), 0);
    area
}
