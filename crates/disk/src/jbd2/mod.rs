//! The journal's on-disk structures (jbd2): all fields are big-endian.
//!
//! A log is a ring of blocks behind a [`superblock::JournalSuperblock`]. A transaction in it is any
//! number of [`revoke`] blocks and [`descriptor`] blocks, each descriptor followed by the copies it
//! describes, and a [`commit`] block. Every such block but the copies begins with a [`Header`] that
//! names its kind and the transaction's sequence number. A copy that would look like a header is
//! *escaped*: its first four bytes are zeroed and its tag says so.
//!
//! # Checksums
//! Version 1 (a compatible feature) keeps one crc32 of a transaction's blocks in its commit block.
//! Versions 2 and 3 (incompatible features) seed a crc32c with the log's UUID; descriptor and
//! revoke blocks have a tail, commit blocks a field, and each copy's tag a checksum over sequence
//! number and (escaped) bytes, of which version 2 keeps the low 16 bits. At most one version is in
//! use.

pub mod commit;
pub mod crc32;
pub mod descriptor;
pub mod fast_commit;
pub mod revoke;
pub mod superblock;

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::csum::Crc32c;

/// The first four bytes of every block that is not a copy.
pub const MAGIC: u32 = 0xc03b_3998;
/// Bytes of a [`Header`].
pub const HEADER_LEN: usize = 12;
/// Bytes of the checksum at the end of descriptor and revoke blocks.
const TAIL_LEN: usize = 4;

/// Kind of a block of the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    /// Says where the copies behind it belong.
    Descriptor,
    /// Ends a transaction.
    Commit,
    /// The log's superblock without feature fields.
    SuperblockV1,
    /// The log's superblock.
    SuperblockV2,
    /// Names blocks whose older copies are void.
    Revoke,
}

impl BlockKind {
    const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::Descriptor,
            2 => Self::Commit,
            3 => Self::SuperblockV1,
            4 => Self::SuperblockV2,
            5 => Self::Revoke,
            _ => return None,
        })
    }

    const fn raw(self) -> u32 {
        match self {
            Self::Descriptor => 1,
            Self::Commit => 2,
            Self::SuperblockV1 => 3,
            Self::SuperblockV2 => 4,
            Self::Revoke => 5,
        }
    }
}

/// `journal_header_t` as stored.
#[repr(C)]
#[derive(Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
struct RawLogHeader {
    magic: U32,
    kind: U32,
    sequence: U32,
}

const _: () = assert!(size_of::<RawLogHeader>() == HEADER_LEN);

/// The beginning of every block of the log that is not a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Kind of the block.
    pub kind: BlockKind,
    /// The transaction that it belongs to.
    pub sequence: u32,
}

impl Header {
    /// The header of `block`, `None` if it has none: no magic number, or a kind that does not
    /// exist.
    pub fn parse(block: &[u8]) -> Option<Self> {
        let (raw, _) = RawLogHeader::ref_from_prefix(block).ok()?;
        if raw.magic.get() != MAGIC {
            return None;
        }
        Some(Self {
            kind: BlockKind::from_raw(raw.kind.get())?,
            sequence: raw.sequence.get(),
        })
    }

    /// Writes the header to the beginning of `block`.
    fn write(self, block: &mut [u8]) {
        let raw = RawLogHeader {
            magic: MAGIC.into(),
            kind: self.kind.raw().into(),
            sequence: self.sequence.into(),
        };
        let written = raw.write_to_prefix(block);
        written.expect("a block of a log is longer than a header");
    }
}

/// Which checksums the blocks of a log carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksums {
    /// None.
    #[default]
    None,
    /// One crc32 per transaction. Only read, never written.
    V1,
    /// Of every block, 16 bits per copy.
    V2,
    /// Of every block, 32 bits per copy.
    V3,
}

/// Layout of a log's blocks, as its features say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Checksums of the log's blocks.
    pub checksums: Checksums,
    /// True if block numbers have 64 bits.
    pub wide: bool,
    /// The log's UUID: follows the first tag of each descriptor.
    pub uuid: [u8; 16],
}

impl Format {
    /// Returns whether descriptor, revoke and commit blocks have checksums of their own.
    pub const fn has_block_checksums(&self) -> bool {
        matches!(self.checksums, Checksums::V2 | Checksums::V3)
    }

    /// Start of every checksum of versions 2 and 3.
    fn seed(&self) -> Crc32c {
        Crc32c::START.feed(&self.uuid)
    }

    /// The bytes of a `block_size` block in front of its tail.
    const fn body_len(&self, block_size: usize) -> usize {
        if self.has_block_checksums() {
            // A slice that is shorter than the tail has no body.
            block_size.saturating_sub(TAIL_LEN)
        } else {
            block_size
        }
    }

    /// The checksum of `block` with the four bytes at `field` taken as zero.
    fn block_checksum(&self, block: &[u8], field: usize) -> u32 {
        let (before, rest) = block.split_at(field.min(block.len()));
        // A slice that ends within the field has nothing after it.
        let after = rest.get(4..).unwrap_or_default();
        self.seed().feed(before).feed(&[0; 4]).feed(after).raw()
    }

    /// Returns whether the tail of a descriptor or revoke block is right. Always, if there are no
    /// such tails.
    pub fn tail_is_right(&self, block: &[u8]) -> bool {
        if !self.has_block_checksums() {
            return true;
        }
        let field = self.body_len(block.len());
        let stored = U32::read_from_prefix(block.get(field..).unwrap_or_default());
        stored.is_ok_and(|(stored, _)| stored.get() == self.block_checksum(block, field))
    }

    /// Sets the tail of a descriptor or revoke block, if the format has one.
    fn seal(&self, block: &mut [u8]) {
        if self.has_block_checksums() {
            let field = self.body_len(block.len());
            let checksum = U32::new(self.block_checksum(block, field));
            let written = checksum.write_to_suffix(block);
            written.expect("a block of a log holds its tail");
        }
    }
}

/// Damage in a block of the log.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LogBlockError {
    /// A revoke block claims more bytes than it has.
    #[error("the revoke block claims {claimed} bytes of at most {limit}")]
    RevokeCount {
        /// Bytes claimed, header included.
        claimed: u32,
        /// Bytes there are.
        limit: usize,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_read_back_and_strangers_are_none() {
        let mut block = [0u8; 64];
        assert_eq!(Header::parse(&block), None);
        let header = Header {
            kind: BlockKind::Revoke,
            sequence: 77,
        };
        header.write(&mut block);
        assert_eq!(block[..4], [0xc0, 0x3b, 0x39, 0x98]);
        assert_eq!(Header::parse(&block), Some(header));
        block[7] = 9;
        assert_eq!(Header::parse(&block), None);
        assert_eq!(Header::parse(&block[..11]), None);
    }
}
