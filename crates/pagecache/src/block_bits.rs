//! One bit per block of a folio.
//!
//! The bitmap itself exists only while some bits are set and others are not. Operations touch only
//! the words of their range.

use std::ops::Range;

const WORD: u32 = u64::BITS;

/// A set of block numbers below a fixed length.
#[derive(Debug)]
pub(crate) struct BlockBits {
    len: u32,
    set: u32,
    words: Words,
}

#[derive(Debug)]
enum Words {
    /// All bits are equal: `set` is zero or `len`.
    Uniform,
    /// At most 64 blocks.
    One(u64),
    Many(Box<[u64]>),
}

impl BlockBits {
    /// `len` clear bits, `len` at least one.
    pub(crate) fn new(len: u32) -> Self {
        debug_assert!(len > 0);
        Self {
            len,
            set: 0,
            words: Words::Uniform,
        }
    }

    pub(crate) fn count(&self) -> u32 {
        self.set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set == 0
    }

    /// Whether every bit of `range` is set.
    pub(crate) fn contains(&self, range: Range<u32>) -> bool {
        debug_assert!(range.end <= self.len);
        if self.set == self.len || range.is_empty() {
            return true;
        }
        if self.set == 0 {
            return false;
        }
        let words = self.as_words();
        masks(range).all(|(word, mask)| words[word] & mask == mask)
    }

    /// Sets `range`; returns how many bits were clear.
    pub(crate) fn insert(&mut self, range: Range<u32>) -> u32 {
        debug_assert!(range.end <= self.len);
        if self.set == self.len || range.is_empty() {
            return 0;
        }
        let mut changed = 0;
        if range == (0..self.len) {
            changed = self.len - self.set;
        } else {
            let words = self.make_words();
            for (word, mask) in masks(range) {
                changed += (mask & !words[word]).count_ones();
                words[word] |= mask;
            }
        }
        self.set += changed;
        self.settle();
        changed
    }

    /// Clears `range`; returns how many bits were set.
    pub(crate) fn remove(&mut self, range: Range<u32>) -> u32 {
        debug_assert!(range.end <= self.len);
        if self.set == 0 || range.is_empty() {
            return 0;
        }
        let mut changed = 0;
        if range == (0..self.len) {
            changed = self.set;
        } else {
            let words = self.make_words();
            for (word, mask) in masks(range) {
                changed += (mask & words[word]).count_ones();
                words[word] &= !mask;
            }
        }
        self.set -= changed;
        self.settle();
        changed
    }

    /// The first set bit at or after `from`.
    pub(crate) fn next_set(&self, from: u32) -> Option<u32> {
        self.next(from, 0)
    }

    /// The first clear bit at or after `from`.
    pub(crate) fn next_clear(&self, from: u32) -> Option<u32> {
        self.next(from, u64::MAX)
    }

    /// The first run of set bits that ends after `from`, cut to begin at `from` or later.
    pub(crate) fn next_run(&self, from: u32) -> Option<Range<u32>> {
        let start = self.next_set(from)?;
        Some(start..self.next_clear(start).unwrap_or(self.len))
    }

    fn next(&self, from: u32, flip: u64) -> Option<u32> {
        if from >= self.len {
            return None;
        }
        if let Words::Uniform = self.words {
            let bit_is_set = self.set != 0;
            return (bit_is_set == (flip == 0)).then_some(from);
        }
        let words = self.as_words();
        let mut word = (from / WORD) as usize;
        let mut bits = (words[word] ^ flip) & (u64::MAX << (from % WORD));
        loop {
            if bits != 0 {
                #[allow(clippy::cast_possible_truncation, reason = "at most 32 words")]
                let found = word as u32 * WORD + bits.trailing_zeros();
                return (found < self.len).then_some(found);
            }
            word += 1;
            bits = words.get(word)? ^ flip;
        }
    }

    fn as_words(&self) -> &[u64] {
        match &self.words {
            Words::Uniform => &[],
            Words::One(word) => std::slice::from_ref(word),
            Words::Many(words) => words,
        }
    }

