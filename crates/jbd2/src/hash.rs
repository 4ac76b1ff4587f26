//! A hasher for the numbers of blocks and inodes.
//!
//! They come from untrusted images, so the hash is keyed with random numbers of this process. Every
//! metadata access hashes one, so the hash is two multiplications and not SipHash.

use std::hash::{BuildHasher, Hasher, RandomState};

/// Builds [`NumberHasher`]s that share one random key.
#[derive(Clone, Debug)]
pub struct NumberHash {
    mask: u64,
    factor: u64,
}

impl Default for NumberHash {
    fn default() -> Self {
        let seed = RandomState::new();
        Self {
            mask: seed.hash_one(1u8),
            factor: seed.hash_one(2u8) | 1,
        }
    }
}

impl BuildHasher for NumberHash {
    type Hasher = NumberHasher;

    #[inline]
    fn build_hasher(&self) -> NumberHasher {
        NumberHasher {
            value: self.mask,
            factor: self.factor,
        }
    }
}

/// Hashes one `u32` or `u64`.
#[derive(Debug)]
pub struct NumberHasher {
    value: u64,
    factor: u64,
}

impl Hasher for NumberHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.value
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let once = (self.value ^ number).wrapping_mul(self.factor);
        self.value = (once ^ (once >> 32)).wrapping_mul(self.factor);
        self.value ^= self.value >> 29;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn neighbours_and_strides_spread() {
        let hash = NumberHash::default();
        for stride in [1u64, 8, 32768, 1 << 32] {
            let low: HashSet<u64> = (0..4096)
                .map(|i| hash.hash_one(i * stride) & 4095)
                .collect();
            // Random placement of 4096 balls fills 63 % of 4096 boxes.
            assert!(low.len() > 2000, "stride {stride}: {}", low.len());
        }
    }
}
