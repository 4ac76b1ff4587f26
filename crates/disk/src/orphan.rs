//! The orphan file: blocks of inode numbers that are to be deleted or truncated after a crash.
//!
//! Each block is an array of 32-bit slots (zero: free), ended by a magic number and a checksum that
//! is keyed by the orphan file's inode, its generation and the block's place on the device.

use core::mem::size_of;

use extant_units::{BlockSize, Ino, Pblk};
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::csum::Crc32c;

/// `ob_magic`.
pub const ORPHAN_MAGIC: u32 = 0x0b10_ca04;

/// The most blocks of an orphan file: Linux takes no larger one.
pub const MAX_BLOCKS: u64 = 512;

/// The end of a block of the orphan file (`ext4_orphan_block_tail`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
struct OrphanTail {
    magic: U32,
    checksum: U32,
}

const _: () = assert!(size_of::<OrphanTail>() == 8);

/// Damage of a block of the orphan file.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OrphanError {
    /// The bytes are not one block.
    #[error("orphan block of {found} bytes")]
    BlockSize {
        /// Bytes given.
        found: usize,
    },
    /// The tail's magic number is wrong.
    #[error("bad orphan block magic {found:#010x}")]
    Magic {
        /// As stored.
        found: u32,
    },
    /// The stored checksum is not that of the slots.
    #[error("bad orphan block checksum {stored:#010x}, computed {computed:#010x}")]
    Checksum {
        /// As stored.
        stored: u32,
        /// As computed.
        computed: u32,
    },
}

/// Slots in a block.
pub const fn slots_per_block(bs: BlockSize) -> usize {
    (bs.bytes() - size_of::<OrphanTail>()) / size_of::<u32>()
}

fn split(block: &[u8]) -> Result<(&[U32], &OrphanTail), OrphanError> {
    let wrong = OrphanError::BlockSize { found: block.len() };
    let (slots, tail) = OrphanTail::ref_from_suffix(block).map_err(|_| wrong)?;
    Ok((<[U32]>::ref_from_bytes(slots).map_err(|_| wrong)?, tail))
}

fn split_mut(block: &mut [u8]) -> Result<(&mut [U32], &mut OrphanTail), OrphanError> {
    let wrong = OrphanError::BlockSize { found: block.len() };
    let (slots, tail) = OrphanTail::mut_from_suffix(block).map_err(|_| wrong)?;
    Ok((<[U32]>::mut_from_bytes(slots).map_err(|_| wrong)?, tail))
}

fn checksum(seed: Crc32c, pblk: Pblk, slots: &[U32]) -> u32 {
    seed.feed(&pblk.get().to_le_bytes())
        .feed(slots.as_bytes())
        .raw()
}

/// Verifies the block of the orphan file at `pblk`. `seed` is that of the orphan file's inode, with
/// `metadata_csum`.
///
/// # Errors
/// A wrong magic number or checksum.
pub fn check(seed: Option<Crc32c>, pblk: Pblk, block: &[u8]) -> Result<(), OrphanError> {
    let (slots, tail) = split(block)?;
    if tail.magic.get() != ORPHAN_MAGIC {
        return Err(OrphanError::Magic {
            found: tail.magic.get(),
        });
    }
    if let Some(seed) = seed {
        let (stored, computed) = (tail.checksum.get(), checksum(seed, pblk, slots));
        if stored != computed {
            return Err(OrphanError::Checksum { stored, computed });
        }
    }
    Ok(())
}

/// The inode numbers in the block's slots: slot and inode.
///
/// # Errors
/// The bytes are not a block.
pub fn orphans(block: &[u8]) -> Result<impl Iterator<Item = (usize, Ino)>, OrphanError> {
    let (slots, _) = split(block)?;
    Ok(slots
        .iter()
        .enumerate()
        .filter_map(|(slot, raw)| Some((slot, Ino::new(raw.get())?))))
}

/// The first free slot at or after `from`, going round once; `None` if all are taken.
pub fn free_slot(block: &[u8], from: usize) -> Option<usize> {
    let (slots, _) = split(block).ok()?;
    let from = from.min(slots.len());
    let (low, high) = slots.split_at_checked(from)?;
    high.iter()
        .position(|s| s.get() == 0)
        .map(|i| i + from)
        .or_else(|| low.iter().position(|s| s.get() == 0))
}

/// Content of slot `slot`; `None` past the end.
pub fn slot(block: &[u8], slot: usize) -> Option<Option<Ino>> {
    let (slots, _) = split(block).ok()?;
    slots.get(slot).map(|raw| Ino::new(raw.get()))
}

/// Sets slot `slot` of the block at `pblk` and its checksum; false if there is no such slot.
pub fn set_slot(
    seed: Option<Crc32c>,
    pblk: Pblk,
    block: &mut [u8],
    slot: usize,
    ino: Option<Ino>,
) -> bool {
    let Ok((slots, tail)) = split_mut(block) else {
        return false;
    };
    let Some(raw) = slots.get_mut(slot) else {
        return false;
    };
    raw.set(ino.map_or(0, Ino::get));
    if let Some(seed) = seed {
        tail.checksum.set(checksum(seed, pblk, slots));
    }
    true
}

/// Makes `block` an empty block of an orphan file at `pblk`.
pub fn init(seed: Option<Crc32c>, pblk: Pblk, block: &mut [u8]) {
    block.fill(0);
    if let Ok((slots, tail)) = split_mut(block) {
        tail.magic.set(ORPHAN_MAGIC);
        if let Some(seed) = seed {
            tail.checksum.set(checksum(seed, pblk, slots));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Option<Crc32c> = Some(Crc32c::START);
    const AT: Pblk = Pblk::new(900);

    #[test]
    fn slots_come_and_go() {
        let mut block = vec![1; 1024];
        init(SEED, AT, &mut block);
        assert_eq!(check(SEED, AT, &block), Ok(()));
        assert_eq!(slots_per_block(BlockSize::KIB1), 254);
        assert_eq!(free_slot(&block, 250), Some(250));
        for slot in 250..254 {
            assert!(set_slot(SEED, AT, &mut block, slot, Some(Ino::ROOT)));
        }
        assert_eq!(free_slot(&block, 250), Some(0), "goes round");
        assert_eq!(check(SEED, AT, &block), Ok(()));
        assert_eq!(orphans(&block).map(Iterator::count), Ok(4));
        assert_eq!(slot(&block, 250), Some(Some(Ino::ROOT)));
        assert_eq!(slot(&block, 254), None);
        assert!(!set_slot(SEED, AT, &mut block, 254, None));
        for slot in 0..250 {
            assert!(set_slot(SEED, AT, &mut block, slot, Some(Ino::ROOT)));
        }
        assert_eq!(free_slot(&block, 3), None);
    }

    #[test]
    fn damage_is_named() {
        let mut block = vec![0; 1024];
        init(SEED, AT, &mut block);
        assert!(matches!(
            check(SEED, Pblk::new(901), &block),
            Err(OrphanError::Checksum { .. })
        ));
        block[1016] ^= 1;
        assert!(matches!(
            check(SEED, AT, &block),
            Err(OrphanError::Magic { .. })
        ));
        assert!(matches!(
            check(SEED, AT, &block[..7]),
            Err(OrphanError::BlockSize { .. })
        ));
    }
}
