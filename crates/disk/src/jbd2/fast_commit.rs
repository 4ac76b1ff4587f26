//! Fast commits: recognising one, so that a log that needs it replayed can be refused.
//!
//! The fast-commit area is a chain of records (tag and length, both 16-bit little-endian, then that
//! many bytes) that fills whole blocks. A head record names the transaction that the records come
//! after; each fast commit ends with a tail record that names it again and has a crc32c over
//! everything since the last tail.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

use crate::csum::Crc32c;

const RECORD_HEADER: usize = 4;
const TAG_TAIL: u16 = 8;
const TAG_HEAD: u16 = 9;
/// Tags 1 to 7 are operations and padding.
const TAGS: std::ops::RangeInclusive<u16> = 1..=TAG_HEAD;

/// Looks for a fast commit that belongs to transaction `tid`, block by block.
#[derive(Clone, Copy, Debug)]
pub struct FastCommitScan {
    tid: u32,
    checksum: Crc32c,
    started: bool,
}

/// Content of a block of the fast-commit area.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FastCommitVerdict {
    /// Nothing yet: the next block may.
    Undecided,
    /// A complete fast commit: the log cannot be replayed without it.
    Found,
    /// The area holds none for this transaction.
    Nothing,
}

impl FastCommitScan {
    /// A scan for fast commits on top of the last complete transaction: `tid` is the one after it.
    pub const fn new(tid: u32) -> Self {
        Self {
            tid,
            checksum: Crc32c::from_raw(0),
            started: false,
        }
    }

    /// Reads the next block of the area.
    pub fn block(&mut self, block: &[u8]) -> FastCommitVerdict {
        let mut rest = block;
        while let Some((tag, value)) = split_record(rest) {
            let record = RECORD_HEADER + value.len();
            match tag {
                TAG_HEAD if field(value, 4) == Some(self.tid) => self.started = true,
                TAG_TAIL if self.started => {
                    // The checksum covers the record up to its own field. A record on disk may be
                    // too short for that: then it has no second field, and is wrong anyway.
                    let covered = rest.get(..RECORD_HEADER + 4).unwrap_or_default();
                    let right = field(value, 0) == Some(self.tid)
                        && field(value, 4) == Some(self.checksum.feed(covered).raw());
                    return if right {
                        FastCommitVerdict::Found
                    } else {
                        FastCommitVerdict::Nothing
                    };
                }
                _ if self.started && TAGS.contains(&tag) => {}
                _ => return FastCommitVerdict::Nothing,
            }
            let (bytes, after) = rest.split_at(record.min(rest.len()));
            self.checksum = self.checksum.feed(bytes);
            rest = after;
        }
        if self.started && rest.len() < RECORD_HEADER {
            FastCommitVerdict::Undecided
        } else {
            FastCommitVerdict::Nothing
        }
    }
}

/// The tag and the value of the record at the beginning of `bytes`, `None` if there is no whole
/// one.
fn split_record(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (tag, rest) = U16::read_from_prefix(bytes).ok()?;
    let (len, rest) = U16::read_from_prefix(rest).ok()?;
    Some((tag.get(), rest.get(..usize::from(len.get()))?))
}

fn field(value: &[u8], at: usize) -> Option<u32> {
    let (field, _) = U32::read_from_prefix(value.get(at..)?).ok()?;
    Some(field.get())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(tag: u16, value: &[u8]) -> Vec<u8> {
        let len = u16::try_from(value.len()).unwrap();
        [&tag.to_le_bytes()[..], &len.to_le_bytes(), value].concat()
    }

    fn head(tid: u32) -> Vec<u8> {
        record(TAG_HEAD, &[[0; 4], tid.to_le_bytes()].concat())
    }

    /// A tail that fills the block behind `records`.
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

    #[test]
    fn a_whole_fast_commit_is_found() {
        let records = [head(9), record(6, &[1; 100]), record(7, &[0; 20])].concat();
        let block = with_tail(records, 9, 1024, 0);
        assert_eq!(
            FastCommitScan::new(9).block(&block),
            FastCommitVerdict::Found
        );
        assert_eq!(
            FastCommitScan::new(8).block(&block),
            FastCommitVerdict::Nothing
        );
    }

    #[test]
    fn one_that_spans_blocks_is_found() {
        let mut first = head(9);
        first.extend(record(7, &[0; 1024 - 12 - 4]));
        let mut scan = FastCommitScan::new(9);
        assert_eq!(scan.block(&first), FastCommitVerdict::Undecided);
        let mut whole = first.clone();
        whole = with_tail(whole, 9, 2048, 0);
        assert_eq!(scan.block(&whole[1024..]), FastCommitVerdict::Found);
    }

    #[test]
    fn torn_and_foreign_areas_hold_nothing() {
        let torn = with_tail(head(9), 9, 1024, 1);
        let foreign = with_tail(head(9), 8, 1024, 0);
        for block in [torn, foreign, vec![0; 1024], vec![0xff; 1024], vec![]] {
            assert_eq!(
                FastCommitScan::new(9).block(&block),
                FastCommitVerdict::Nothing
            );
        }
    }
}
