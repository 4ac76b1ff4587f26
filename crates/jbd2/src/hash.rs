//! A hasher for the numbers of blocks and inodes.
//!
//! They come from untrusted images, so the hash is keyed with random numbers of this process. Every
//! metadata access hashes one, so the hash is two multiplications and not SipHash.

use extant_sync::hash::RandomState;
use std::hash::{BuildHasher, Hasher};

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

    /// Fixed keys: some random ones spread a stride badly.
    fn keys() -> impl Iterator<Item = NumberHash> {
        (1..=8u64).map(|key| NumberHash {
            mask: key.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            factor: key.wrapping_mul(0xd6e8_feb8_6659_fd93) | 1,
        })
    }

    /// A table takes the low bits of a hash for the slot and the top seven for a quick look. Both
    /// must depend on all bits of a number, the upper ones of 48 as well.
    #[test]
    fn neighbours_and_strides_spread() {
        for (hash, stride) in
            keys().flat_map(|hash| [0, 3, 15, 32, 36].map(|log2| (hash.clone(), 1_u64 << log2)))
        {
            let hashes = (0..4096).map(|i| hash.hash_one(i * stride));
            let (low, top): (HashSet<u64>, HashSet<u64>) =
                hashes.map(|all| (all & 4095, all >> 57)).unzip();
            // Random placement of 4096 balls fills 63 % of 4096 boxes.
            assert!(low.len() > 2000, "{hash:?}, {stride}: {}", low.len());
            assert!(top.len() > 120, "{hash:?}, {stride}: {}", top.len());
        }
    }

    /// An even factor would drop a bit of each number.
    #[test]
    fn each_hash_has_a_key_of_its_own_with_an_odd_factor() {
        let all: Vec<NumberHash> = (0..64).map(|_| NumberHash::default()).collect();
        assert!(all.iter().all(|hash| hash.factor % 2 == 1), "{all:?}");
        let keys: HashSet<(u64, u64)> = all.iter().map(|hash| (hash.mask, hash.factor)).collect();
        assert_eq!(keys.len(), all.len());
    }
}
