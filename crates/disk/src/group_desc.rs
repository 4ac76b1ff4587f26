//! Group descriptors: where a group's bitmaps and inode table lie and how much of it is free.
//!
//! A descriptor has 32 bytes, or with `64bit` at least 64, whose second half holds the high parts
//! of the same fields. [`GroupDesc`] is the decoded form; it writes itself back over the bytes it
//! came from, so that bytes this format does not know survive. Checksums: crc16 with `uninit_bg`,
//! the low half of a crc32c with `metadata_csum`, both seeded by the volume and the group's number.

use core::mem::{offset_of, size_of};

use extant_units::{Group, Pblk};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::csum::Crc32c;

/// Bytes of a descriptor without `64bit`.
pub const DESC_SIZE_32: usize = 32;
/// Least bytes of a descriptor with `64bit`.
pub const DESC_SIZE_64: usize = 64;

/// The first 32 bytes: `struct ext4_group_desc` without its high halves.
#[repr(C)]
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
struct RawLow {
    block_bitmap: U32,
    inode_bitmap: U32,
    inode_table: U32,
    free_blocks_count: U16,
    free_inodes_count: U16,
    used_dirs_count: U16,
    flags: U16,
    exclude_bitmap: U32,
    block_bitmap_csum: U16,
    inode_bitmap_csum: U16,
    itable_unused: U16,
    checksum: U16,
}

/// Bytes 32..64: the high halves.
#[repr(C)]
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
struct RawHigh {
    block_bitmap: U32,
    inode_bitmap: U32,
    inode_table: U32,
    free_blocks_count: U16,
    free_inodes_count: U16,
    used_dirs_count: U16,
    itable_unused: U16,
    exclude_bitmap: U32,
    block_bitmap_csum: U16,
    inode_bitmap_csum: U16,
    reserved: U32,
}

const _: () = assert!(size_of::<RawLow>() == DESC_SIZE_32);
const _: () = assert!(size_of::<RawHigh>() == DESC_SIZE_64 - DESC_SIZE_32);
const _: () = assert!(offset_of!(RawLow, flags) == 0x12);
const _: () = assert!(offset_of!(RawLow, checksum) == CHECKSUM_AT);
const _: () = assert!(offset_of!(RawHigh, itable_unused) == 0x12);
const _: () = assert!(offset_of!(RawHigh, block_bitmap_csum) == 0x18);

/// Bytes of the checksum in a descriptor.
const CHECKSUM_AT: usize = 0x1E;

bitflags::bitflags! {
    /// `bg_flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct GroupFlags: u16 {
        /// The inode bitmap was never written: all inodes are free.
        const INODE_UNINIT = 1;
        /// The block bitmap was never written: only the group's own metadata is in use.
        const BLOCK_UNINIT = 2;
        /// The inode table's unused part is zeroed.
        const ITABLE_ZEROED = 4;
        const _ = !0;
    }
}

/// Why bytes are no group descriptor.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupDescError {
    /// Too few bytes.
    #[error("group {group}: a descriptor has at least 32 bytes, these are {found}")]
    WrongLength {
        /// The group.
        group: Group,
        /// How many there were.
        found: usize,
    },
    /// The checksum does not match.
    #[error(
        "group {group}: bad descriptor checksum (stored {stored:#06x}, computed {computed:#06x})"
    )]
    BadChecksum {
        /// The group.
        group: Group,
        /// As stored.
        stored: u16,
        /// As it should be.
        computed: u16,
    },
}

/// How descriptors of a volume are protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupChecksum {
    /// Not at all.
    None,
    /// `uninit_bg`: crc16 over UUID, group number and descriptor.
    Crc16 {
        /// The volume's UUID.
        uuid: [u8; 16],
    },
    /// `metadata_csum`: crc32c over seed, group number and descriptor; bitmaps carry one as well.
    Crc32c {
        /// The volume's seed.
        seed: Crc32c,
    },
}

impl GroupChecksum {
    /// The kind that `sb` asks for.
    pub fn of(sb: &crate::superblock::Superblock) -> Self {
        let features = sb.features();
        if features.metadata_csum() {
            Self::Crc32c {
                seed: sb.checksum_seed(),
            }
        } else if features.group_csum() {
            Self::Crc16 {
                uuid: sb.raw().uuid,
            }
        } else {
            Self::None
        }
    }

    /// The checksum of the descriptor `bytes` of `group`, or `None` if there is none.
    fn compute(&self, group: Group, bytes: &[u8]) -> Option<u16> {
        let (before, rest) = bytes.split_at_checked(CHECKSUM_AT)?;
        let after = rest.get(2..)?;
        let number = group.get().to_le_bytes();
        match self {
            Self::None => None,
            Self::Crc16 { uuid } => {
                let crc = crc16(crc16(!0, uuid), &number);
                Some(crc16(crc16(crc, before), after))
            }
            Self::Crc32c { seed } => {
                let crc = seed.feed(&number).feed(before).feed(&[0, 0]).feed(after);
                #[allow(clippy::cast_possible_truncation, reason = "the low half is stored")]
                Some(crc.raw() as u16)
            }
        }
    }

