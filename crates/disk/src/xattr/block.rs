//! The header of an attribute block, its checksum and its hashes.

use core::mem::{offset_of, size_of};

use extant_units::Pblk;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{XATTR_MAGIC, XattrError};
use crate::csum::Crc32c;

/// The start of an attribute block (`ext4_xattr_header`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct BlockHeader {
    /// [`XATTR_MAGIC`].
    pub magic: U32,
    /// Inodes that name this block.
    pub refcount: U32,
    /// One.
    pub blocks: U32,
    /// Hash of all entries; zero if the block is not to be shared.
    pub hash: U32,
    /// crc32c of the block's number and bytes.
    pub checksum: U32,
    /// Zero.
    pub reserved: [U32; 3],
}

pub(super) const HEADER_SIZE: usize = size_of::<BlockHeader>();
const _: () = assert!(HEADER_SIZE == 32);
const _: () = assert!(offset_of!(BlockHeader, checksum) == 16);

/// The most inodes that share one block. Linux stops there, so that no block becomes a bottleneck.
pub const XATTR_REFCOUNT_MAX: u32 = 1024;

impl BlockHeader {
    /// The header of a block; `None` if the slice is too short for one.
    pub fn of(block: &[u8]) -> Option<&Self> {
        Self::ref_from_prefix(block).ok().map(|(h, _)| h)
    }

    /// The header of a block, to be changed. Seal the block afterwards.
    pub fn of_mut(block: &mut [u8]) -> Option<&mut Self> {
        Self::mut_from_prefix(block).ok().map(|(h, _)| h)
    }
}

/// The checksum of an attribute block at `pblk`, its own field taken as zero.
///
/// # Panics
/// The block is too short for a header.
pub fn block_checksum(seed: Crc32c, pblk: Pblk, block: &[u8]) -> u32 {
    const AT: usize = offset_of!(BlockHeader, checksum);
    seed.feed(&pblk.get().to_le_bytes())
        .feed(&block[..AT])
        .feed(&[0; 4])
        .feed(&block[AT + 4..])
        .raw()
}

/// Verifies header and checksum of the attribute block at `pblk`. The entries are checked by
/// walking them.
///
/// # Errors
/// A wrong magic number, block count, reference count or checksum.
pub fn check_block(seed: Option<Crc32c>, pblk: Pblk, block: &[u8]) -> Result<(), XattrError> {
    let header = BlockHeader::of(block).ok_or(XattrError::Magic { found: 0 })?;
    if header.magic.get() != XATTR_MAGIC {
        return Err(XattrError::Magic {
            found: header.magic.get(),
        });
    }
    if let Some(seed) = seed {
        let computed = block_checksum(seed, pblk, block);
        let stored = header.checksum.get();
        if computed != stored {
            return Err(XattrError::Checksum { stored, computed });
        }
    }
    if header.blocks.get() != 1 {
        return Err(XattrError::Blocks {
            found: header.blocks.get(),
        });
    }
    if header.refcount.get() == 0 {
        return Err(XattrError::RefCount { found: 0 });
    }
    Ok(())
}

/// Stores the checksum of a changed block.
///
/// # Panics
/// The block is too short for a header.
pub fn seal_block(seed: Option<Crc32c>, pblk: Pblk, block: &mut [u8]) {
    if let Some(seed) = seed {
        let computed = block_checksum(seed, pblk, block);
        if let Some(header) = BlockHeader::of_mut(block) {
            header.checksum.set(computed);
        }
    }
}

/// The hash of one entry: its name's bytes, then its value's words, the last one padded with zeros.
pub(super) fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_by(name, value, u32::from)
}

/// The same, with the name's bytes as numbers with signs.
pub(super) fn signed_entry_hash(name: &[u8], value: &[u8]) -> u32 {
    hash_by(name, value, |c| i32::from(c.cast_signed()).cast_unsigned())
}

fn hash_by(name: &[u8], value: &[u8], number: impl Fn(u8) -> u32) -> u32 {
    const NAME_SHIFT: u32 = 5;
    const VALUE_SHIFT: u32 = 16;
    let of_name = name
        .iter()
        .fold(0_u32, |hash, &c| hash.rotate_left(NAME_SHIFT) ^ number(c));
    value.chunks(4).fold(of_name, |hash, chunk| {
        let mut word = [0; 4];
        for (to, from) in word.iter_mut().zip(chunk) {
            *to = *from;
        }
        hash.rotate_left(VALUE_SHIFT) ^ u32::from_le_bytes(word)
    })
}

/// The hash of a whole block from the hashes of its entries, in order. An entry without a hash
/// leaves the block without.
pub(super) fn total_hash(hashes: impl IntoIterator<Item = u32>) -> u32 {
    const SHIFT: u32 = 16;
    let mut total = 0_u32;
    for hash in hashes {
        if hash == 0 {
            return 0;
        }
        total = total.rotate_left(SHIFT) ^ hash;
    }
    total
}
