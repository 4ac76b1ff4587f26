//! The slot table: short ranges that are locked by one word each.
//!
//! Many requests of one block each, from several threads, would meet in the short lock of the I/O
//! tree, though their ranges are disjoint. A slot costs one exchange of a word when it is locked
//! and one when it is released. A line of eight slots is one cache line. A range has its line by
//! its position, so a thread that looks for conflicts of a short range reads one line.
//!
//! # Invariants
//! * A slot's range lies within one [chunk](CHUNK_SHIFT), and so in one line.
//! * A free word is zero; all others are odd.

use extant_extent_io_tree::ByteRange;
use extant_sync::atomic::{AtomicU64, Ordering};

use crate::sleepers::Sleepers;
use crate::step::Omitted;

/// Lines of a table: of 64 requests in flight, one in ten thousand finds its line full. Or as many
/// as a model checker can afford.
const LINES: usize = if cfg!(extant_shuttle) { 2 } else { 128 };
/// Words of a line: a cache line of 64 bytes, or as many as a model checker can afford.
const WORDS: usize = if cfg!(extant_shuttle) { 2 } else { 8 };
/// Positions are stored in units of so many bytes (binary logarithm): a sector of a disk.
const UNIT_SHIFT: u32 = 9;
/// A slot's range lies within an aligned chunk of so many bytes (binary logarithm).
const CHUNK_SHIFT: u32 = 14;
/// Bits of a word that hold the length in units, less one.
const LEN_SHIFT: u32 = CHUNK_SHIFT - UNIT_SHIFT;
/// Spreads chunk numbers over lines: 2^64 divided by the golden ratio, as for hash tables.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// A free word.
const FREE: u64 = 0;

/// See the module.
pub(crate) struct SlotTable {
    lines: Box<[Line]>,
    sleepers: Sleepers,
}

/// Words that are looked at together.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS]);

/// A published slot, until it is [withdrawn](SlotTable::withdraw).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    line: usize,
    word: usize,
}

/// A range as a word; `None` if it crosses a chunk or is not of whole units.
fn encode(range: ByteRange) -> Option<u64> {
    let unit = (1_u64 << UNIT_SHIFT) - 1;
    let whole = range.start() & unit == 0 && range.last() & unit == unit;
    if !whole || range.start() >> CHUNK_SHIFT != range.last() >> CHUNK_SHIFT {
        return None;
    }
    let (first, last) = (range.start() >> UNIT_SHIFT, range.last() >> UNIT_SHIFT);
    Some((first << LEN_SHIFT | (last - first)) << 1 | 1)
}

/// The range of a word that is not free.
fn decode(word: u64) -> Option<ByteRange> {
    if word == FREE {
        return None;
    }
    let (first, more) = (word >> 1 >> LEN_SHIFT, word >> 1 & ((1 << LEN_SHIFT) - 1));
    let last = (first + more) << UNIT_SHIFT | ((1 << UNIT_SHIFT) - 1);
    ByteRange::new(first << UNIT_SHIFT, last)
}

/// Returns whether the slot `word` has a byte of `range`.
#[inline]
fn is_within(word: &AtomicU64, range: ByteRange) -> bool {
    let locked = decode(word.load(Ordering::Acquire));
    locked.is_some_and(|locked| locked.overlaps(range))
}

/// The line of a chunk, and the word of it to try first. Neighbours lie far apart, so neither
/// streams nor strides fill a few lines only.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "both are small")]
fn position_of(chunk: u64) -> Slot {
    let mixed = chunk.wrapping_mul(SPREAD);
    Slot {
        line: (((mixed >> 32) * LINES as u64) >> 32) as usize,
        word: (mixed >> 16) as usize % WORDS,
    }
}

impl SlotTable {
    pub(crate) fn new() -> Self {
        Self {
            lines: (0..LINES).map(|_| Line::default()).collect(),
            sleepers: Sleepers::default(),
        }
    }

    /// Step 1: writes `range` into a free word of its line, if it can be a word and there is one.
    /// The lock counts once its holder has looked.
    #[inline]
    pub(crate) fn publish(&self, range: ByteRange) -> Option<Slot> {
        let value = encode(range)?;
        let guess = position_of(range.start() >> CHUNK_SHIFT);
        let line = &self.lines[guess.line].0;
        // An exchange without a look before it: the word is free most likely, and the cache line
        // comes to this processor once instead of twice.
        let take = |word: &AtomicU64| {
            let (free, failed) = (Ordering::SeqCst, Ordering::Relaxed);
            word.compare_exchange(FREE, value, free, failed).is_ok()
        };
        if take(&line[guess.word]) {
            return Some(guess);
        }
        let word = line.iter().position(take)?;
        Some(Slot { word, ..guess })
    }

