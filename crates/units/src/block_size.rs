//! The block size: the one place where bytes and blocks cross.

use crate::{Blocks, DevOff, Lblk, Pblk, Pos};

/// A file system's block size: a power of two from 1 KiB to 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct BlockSize {
    log2: u8,
}

impl BlockSize {
    /// 1 KiB blocks.
    pub const KIB1: Self = Self { log2: 10 };
    /// 2 KiB blocks.
    pub const KIB2: Self = Self { log2: 11 };
    /// 4 KiB blocks.
    pub const KIB4: Self = Self { log2: 12 };

    /// The block size of `2^log2` bytes, or `None` outside of 10..=16.
    pub const fn from_log2(log2: u32) -> Option<Self> {
        match log2 {
            10..=16 => Some(Self {
                #[allow(clippy::cast_possible_truncation, reason = "at most 16")]
                log2: log2 as u8,
            }),
            _ => None,
        }
    }

    /// All block sizes, from the smallest to the largest.
    pub fn all() -> impl Iterator<Item = Self> {
        (10..=16).map(|log2| Self { log2 })
    }

    /// The block size of `bytes` bytes, or `None` if that is no power of two from 1 KiB to 64 KiB.
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        if bytes.is_power_of_two() {
            Self::from_log2(bytes.trailing_zeros())
        } else {
            None
        }
    }

    /// log2 of the size in bytes: 10..=16.
    #[inline]
    pub const fn log2(self) -> u32 {
        self.log2 as u32
    }

    /// The size in bytes.
    #[inline]
    pub const fn bytes(self) -> usize {
        1 << self.log2
    }

    /// The size in bytes as the type of positions.
    #[inline]
    pub const fn bytes_u64(self) -> u64 {
        1 << self.log2
    }

    /// `self.bytes() - 1`.
    #[inline]
    const fn mask(self) -> u64 {
        (1 << self.log2) - 1
    }

    /// The block that holds byte `pos`, or `None` if its number does not fit [`Lblk`].
    #[inline]
    pub const fn lblk(self, pos: Pos) -> Option<Lblk> {
        let block = pos.get() >> self.log2;
        if block > u32::MAX as u64 {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, reason = "checked above")]
        Some(Lblk::new(block as u32))
    }

    /// The first byte of `lblk`. Cannot overflow: 2^32 blocks of 2^16 bytes.
    #[inline]
    pub const fn pos(self, lblk: Lblk) -> Pos {
        Pos::new((lblk.get() as u64) << self.log2)
    }

    /// The offset of `pos` within its block.
    #[inline]
    pub const fn offset_in_block(self, pos: Pos) -> usize {
        #[allow(clippy::cast_possible_truncation, reason = "below the block size")]
        {
            (pos.get() & self.mask()) as usize
        }
    }

    /// `pos` rounded down to a block's first byte.
    #[inline]
    pub const fn round_down(self, pos: Pos) -> Pos {
        Pos::new(pos.get() & !self.mask())
    }

    /// `pos` rounded up to a block's first byte, or `None` past the largest position.
    #[inline]
    pub const fn round_up(self, pos: Pos) -> Option<Pos> {
        match pos.get().checked_add(self.mask()) {
            Some(raw) => Some(Pos::new(raw & !self.mask())),
            None => None,
        }
    }

    /// The number of blocks that `bytes` bytes need.
    #[inline]
    pub const fn blocks_for(self, bytes: u64) -> Blocks {
        Blocks::new(bytes.div_ceil(1 << self.log2))
    }

    /// The number of bytes in `count` blocks, or `None` on overflow.
    #[inline]
    pub const fn bytes_of(self, count: Blocks) -> Option<u64> {
        count.get().checked_mul(1 << self.log2)
    }

    /// The device offset of `pblk`, or `None` on overflow.
    #[inline]
    pub const fn dev_off(self, pblk: Pblk) -> Option<DevOff> {
        match pblk.get().checked_mul(1 << self.log2) {
            Some(raw) => Some(DevOff::new(raw)),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_powers_of_two_in_range() {
        assert_eq!(BlockSize::from_bytes(4096), Some(BlockSize::KIB4));
        for bad in [0, 1, 512, 1000, 4097, 131_072] {
            assert_eq!(BlockSize::from_bytes(bad), None);
        }
    }

    #[test]
    fn crossings_round_and_check() {
        let bs = BlockSize::KIB1;
        assert_eq!(bs.lblk(Pos::new(1023)), Some(Lblk::ZERO));
        assert_eq!(bs.lblk(Pos::new(1 << 42)), None);
        assert_eq!(bs.round_up(Pos::new(1)), Some(Pos::new(1024)));
        assert_eq!(bs.round_up(Pos::MAX), None);
        assert_eq!(bs.blocks_for(1025), Blocks::new(2));
        assert_eq!(bs.dev_off(Pblk::MAX), None);
    }
}
