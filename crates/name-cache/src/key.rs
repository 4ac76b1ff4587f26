//! A name in a directory, with its hash.
//!
//! Names come from untrusted images, so the hash is keyed with random numbers of this process. Each
//! step multiplies 64 by 64 bits and folds the halves of the product together.

use std::hash::BuildHasher;

use extant_sync::hash::RandomState;

use extant_units::Ino;

/// A name in a directory.
#[derive(Clone, Copy)]
pub(crate) struct Key<'a> {
    pub(crate) dir: Ino,
    pub(crate) name: &'a [u8],
    /// The bytes behind the last whole word of the name, as a word.
    pub(crate) rest: u64,
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
        let mut hash = fold(self.start ^ owner, self.factor);
        let (whole, rest) = name.as_chunks::<8>();
        for bytes in whole {
            hash = fold(hash ^ u64::from_le_bytes(*bytes), self.factor);
        }
        let word = word_of(rest);
        if !rest.is_empty() {
            hash = fold(hash ^ word, self.factor);
        }
        let rest = word;
        Key {
            dir,
            name,
            rest,
            hash,
        }
    }
}

#[inline]
fn fold(a: u64, b: u64) -> u64 {
    let (low, high) = a.carrying_mul(b, 0);
    low ^ high
}

/// Up to seven bytes as a word, filled with zeros. Not byte by byte: each lookup has some.
#[inline]
fn word_of(bytes: &[u8]) -> u64 {
    let (mut word, mut filled, mut rest) = (0, 0, bytes);
    if let Some((four, behind)) = rest.split_first_chunk() {
        word = u64::from(u32::from_le_bytes(*four));
        (filled, rest) = (32, behind);
    }
    if let Some((two, behind)) = rest.split_first_chunk() {
        word |= u64::from(u16::from_le_bytes(*two)) << filled;
        (filled, rest) = (filled + 16, behind);
    }
    if let [last, ..] = rest {
        word |= u64::from(*last) << filled;
    }
    word
}

impl Key<'_> {
    /// The bytes of the name as words, the last one filled with zeros.
    #[inline]
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> + '_ {
        let (whole, rest) = self.name.as_chunks::<8>();
        let whole = whole.iter().map(|bytes| u64::from_le_bytes(*bytes));
        whole.chain((!rest.is_empty()).then_some(self.rest))
    }

    /// Returns whether `stored(i)` is word `i` of the name for all of them.
    #[inline]
    pub(crate) fn has_words(&self, stored: impl Fn(usize) -> u64) -> bool {
        let (whole, rest) = self.name.as_chunks::<8>();
        let mut words = whole.iter().enumerate();
        words.all(|(at, bytes)| stored(at) == u64::from_le_bytes(*bytes))
            && (rest.is_empty() || stored(whole.len()) == self.rest)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn words_keep_every_byte() {
        let name: Vec<u8> = (1..=19).collect();
        let maker = KeyMaker::default();
        for len in 0..=name.len() {
            let key = maker.key(Ino::ROOT, &name[..len]);
            let words: Vec<u64> = key.words().collect();
            let bytes: Vec<u8> = words.iter().copied().flat_map(u64::to_le_bytes).collect();
            assert_eq!(bytes.len(), len.next_multiple_of(8));
            assert_eq!(bytes[..len], name[..len]);
            assert!(bytes[len..].iter().all(|byte| *byte == 0));
            assert!(key.has_words(|at| words[at]));
            for other in 0..words.len() {
                assert!(!key.has_words(|at| words[at] ^ u64::from(at == other)));
            }
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
