//! NH, the fast first part of Adiantum's hash: 1024 bytes of text to 32 bytes.
//!
//! The words of a text are added to those of a key, and products of pairs are summed up. Four
//! passes do so, each with the key sixteen bytes further on.

use zeroize::Zeroizing;

/// Bytes of text that one hash is made of, at most.
pub(crate) const CHUNK: usize = 1024;
/// Sums of a hash.
const PASSES: usize = 4;
/// Words that are read at a time.
const UNIT_WORDS: usize = 4;
/// Words of the key: as many as of a chunk, and as many more as the last pass is further on.
const KEY_WORDS: usize = CHUNK / 4 + UNIT_WORDS * (PASSES - 1);
/// Bytes of the key.
pub(crate) const KEY_BYTES: usize = KEY_WORDS * 4;

/// NH with its key.
pub(crate) struct Nh {
    key: Zeroizing<Box<[u32]>>,
}

impl Nh {
    pub(crate) fn new(bytes: &[u8; KEY_BYTES]) -> Self {
        let mut key = Zeroizing::new(vec![0; KEY_WORDS].into_boxed_slice());
        let (words, _) = bytes.as_chunks::<4>();
        for (word, bytes) in key.iter_mut().zip(words) {
            *word = u32::from_le_bytes(*bytes);
        }
        Self { key }
    }

    /// The hash of a chunk of 1024 bytes at most. A last unit that is not whole ends with zeros.
    pub(crate) fn hash(&self, chunk: &[u8]) -> [u8; PASSES * 8] {
        debug_assert!(chunk.len() <= CHUNK);
        let mut sums = [0_u64; PASSES];
        let (units, rest) = chunk.as_chunks::<{ UNIT_WORDS * 4 }>();
        let (key_units, _) = self.key.as_chunks::<UNIT_WORDS>();
        let mut keys = key_units.windows(PASSES);
        for (unit, keys) in units.iter().zip(&mut keys) {
            add(&mut sums, unit, keys);
        }
        if let (false, Some(keys)) = (rest.is_empty(), keys.next()) {
            let mut unit = [0; UNIT_WORDS * 4];
            unit[..rest.len()].copy_from_slice(rest);
            add(&mut sums, &unit, keys);
        }
        let mut hash = [0; PASSES * 8];
        let (slots, _) = hash.as_chunks_mut::<8>();
        for (slot, sum) in slots.iter_mut().zip(sums) {
            *slot = sum.to_le_bytes();
        }
        hash
    }
}

/// Adds the products of a unit's words to the sums, a pass with each key.
fn add(sums: &mut [u64; PASSES], unit: &[u8; UNIT_WORDS * 4], keys: &[[u32; UNIT_WORDS]]) {
    let (bytes, _) = unit.as_chunks::<4>();
    let text: [u32; UNIT_WORDS] = std::array::from_fn(|at| u32::from_le_bytes(bytes[at]));
    for (sum, key) in sums.iter_mut().zip(keys) {
        let word = |at: usize| u64::from(text[at].wrapping_add(key[at]));
        let products = (word(0) * word(2)).wrapping_add(word(1) * word(3));
        *sum = sum.wrapping_add(products);
    }
}