    /// The checksum of a bitmap's covered bytes as `metadata_csum` defines it, else `None`.
    pub fn of_bitmap(&self, covered: &[u8]) -> Option<u32> {
        match self {
            Self::Crc32c { seed } => Some(seed.feed(covered).raw()),
            Self::None | Self::Crc16 { .. } => None,
        }
    }
}

/// A decoded group descriptor.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct GroupDesc {
    /// The block of the block bitmap. Unchecked: any number.
    pub block_bitmap: Pblk,
    /// The block of the inode bitmap. Unchecked.
    pub inode_bitmap: Pblk,
    /// The first block of the inode table. Unchecked.
    pub inode_table: Pblk,
    /// Free blocks (clusters with bigalloc). Unchecked, as all counts.
    pub free_blocks: u32,
    /// Free inodes.
    pub free_inodes: u32,
    /// Directories.
    pub used_dirs: u32,
    /// Inodes at the end of the table that were never used.
    pub itable_unused: u32,
    /// Flags.
    pub flags: GroupFlags,
    /// Checksum of the block bitmap: 32 bits with `64bit`, else the low 16.
    pub block_bitmap_csum: u32,
    /// Checksum of the inode bitmap, as above.
    pub inode_bitmap_csum: u32,
}

impl GroupDesc {
    /// Decodes `bytes`, one descriptor of the volume's descriptor size, and checks its checksum.
    ///
    /// # Errors
    /// Too few bytes, or a checksum that does not match.
    pub fn parse(
        bytes: &[u8],
        group: Group,
        checksum: &GroupChecksum,
    ) -> Result<Self, GroupDescError> {
        let wrong_length = GroupDescError::WrongLength {
            group,
            found: bytes.len(),
        };
        let (low, rest) = RawLow::ref_from_prefix(bytes).map_err(|_| wrong_length)?;
        if let Some(computed) = checksum.compute(group, bytes) {
            let stored = low.checksum.get();
            if stored != computed {
                return Err(GroupDescError::BadChecksum {
                    group,
                    stored,
                    computed,
                });
            }
        }
        let high = RawHigh::ref_from_prefix(rest).ok().map(|(high, _)| high);
        let wide = |low: U32, high: Option<U32>| {
            Pblk::new(u64::from(low.get()) | high.map_or(0, |high| u64::from(high.get()) << 32))
        };
        let narrow = |low: U16, high: Option<U16>| {
            u32::from(low.get()) | high.map_or(0, |high| u32::from(high.get()) << 16)
        };
        Ok(Self {
            block_bitmap: wide(low.block_bitmap, high.map(|high| high.block_bitmap)),
            inode_bitmap: wide(low.inode_bitmap, high.map(|high| high.inode_bitmap)),
            inode_table: wide(low.inode_table, high.map(|high| high.inode_table)),
            free_blocks: narrow(
                low.free_blocks_count,
                high.map(|high| high.free_blocks_count),
            ),
            free_inodes: narrow(
                low.free_inodes_count,
                high.map(|high| high.free_inodes_count),
            ),
            used_dirs: narrow(low.used_dirs_count, high.map(|high| high.used_dirs_count)),
            itable_unused: narrow(low.itable_unused, high.map(|high| high.itable_unused)),
            flags: GroupFlags::from_bits_retain(low.flags.get()),
            block_bitmap_csum: narrow(
                low.block_bitmap_csum,
                high.map(|high| high.block_bitmap_csum),
            ),
            inode_bitmap_csum: narrow(
                low.inode_bitmap_csum,
                high.map(|high| high.inode_bitmap_csum),
            ),
        })
    }