    /// Step 6: withdraws a word and wakes the waiters, whichever word they wait for.
    #[inline]
    pub(crate) fn withdraw(&self, slot: Slot, omitted: Omitted) {
        let had = self.lines[slot.line].0[slot.word].swap(FREE, Ordering::SeqCst);
        debug_assert_ne!(had, FREE, "the slot was published");
        self.sleepers.wake(omitted);
    }

    /// Step 3 for the holder of `own`, whose range is `range`: whether another slot has a byte of
    /// it. Slots of the same chunk are in one line, so no other line is read. The holder's own word
    /// is one that has.
    #[inline]
    pub(crate) fn overlaps_others(&self, range: ByteRange, own: Slot) -> bool {
        let slots = self.lines[own.line].0.iter();
        slots.filter(|word| is_within(word, range)).count() > 1
    }

    /// Step 3: whether a slot has a byte of `range`. Not inlined: most files have no slots, and the
    /// look for them stays short.
    #[inline(never)]
    pub(crate) fn overlaps(&self, range: ByteRange) -> bool {
        let (first, last) = (range.start() >> CHUNK_SHIFT, range.last() >> CHUNK_SHIFT);
        let in_line = |line: usize| self.lines[line].0.iter().any(|word| is_within(word, range));
        if last - first >= LINES as u64 {
            return (0..LINES).any(in_line);
        }
        (first..=last).any(|chunk| in_line(position_of(chunk).line))
    }

    /// Waits until no slot has a byte of `range`; see [`Sleepers::wait_while`].
    pub(crate) fn wait(&self, range: ByteRange, omitted: Omitted) -> bool {
        self.sleepers.wait_while(omitted, || self.overlaps(range))
    }

    /// Returns whether a thread sleeps for a slot.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.are_there()
    }
}

#[cfg(all(test, not(extant_shuttle)))]
mod tests {
    use super::*;

    fn sectors(start: u64, count: u64) -> ByteRange {
        ByteRange::from_len(start * 512, count * 512).unwrap()
    }

    #[test]
    fn a_word_holds_a_range_within_a_chunk() {
        let last = u64::MAX - 511;
        for range in [
            sectors(0, 1),
            sectors(0, 32),
            sectors(31, 1),
            sectors(32, 8),
            sectors(1 << 40, 8),
            ByteRange::new(last, u64::MAX).unwrap(),
        ] {
            let word = encode(range).unwrap();
            assert_ne!(word, FREE);
            assert_eq!(decode(word), Some(range));
        }
        for other in [
            sectors(31, 2),
            sectors(0, 33),
            ByteRange::new(0, 510).unwrap(),
            ByteRange::new(1, 511).unwrap(),
            ByteRange::ALL,
        ] {
            assert_eq!(encode(other), None, "{other}");
        }
        assert_eq!(decode(FREE), None);
    }

    #[test]
    fn chunks_spread_over_all_lines() {
        for step in [1, 2, 8, 64, 1 << 20] {
            let mut in_line = [0; LINES];
            (0..LINES as u64 * 4).for_each(|chunk| in_line[position_of(chunk * step).line] += 1);
            assert!(in_line.iter().all(|&n| n <= WORDS), "{step}: {in_line:?}");
        }
    }

    #[test]
    fn what_is_published_is_found_and_a_full_line_refuses() {
        let (table, no) = (SlotTable::new(), Omitted::default());
        let slots: Vec<_> = (0..8)
            .map(|n| table.publish(sectors(n, 1)).unwrap())
            .collect();
        assert!(table.publish(sectors(9, 1)).is_none(), "the line is full");
        assert!(table.overlaps(sectors(5, 20)) && !table.overlaps(sectors(8, 24)));
        assert!(table.overlaps(ByteRange::to_infinity(7 * 512 + 511)));
        assert!(!table.overlaps(ByteRange::to_infinity(8 * 512)));
        assert!(!table.overlaps_others(sectors(3, 1), slots[3]), "its own");
        slots.into_iter().for_each(|slot| table.withdraw(slot, no));
        assert!(!table.overlaps(ByteRange::ALL));
        assert!(!table.wait(ByteRange::ALL, no));
        let one = table.publish(sectors(3, 2)).unwrap();
        assert!(!table.overlaps_others(sectors(3, 2), one), "its own");
        let other = table.publish(sectors(4, 1)).unwrap();
        assert!(table.overlaps_others(sectors(3, 2), one));
        assert!(table.overlaps_others(sectors(4, 1), other));
    }
}
