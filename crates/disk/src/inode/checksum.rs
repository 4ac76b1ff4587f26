//! The checksum of an inode record, in two halves.

use core::mem::offset_of;

use super::raw_inode::{GOOD_OLD_SIZE, RawInode, RawInodeExtra, fits};
use crate::csum::Crc32c;

const LOW: usize = offset_of!(RawInode, checksum_lo);
const HIGH: usize = GOOD_OLD_SIZE + offset_of!(RawInodeExtra, checksum_hi);

/// Bytes of a record as mke2fs makes them.
const USUAL: usize = 256;

/// The checksum over a whole record with its own two halves taken as zero.
pub(super) fn checksum(seed: Crc32c, has_high: bool, record: &[u8]) -> u32 {
    let mut copy = [0; USUAL];
    let csum = match copy.get_mut(..record.len()) {
        // In one piece: a copy costs less than pieces.
        Some(copy) => {
            copy.copy_from_slice(record);
            put(copy, has_high, [0; 4]);
            seed.feed(copy)
        }
        None => in_pieces(seed, has_high, record),
    };
    csum.raw() & if has_high { u32::MAX } else { 0xffff }
}

/// The same for a record of any length.
fn in_pieces(seed: Crc32c, has_high: bool, record: &[u8]) -> Crc32c {
    let part = |range: core::ops::Range<usize>| record.get(range).unwrap_or_default();
    let csum = seed
        .feed(part(0..LOW))
        .feed(&[0; 2])
        .feed(part(LOW + 2..GOOD_OLD_SIZE));
    if !has_high {
        return csum.feed(part(GOOD_OLD_SIZE..record.len()));
    }
    csum.feed(part(GOOD_OLD_SIZE..HIGH))
        .feed(&[0; 2])
        .feed(part(HIGH + 2..record.len()))
}

/// The checksum that a record stores, and whether it has the high half.
pub(super) fn stored(raw: &RawInode, extra: &RawInodeExtra, extra_isize: u16) -> (u32, bool) {
    let low = u32::from(raw.checksum_lo.get());
    if fits!(extra_isize, checksum_hi) {
        (low | u32::from(extra.checksum_hi.get()) << 16, true)
    } else {
        (low, false)
    }
}

/// Stores the checksum of a record whose other bytes are final. Of the same bytes as [`checksum`]:
/// in one piece, as the halves are overwritten anyway and pieces cost more than bytes.
pub(super) fn store(seed: Crc32c, extra_isize: u16, record: &mut [u8]) {
    let has_high = fits!(extra_isize, checksum_hi);
    put(record, has_high, [0; 4]);
    let csum = seed.feed(record).raw();
    put(record, has_high, csum.to_le_bytes());
}

fn put(record: &mut [u8], has_high: bool, csum: [u8; 4]) {
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(to) = record.get_mut(at..at + 2) {
            to.copy_from_slice(bytes);
        }
    };
    put(LOW, &csum[..2]);
    if has_high {
        put(HIGH, &csum[2..]);
    }
}