    /// Writes the fields over `bytes`, one descriptor of the volume's descriptor size, and stores
    /// the checksum. Bytes that have no field stay as they are; with fewer than 32 bytes nothing
    /// happens.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "fields are split into halves"
    )]
    pub fn store(&self, bytes: &mut [u8], group: Group, checksum: &GroupChecksum) {
        let Ok((low, rest)) = RawLow::mut_from_prefix(bytes) else {
            return;
        };
        low.block_bitmap.set(self.block_bitmap.get() as u32);
        low.inode_bitmap.set(self.inode_bitmap.get() as u32);
        low.inode_table.set(self.inode_table.get() as u32);
        low.free_blocks_count.set(self.free_blocks as u16);
        low.free_inodes_count.set(self.free_inodes as u16);
        low.used_dirs_count.set(self.used_dirs as u16);
        low.itable_unused.set(self.itable_unused as u16);
        low.flags.set(self.flags.bits());
        low.block_bitmap_csum.set(self.block_bitmap_csum as u16);
        low.inode_bitmap_csum.set(self.inode_bitmap_csum as u16);
        if let Ok((high, _)) = RawHigh::mut_from_prefix(rest) {
            high.block_bitmap
                .set((self.block_bitmap.get() >> 32) as u32);
            high.inode_bitmap
                .set((self.inode_bitmap.get() >> 32) as u32);
            high.inode_table.set((self.inode_table.get() >> 32) as u32);
            high.free_blocks_count.set((self.free_blocks >> 16) as u16);
            high.free_inodes_count.set((self.free_inodes >> 16) as u16);
            high.used_dirs_count.set((self.used_dirs >> 16) as u16);
            high.itable_unused.set((self.itable_unused >> 16) as u16);
            high.block_bitmap_csum
                .set((self.block_bitmap_csum >> 16) as u16);
            high.inode_bitmap_csum
                .set((self.inode_bitmap_csum >> 16) as u16);
        }
        if let Some(value) = checksum.compute(group, bytes)
            && let Some(field) = bytes.get_mut(CHECKSUM_AT..CHECKSUM_AT + 2)
        {
            field.copy_from_slice(&value.to_le_bytes());
        }
    }

    /// Returns whether a bitmap checksum `computed` is the one stored, given the volume's
    /// descriptor size (32-byte descriptors keep only the low half).
    pub fn bitmap_csum_matches(stored: u32, computed: u32, desc_size: usize) -> bool {
        stored == Self::stored_bitmap_csum(computed, desc_size)
    }

    /// The part of a bitmap checksum that a descriptor of `desc_size` bytes keeps.
    pub fn stored_bitmap_csum(computed: u32, desc_size: usize) -> u32 {
        if desc_size >= DESC_SIZE_64 {
            computed
        } else {
            computed & 0xFFFF
        }
    }
}

/// CRC-16 with the reflected polynomial 0x8005 ("ARC"), no final inversion, continued from `crc`.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    const TABLE: [u16; 256] = {
        let mut table = [0u16; 256];
        let mut i = 0;
        while i < 256 {
            #[allow(clippy::cast_possible_truncation, reason = "below 256")]
            let mut value = i as u16;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 {
                    value >> 1 ^ 0xA001
                } else {
                    value >> 1
                };
                bit += 1;
            }
            table[i] = value;
            i += 1;
        }
        table
    };
    bytes.iter().fold(crc, |crc, &byte| {
        let [low, _] = crc.to_le_bytes();
        crc >> 8 ^ TABLE[usize::from(low ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> GroupDesc {
        GroupDesc {
            block_bitmap: Pblk::new(0x1_2345_6789),
            inode_bitmap: Pblk::new(0x2_0000_0001),
            inode_table: Pblk::new(0x3_0000_0002),
            free_blocks: 0x1_8000,
            free_inodes: 0x1_0001,
            used_dirs: 0x2_0002,
            itable_unused: 0x3_0003,
            flags: GroupFlags::ITABLE_ZEROED | GroupFlags::BLOCK_UNINIT,
            block_bitmap_csum: 0xAABB_CCDD,
            inode_bitmap_csum: 0x1122_3344,
        }
    }

    #[test]
    fn crc16_has_the_published_check_value() {
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
    }

    #[test]
    fn both_sizes_round_trip_and_detect_each_flipped_bit() {
        let seed = Crc32c::START.feed(b"volume");
        for kind in [
            GroupChecksum::Crc32c { seed },
            GroupChecksum::Crc16 { uuid: [7; 16] },
        ] {
            for size in [DESC_SIZE_32, DESC_SIZE_64, 128] {
                let mut bytes = vec![0x5A; size];
                sample().store(&mut bytes, Group::new(9), &kind);
                let back = GroupDesc::parse(&bytes, Group::new(9), &kind).unwrap();
                if size >= DESC_SIZE_64 {
                    assert_eq!(back, sample());
                } else {
                    assert_eq!(back.free_blocks, 0x8000);
                    assert_eq!(back.block_bitmap, Pblk::new(0x2345_6789));
                }
                assert!(GroupDesc::parse(&bytes, Group::new(8), &kind).is_err());
                for bit in 0..size * 8 {
                    let mut bad = bytes.clone();
                    bad[bit / 8] ^= 1 << (bit % 8);
                    assert!(
                        GroupDesc::parse(&bad, Group::new(9), &kind).is_err(),
                        "bit {bit}"
                    );
                }
            }
        }
    }

    #[test]
    fn too_few_bytes_are_an_error_and_never_written() {
        let error = GroupDesc::parse(&[0; 31], Group::new(3), &GroupChecksum::None);
        assert_eq!(
            error,
            Err(GroupDescError::WrongLength {
                group: Group::new(3),
                found: 31
            })
        );
        let mut short = [9; 31];
        sample().store(&mut short, Group::new(0), &GroupChecksum::None);
        assert_eq!(short, [9; 31]);
    }
}
