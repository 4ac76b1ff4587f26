//! Commit blocks: the end of a transaction, and when it was.

use std::mem::offset_of;

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::crc32::Crc32;
use super::{BlockKind, Checksums, Format, Header, RawLogHeader};

/// `struct commit_header` as stored.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
struct RawCommit {
    header: RawLogHeader,
    checksum_type: u8,
    checksum_size: u8,
    padding: [u8; 2],
    checksum: [U32; 8],
    seconds: U64,
    nanoseconds: U32,
}

const _: () = assert!(size_of::<RawCommit>() == 60);
const _: () = assert!(offset_of!(RawCommit, checksum) == 16);
const _: () = assert!(offset_of!(RawCommit, seconds) == 48);

const CHECKSUM_AT: usize = offset_of!(RawCommit, checksum);
/// `checksum_type` of version 1.
const TYPE_CRC32: u8 = 1;

/// Statement of a commit block about checksums of version 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// Nothing at all.
    Nothing,
    /// The transaction's blocks have this crc32.
    Crc32(u32),
    /// Something that makes no sense.
    Unknown,
}

impl RawCommit {
    /// The fields of a block that is being written.
    fn of(block: &mut [u8]) -> &mut Self {
        let parsed = Self::mut_from_prefix(block);
        parsed.expect("a block of a log holds the fields").0
    }
}

/// A commit block's contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    /// When the transaction was committed, seconds since 1970.
    pub seconds: u64,
    /// The part of a second.
    pub nanoseconds: u32,
    /// Checksum of version 1, if that is what the log has.
    pub claim: Claim,
}

impl Commit {
    /// Reads a commit block whose header was recognised.
    pub fn parse(block: &[u8]) -> Self {
        let Ok((raw, _)) = RawCommit::ref_from_prefix(block) else {
            return Self {
                seconds: 0,
                nanoseconds: 0,
                claim: Claim::Unknown,
            };
        };
        let claim = match (raw.checksum_type, raw.checksum_size, raw.checksum[0].get()) {
            (0, 0, 0) => Claim::Nothing,
            (TYPE_CRC32, 4, sum) => Claim::Crc32(sum),
            _ => Claim::Unknown,
        };
        Self {
            seconds: raw.seconds.get(),
            nanoseconds: raw.nanoseconds.get(),
            claim,
        }
    }

    /// Returns whether a checksum of version 1 agrees with what the transaction's blocks have. A
    /// transaction without one is taken as it is.
    pub fn agrees_with(&self, found: Crc32) -> bool {
        match self.claim {
            Claim::Nothing => true,
            Claim::Crc32(stored) => stored == found.raw(),
            Claim::Unknown => false,
        }
    }
}

impl Format {
    /// Writes the commit block of transaction `sequence` into `block`, which is zeroed.
    pub fn write_commit(&self, block: &mut [u8], sequence: u32, seconds: u64, nanoseconds: u32) {
        let header = Header {
            kind: BlockKind::Commit,
            sequence,
        };
        header.write(block);
        let raw = RawCommit::of(block);
        raw.seconds = seconds.into();
        raw.nanoseconds = nanoseconds.into();
        if self.has_block_checksums() {
            let checksum = self.block_checksum(block, CHECKSUM_AT);
            RawCommit::of(block).checksum[0] = checksum.into();
        }
    }

    /// Returns whether a commit block's own checksum (versions 2 and 3) is right. A block of which
    /// only the beginning reached the disk counts if what it holds, with zeroes behind, is right:
    /// nothing else is in it.
    pub fn commit_is_right(&self, block: &[u8]) -> bool {
        if matches!(self.checksums, Checksums::None | Checksums::V1) {
            return true;
        }
        let Ok((raw, rest)) = RawCommit::ref_from_prefix(block) else {
            return false;
        };
        let stored = raw.checksum[0].get();
        if stored == self.block_checksum(block, CHECKSUM_AT) {
            return true;
        }
        let (before, after) = raw.as_bytes().split_at(CHECKSUM_AT);
        let mut checksum = self.seed().feed(before).feed(&[0; 4]).feed(&after[4..]);
        let mut zeroes = rest.len();
        while zeroes > 0 {
            let piece = zeroes.min(ZEROES.len());
            checksum = checksum.feed(&ZEROES[..piece]);
            zeroes -= piece;
        }
        stored == checksum.raw()
    }
}

static ZEROES: [u8; 512] = [0; 512];

#[cfg(test)]
mod tests {
    use super::*;

    fn format(checksums: Checksums) -> Format {
        Format {
            checksums,
            wide: true,
            uuid: [7; 16],
        }
    }

    #[test]
    fn what_is_written_reads_back() {
        for checksums in [Checksums::None, Checksums::V2, Checksums::V3] {
            let format = format(checksums);
            let mut block = vec![0; 4096];
            format.write_commit(&mut block, 12, 1 << 33, 999);
            assert!(format.commit_is_right(&block));
            let read = Commit::parse(&block);
            assert_eq!((read.seconds, read.nanoseconds), (1 << 33, 999));
            if checksums == Checksums::None {
                assert_eq!(read.claim, Claim::Nothing);
                assert!(read.agrees_with(Crc32::START));
            }
        }
    }

    #[test]
    fn a_torn_block_counts_only_if_its_beginning_is_whole() {
        let format = format(Checksums::V3);
        let mut block = vec![0; 4096];
        format.write_commit(&mut block, 12, 34, 56);
        block[512..].fill(0xaa);
        assert!(format.commit_is_right(&block));
        block[55] ^= 1;
        assert!(!format.commit_is_right(&block));
    }

    #[test]
    fn version_one_compares_the_transaction() {
        let mut block = vec![0; 1024];
        block[12] = TYPE_CRC32;
        block[13] = 4;
        let sum = Crc32::START.feed(b"copies");
        block[16..20].copy_from_slice(&sum.raw().to_be_bytes());
        assert!(Commit::parse(&block).agrees_with(sum));
        assert!(!Commit::parse(&block).agrees_with(Crc32::START));
        block[13] = 5;
        assert!(!Commit::parse(&block).agrees_with(sum));
    }
}