    fn make_words(&mut self) -> &mut [u64] {
        if let Words::Uniform = self.words {
            let fill = if self.set == 0 { 0 } else { u64::MAX };
            self.words = if self.len <= WORD {
                Words::One(fill)
            } else {
                Words::Many(vec![fill; self.len.div_ceil(WORD) as usize].into())
            };
        }
        match &mut self.words {
            Words::Uniform => &mut [],
            Words::One(word) => std::slice::from_mut(word),
            Words::Many(words) => words,
        }
    }

    /// Drops the bitmap once all bits are equal.
    fn settle(&mut self) {
        if self.set == 0 || self.set == self.len {
            self.words = Words::Uniform;
        }
        debug_assert_eq!(self.verify(), Ok(()));
    }

    /// Checks the count of set bits against the bitmap, which is there exactly if the bits differ (J3).
    pub(crate) fn verify(&self) -> Result<(), String> {
        let uniform = matches!(self.words, Words::Uniform);
        let counted = self.as_words().iter().map(|word| word.count_ones()).sum();
        // Bits past the end of a bitmap that was made full are set, those of one that was made empty are not.
        let spare = self.len.next_multiple_of(WORD) - self.len;
        let fits = self.set == counted || self.set + spare == counted;
        if uniform == (self.set == 0 || self.set == self.len) && (uniform || fits) {
            return Ok(());
        }
        Err(format!(
            "{} of {} bits counted, {counted} set, uniform: {uniform} (J3)",
            self.set, self.len
        ))
    }
}

/// The words that `range` touches, each with the mask of the touched bits.
fn masks(range: Range<u32>) -> impl Iterator<Item = (usize, u64)> {
    let first = range.start / WORD;
    let last = (range.end - 1) / WORD;
    (first..=last).map(move |word| {
        let low = range.start.saturating_sub(word * WORD);
        let high = (range.end - word * WORD).min(WORD);
        let mask = (u64::MAX << low) & (u64::MAX >> (WORD - high));
        (word as usize, mask)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A small generator for tests: xorshift.
    fn rng(seed: u64) -> impl FnMut(u32) -> u32 {
        let mut state = seed | 1;
        move |below| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            u32::try_from(state % u64::from(below)).unwrap()
        }
    }

    #[test]
    fn equals_a_vector_of_bools() {
        for len in [1, 2, 63, 64, 65, 512, 2048] {
            let mut random = rng(u64::from(len) * 77 + 3);
            let mut bits = BlockBits::new(len);
            let mut model = vec![false; len as usize];
            for _ in 0..3000 {
                let a = random(len + 1);
                let b = random(len + 1);
                let range = a.min(b)..a.max(b);
                let slice = &mut model[range.start as usize..range.end as usize];
                let set = slice.iter().filter(|bit| **bit).count();
                let total = slice.len();
                assert_eq!(bits.contains(range.clone()), set == total);
                if random(2) == 0 {
                    slice.fill(true);
                    assert_eq!(bits.insert(range) as usize, total - set);
                } else {
                    slice.fill(false);
                    assert_eq!(bits.remove(range) as usize, set);
                }
                let count = model.iter().filter(|bit| **bit).count();
                assert_eq!(bits.count() as usize, count);
                assert_eq!(bits.is_empty(), count == 0);
                let from = random(len);
                let expect = (from as usize..model.len()).find(|&i| model[i]);
                assert_eq!(bits.next_set(from).map(|i| i as usize), expect);
                let expect = (from as usize..model.len()).find(|&i| !model[i]);
                assert_eq!(bits.next_clear(from).map(|i| i as usize), expect);
            }
        }
    }

    #[test]
    fn uniform_sets_own_no_bitmap() {
        let mut bits = BlockBits::new(2048);
        bits.insert(0..2048);
        assert!(matches!(bits.words, Words::Uniform));
        bits.remove(3..4);
        assert!(matches!(bits.words, Words::Many(_)));
        bits.insert(3..4);
        assert!(matches!(bits.words, Words::Uniform));
        assert_eq!(bits.next_run(5), Some(5..2048));
    }
}
