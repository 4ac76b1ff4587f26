//! A name in a directory, with its hash.
//!
//! Names come from untrusted images, so the hash is keyed with random numbers of this process. Each
//! step multiplies 64 by 64 bits and folds the halves of the product together.

use std::hash::{BuildHasher, RandomState};

use extant_units::Ino;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) dir: Ino,
    pub(crate) name: &'a [u8],
    pub(crate) hash: u64,
}

/// Makes keys: the random numbers behind their hashes.
pub(crate) struct KeyMaker {
    start: u64,
    factor: u64,
}

impl Default for KeyMaker {
    fn default() -> Self {
        let seed = RandomState::new();
        Self {
            start: seed.hash_one(1_u8),
            factor: seed.hash_one(2_u8) | 1,
        }
    }
}

impl KeyMaker {
    /// The key of `name` in `dir`.
    #[inline]
    pub(crate) fn key<'a>(&self, dir: Ino, name: &'a [u8]) -> Key<'a> {
        let owner = u64::from(dir.get()) << 32 | name.len() as u64;
        let start = fold(self.start ^ owner, self.factor);
        let hash = words(name).fold(start, |hash, word| fold(hash ^ word, self.factor));
        Key { dir, name, hash }
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = a.carrying_mul(b, 0);
    low ^ high
}

/// The bytes of a name as words, the last one filled with zeros.
#[inline]
pub(crate) fn words(name: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (whole, rest) = name.as_chunks::<8>();
    let last = rest.iter().rev();
    let last = last.fold(0, |word, byte| word << 8 | u64::from(*byte));
    let whole = whole.iter().map(|bytes| u64::from_le_bytes(*bytes));
    whole.chain((!rest.is_empty()).then_some(last))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn words_keep_every_byte() {
        let name: Vec<u8> = (1..=19).collect();
        for len in 0..=name.len() {
            let bytes: Vec<u8> = words(&name[..len]).flat_map(u64::to_le_bytes).collect();
            assert_eq!(bytes.len(), len.next_multiple_of(8));
            assert_eq!(bytes[..len], name[..len]);
            assert!(bytes[len..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn names_and_directories_that_are_alike_spread() {
        let maker = KeyMaker::default();
        let mut upper = HashSet::new();
        for dir in 2..66 {
            for number in 0..64 {
                let name = format!("file{number}");
                let key = maker.key(Ino::new(dir).unwrap(), name.as_bytes());
                upper.insert(key.hash >> 52);
            }
        }
        // Random placement of 4096 balls fills 63 % of 4096 boxes.
        assert!(upper.len() > 2000, "{}", upper.len());
    }

    #[test]
    fn a_name_and_the_same_with_zeros_behind_it_differ() {
        let maker = KeyMaker::default();
        let hash = |name: &[u8]| maker.key(Ino::ROOT, name).hash;
        assert_ne!(hash(b"a"), hash(b"a\0"));
        assert_ne!(hash(b"12345678"), hash(b"12345678\0"));
    }
}
