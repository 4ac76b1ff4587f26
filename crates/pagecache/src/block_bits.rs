//! One bit per block of a folio.
//!
//! A folio of up to 64 blocks has one word. Of a larger one the bits come in words of 64; a word
//! whose bits are all equal is one bit of a summary, so most large folios own no bitmap. Only words
//! with both kinds of bits are stored, in memory that is allocated when the first such word
//! appears. An operation touches the summary and the words of its range, however large the folio;
//! the search for a bit looks at two words at most.
//!
//! # Invariants
//! * The count of set bits and the summary agree with the words (J3): checked after every change in
//!   debug builds, by [`BlockBits::verify`].

use std::ops::Range;

const WORD: u32 = u64::BITS;

/// A set of block numbers below a fixed length, 2048 at most.
#[derive(Debug)]
pub(crate) struct BlockBits {
    len: u32,
    bits: Bits,
}

#[derive(Debug)]
enum Bits {
    /// At most 64 blocks.
    One(u64),
    Many(Words),
}

/// The bits of more than 64 blocks.
#[derive(Debug)]
struct Words {
    len: u32,
    /// Bits that are set.
    set: u32,
    /// Words, one bit each, whose bits are all set.
    full: u32,
    /// Words whose bits differ: they are in `mixed_words`. In neither mask: all clear.
    mixed: u32,
    /// Empty: there has been no mixed word yet.
    mixed_words: Box<[u64]>,
}

impl BlockBits {
    /// `len` clear bits, `len` at least one.
    pub(crate) fn new(len: u32) -> Self {
        debug_assert!(0 < len && len <= u32::BITS * WORD);
        let bits = match len {
            ..=WORD => Bits::One(0),
            _ => Bits::Many(Words {
                len,
                set: 0,
                full: 0,
                mixed: 0,
                mixed_words: Box::default(),
            }),
        };
        Self { len, bits }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> u32 {
        match &self.bits {
            Bits::One(bits) => bits.count_ones(),
            Bits::Many(words) => words.set,
        }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        match &self.bits {
            Bits::One(bits) => *bits == 0,
            Bits::Many(words) => words.set == 0,
        }
    }

    /// Returns whether every bit of `range` is set.
    #[inline]
    pub(crate) fn contains(&self, range: Range<u32>) -> bool {
        debug_assert!(range.end <= self.len);
        match &self.bits {
            // The first bit of the range moves to the front; none does if the range is empty.
            Bits::One(bits) => (!bits.wrapping_shr(range.start)).trailing_zeros() >= len_of(&range),
            Bits::Many(words) => words.set == words.len || words.contains(range),
        }
    }

    /// Sets `range`; returns how many bits were clear.
    #[inline]
    pub(crate) fn insert(&mut self, range: Range<u32>) -> u32 {
        debug_assert!(range.end <= self.len);
        match &mut self.bits {
            Bits::One(bits) => {
                let new = mask_of(range) & !*bits;
                *bits |= new;
                new.count_ones()
            }
            Bits::Many(words) => words.insert(range),
        }
    }

    /// Clears `range`; returns how many bits were set.
    #[inline]
    pub(crate) fn remove(&mut self, range: Range<u32>) -> u32 {
        debug_assert!(range.end <= self.len);
        match &mut self.bits {
            Bits::One(bits) => {
                let gone = mask_of(range) & *bits;
                *bits &= !gone;
                gone.count_ones()
            }
            Bits::Many(words) => words.remove(range),
        }
    }

    /// The first set bit at or after `from`.
    pub(crate) fn next_set(&self, from: u32) -> Option<u32> {
        match &self.bits {
            Bits::One(bits) => first_from(*bits, from),
            Bits::Many(words) => words.next(from, words.full | words.mixed, |bits, _| bits),
        }
    }

    /// The first clear bit at or after `from`.
    pub(crate) fn next_clear(&self, from: u32) -> Option<u32> {
        match &self.bits {
            Bits::One(bits) => first_from(!bits & mask_of(0..self.len), from),
            Bits::Many(words) => words.next(from, !words.full, |bits, valid| !bits & valid),
        }
    }

    /// The first run of set bits that ends after `from`, cut to begin at `from` or later.
    pub(crate) fn next_run(&self, from: u32) -> Option<Range<u32>> {
        let start = self.next_set(from)?;
        Some(start..self.next_clear(start).unwrap_or(self.len))
    }

    /// Checks that there are no other bits than those of blocks, and the count of set bits and the
    /// summary against the words (J3).
    pub(crate) fn verify(&self) -> Result<(), String> {
        match &self.bits {
            Bits::One(bits) if bits & !mask_of(0..self.len) == 0 => Ok(()),
            Bits::One(bits) => Err(format!("{bits:#x} of {} blocks (J3)", self.len)),
            Bits::Many(words) => words.verify(),
        }
    }
}

#[inline]
fn len_of(range: &Range<u32>) -> u32 {
    debug_assert!(range.start <= range.end, "{range:?}");
    range.end - range.start
}

/// The bits of `range`, which ends at 64 at most.
#[inline]
fn mask_of(range: Range<u32>) -> u64 {
    if range.is_empty() {
        return 0;
    }
    (u64::MAX << range.start) & (u64::MAX >> (WORD - range.end))
}

fn first_from(bits: u64, from: u32) -> Option<u32> {
    let rest = bits & u64::MAX.checked_shl(from)?;
    (rest != 0).then(|| rest.trailing_zeros())
}

impl Words {
    fn contains(&self, range: Range<u32>) -> bool {
        if range.is_empty() {
            return true;
        }
        self.set != 0 && masks(range).all(|(word, mask)| self.word(word) & mask == mask)
    }

