//! The header of a file of quotas (`struct v2_disk_dqheader` and `v2_disk_dqinfo`).

use core::mem::size_of;

use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{BLOCK, QuotaBlock, QuotaError, QuotaKind};

/// The version that has 64-bit limits.
const VERSION: u32 = 1;
/// The least number of blocks: the header and the root of the tree.
const FEWEST: u32 = 2;
/// The most bytes of a file. No tree of as many ids as there are inodes comes near it, and
/// e2fsprogs reads no larger one.
const LARGEST: u64 = 1 << 31;
/// Seconds of grace that Linux and e2fsprogs give: a week.
const WEEK: u32 = 7 * 24 * 60 * 60;

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct RawQuotaHeader {
    magic: U32,
    version: U32,
    bytes_grace: U32,
    inodes_grace: U32,
    flags: U32,
    blocks: U32,
    free_block: U32,
    free_entry: U32,
}

const _: () = assert!(size_of::<RawQuotaHeader>() == 32);

/// Seconds for which soft limits may be passed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaTimes {
    /// That of bytes.
    pub bytes: u32,
    /// That of inodes.
    pub inodes: u32,
}

impl Default for QuotaTimes {
    fn default() -> Self {
        Self {
            bytes: WEEK,
            inodes: WEEK,
        }
    }
}

/// A checked header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaHeader {
    /// The kind, by its magic number.
    pub kind: QuotaKind,
    /// Grace times.
    pub times: QuotaTimes,
    /// `dqi_flags`, which are kept.
    pub(super) flags: u32,
    /// Blocks of the file, each of [`super::BLOCK`] bytes.
    pub blocks: u32,
    /// Head of the list of blocks without use; 0 if there is none.
    pub(super) free_block: u32,
    /// Head of the list of blocks of entries with room; 0 if there is none.
    pub(super) free_entry: u32,
}

impl QuotaHeader {
    /// That of a file with the root of its tree and nothing else.
    pub(super) fn new(kind: QuotaKind, times: QuotaTimes) -> Self {
        Self {
            kind,
            times,
            flags: 0,
            blocks: FEWEST,
            free_block: 0,
            free_entry: 0,
        }
    }

    /// The same with other grace times.
    #[must_use]
    pub fn with_times(self, times: QuotaTimes) -> Self {
        Self { times, ..self }
    }

    /// Reads the header of a file of `bytes` bytes that has quotas of `kind`.
    ///
    /// # Errors
    /// Another magic number or version; a number of blocks that the file does not have; a list that
    /// begins outside.
    pub fn decode(kind: QuotaKind, bytes: u64, block: &QuotaBlock) -> Result<Self, QuotaError> {
        let (raw, _) =
            RawQuotaHeader::ref_from_prefix(block).map_err(|_| QuotaError::Short { block: 0 })?;
        if raw.magic.get() != kind.magic() {
            let found = raw.magic.get();
            return Err(QuotaError::Magic { found });
        }
        if raw.version.get() != VERSION {
            let found = raw.version.get();
            return Err(QuotaError::Version { found });
        }
        let blocks = raw.blocks.get();
        if blocks < FEWEST || u64::from(blocks) > bytes / BLOCK as u64 || bytes > LARGEST {
            return Err(QuotaError::Blocks { blocks, bytes });
        }
        let header = Self {
            kind,
            times: QuotaTimes {
                bytes: raw.bytes_grace.get(),
                inodes: raw.inodes_grace.get(),
            },
            flags: raw.flags.get(),
            blocks,
            free_block: raw.free_block.get(),
            free_entry: raw.free_entry.get(),
        };
        for target in [header.free_block, header.free_entry] {
            if target != 0 {
                header.check(0, target)?;
            }
        }
        Ok(header)
    }

    /// A header to find entries by in a file of `bytes` bytes whose own cannot be used: with what
    /// can be read of it.
    pub fn guess(kind: QuotaKind, bytes: u64, block: &QuotaBlock) -> Self {
        let most = u32::try_from(bytes.min(LARGEST) / BLOCK as u64).unwrap_or(0);
        let mut header = Self::new(kind, QuotaTimes::default());
        if let Ok((raw, _)) = RawQuotaHeader::ref_from_prefix(block)
            && raw.magic.get() == kind.magic()
        {
            header.times.bytes = raw.bytes_grace.get();
            header.times.inodes = raw.inodes_grace.get();
        }
        header.blocks = most.max(FEWEST);
        header
    }

    /// Writes the header; what follows it in the block stays.
    pub fn encode(&self, block: &mut QuotaBlock) {
        let raw = RawQuotaHeader {
            magic: self.kind.magic().into(),
            version: VERSION.into(),
            bytes_grace: self.times.bytes.into(),
            inodes_grace: self.times.inodes.into(),
            flags: self.flags.into(),
            blocks: self.blocks.into(),
            free_block: self.free_block.into(),
            free_entry: self.free_entry.into(),
        };
        block[..size_of::<RawQuotaHeader>()].copy_from_slice(raw.as_bytes());
    }

    /// Fails unless the block at `target`, which block `from` names, can hold a node or entries.
    pub(super) fn check(&self, from: u32, target: u32) -> Result<(), QuotaError> {
        match (FEWEST..self.blocks).contains(&target) {
            true => Ok(()),
            false => Err(QuotaError::Reference {
                block: from,
                target,
            }),
        }
    }
}