    fn insert(&mut self, range: Range<u32>) -> u32 {
        if self.set == self.len || range.is_empty() {
            return 0;
        }
        let before = self.set;
        for (word, mask) in masks(range) {
            let old = self.word(word);
            if old & mask != mask {
                self.set += (mask & !old).count_ones();
                self.put(word, old | mask);
            }
        }
        debug_assert_eq!(self.verify(), Ok(()));
        self.set - before
    }

    fn remove(&mut self, range: Range<u32>) -> u32 {
        if self.set == 0 || range.is_empty() {
            return 0;
        }
        let before = self.set;
        if range == (0..self.len) {
            (self.set, self.full, self.mixed) = (0, 0, 0);
            return before;
        }
        for (word, mask) in masks(range) {
            let old = self.word(word);
            if old & mask != 0 {
                self.set -= (mask & old).count_ones();
                self.put(word, old & !mask);
            }
        }
        debug_assert_eq!(self.verify(), Ok(()));
        before - self.set
    }

    /// The first bit at or after `from` that `pick` leaves set in its word. `somewhere` has the
    /// words in which it leaves any.
    fn next(&self, from: u32, somewhere: u32, pick: impl Fn(u64, u64) -> u64) -> Option<u32> {
        if from >= self.len {
            return None;
        }
        let first = from / WORD;
        let here = pick(self.word(first), self.valid(first)) & (u64::MAX << (from % WORD));
        if here != 0 {
            return Some(first * WORD + here.trailing_zeros());
        }
        let words = self.len.div_ceil(WORD);
        let later = u64::from(somewhere) & (u64::MAX << (first + 1));
        let word = later.trailing_zeros();
        let found = (word < words).then(|| pick(self.word(word), self.valid(word)))?;
        Some(word * WORD + found.trailing_zeros())
    }

    /// The bits of word number `word` that exist: the last word may be shorter.
    fn valid(&self, word: u32) -> u64 {
        let bits = (self.len - word * WORD).min(WORD);
        u64::MAX >> (WORD - bits)
    }

    fn word(&self, word: u32) -> u64 {
        let bit = 1 << word;
        if self.mixed & bit != 0 {
            self.mixed_words[word as usize]
        } else if self.full & bit != 0 {
            self.valid(word)
        } else {
            0
        }
    }

    /// Replaces a word.
    fn put(&mut self, word: u32, bits: u64) {
        let bit = 1 << word;
        self.full &= !bit;
        self.mixed &= !bit;
        if bits == self.valid(word) {
            self.full |= bit;
        } else if bits != 0 {
            self.mixed |= bit;
            if self.mixed_words.is_empty() {
                self.mixed_words = vec![0; self.len.div_ceil(WORD) as usize].into();
            }
            self.mixed_words[word as usize] = bits;
        }
    }

    fn verify(&self) -> Result<(), String> {
        let mut counted = 0;
        for word in 0..self.len.div_ceil(WORD) {
            let bits = self.word(word);
            counted += bits.count_ones();
            let uniform = bits == 0 || bits == self.valid(word);
            if bits & !self.valid(word) != 0 || uniform == (self.mixed & 1 << word != 0) {
                return Err(format!("word {word} is {bits:#x}, summed up wrongly (J3)"));
            }
        }
        if self.full & self.mixed != 0 || counted != self.set {
            return Err(format!(
                "{} of {} bits counted, {counted} set, summary {:#x} {:#x} (J3)",
                self.set, self.len, self.full, self.mixed
            ));
        }
        Ok(())
    }
}

/// The words that `range`, not empty, touches, each with the mask of the touched bits.
#[inline]
fn masks(range: Range<u32>) -> impl Iterator<Item = (u32, u64)> {
    let first = range.start / WORD;
    let last = (range.end - 1) / WORD;
    (first..=last).map(move |word| {
        // Zero in the words after the first.
        let low = range.start.saturating_sub(word * WORD);
        let high = (range.end - word * WORD).min(WORD);
        let mask = (u64::MAX << low) & (u64::MAX >> (WORD - high));
        (word, mask)
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
    fn only_words_with_both_kinds_of_bits_are_kept() {
        let mut bits = BlockBits::new(2048);
        let summary = |bits: &BlockBits| match &bits.bits {
            Bits::Many(words) => (words.full, words.mixed, words.mixed_words.len()),
            Bits::One(_) => unreachable!("2048 bits are more than a word"),
        };
        bits.insert(0..2048);
        assert_eq!(summary(&bits), (u32::MAX, 0, 0));
        bits.remove(64..1024);
        assert_eq!(summary(&bits).2, 0, "whole words only");
        bits.remove(3..4);
        assert_eq!(summary(&bits).1, 1);
        assert_eq!(bits.next_run(5), Some(5..64));
        assert_eq!(bits.next_run(64), Some(1024..2048));
        bits.insert(3..4);
        bits.insert(70..1000);
        assert_eq!(summary(&bits).1, 1 << 1 | 1 << 15);
        assert_eq!(bits.next_clear(80), Some(1000));
        assert_eq!(bits.remove(0..2048), 64 + 930 + 1024);
        assert_eq!(summary(&bits), (0, 0, 32));
    }
}
