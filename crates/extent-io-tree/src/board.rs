//! Short ranges that are locked without a record: each is posted as one word.
//!
//! Many requests of one block each, from several threads, would meet in the tree's short lock, though none wants what another has. So
//! whoever only tries, and wants no more than a few blocks, posts them here: one exchange of a word when it begins and one when it ends.
//! A board has lines of eight words, which is a cache line; a range has its line by its position, so whoever looks for
//! others looks at one line.
//!
//! # Invariants
//! * A posted range counts as locked by [`Bits::LOCKS`](crate::Bits::LOCKS). It counts once whoever posted it has looked at its line and at
//!   the tree and found nobody; otherwise it takes it back, and waits for nothing.
//! * Whoever locks a range in the tree looks at the board afterwards, and waits with the range held, or lets go of it if it only tries.
//!   So of two who want the same byte at least one sees the other, and it is never the poster who waits.
//!
//! # Concurrency
//! Posting and looking are each a write and then a read of what the other writes, in sequentially consistent order: by the exchange and
//! the loads after it here, by a fence there. Who posts and then looks at something else by weaker loads needs a fence of its own. A tree
//! without a board costs those who lock in it nothing: the board is there before anybody posts, and before the first post the tree's lock
//! has been taken and released, so whoever took that lock earlier is seen, and whoever takes it later sees the board.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::range::ByteRange;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, SPINS, fence};
use crate::waiters::Parker;

/// Lines of a board. Sixty-four requests in flight find a full line once in ten thousand times.
#[cfg(not(extant_shuttle))]
const LINES: usize = 128;
/// As many as a model checker can afford.
#[cfg(extant_shuttle)]
const LINES: usize = 2;
/// Words of a line.
const WORDS: usize = 8;
/// Positions are kept in units of this many bytes (binary logarithm).
const UNIT_SHIFT: u32 = 9;
/// A posted range lies within a chunk of so many bytes (binary logarithm).
const CHUNK_SHIFT: u32 = 14;
/// Bits of a word that hold the length in units, less one.
const LEN_SHIFT: u32 = CHUNK_SHIFT - UNIT_SHIFT;
/// A free word. All others are odd.
const FREE: u64 = 0;

/// See the head of the file.
pub(crate) struct Board {
    lines: Box<[Line]>,
    /// The tree's lock has been taken and released since the board could be seen.
    announced: AtomicBool,
    /// Threads in `sleepers`.
    sleeping: AtomicU32,
    sleepers: Mutex<Vec<Arc<Parker>>>,
}

/// Words that are looked at together.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; WORDS]);

/// Where a range was posted, until it is [taken back](crate::IoTree::unpost).
#[derive(Debug)]
#[must_use = "the range stays locked until this is given back"]
pub struct Posted {
    line: usize,
    word: usize,
}

/// A range as a word; none if it is not within a chunk, or not of whole units.
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

/// The line of a chunk, and the word of it to try first. Neighbours lie far apart, so that neither streams nor strides meet in few.
#[inline]
#[allow(clippy::cast_possible_truncation, reason = "both are small")]
fn place_of(chunk: u64) -> (usize, usize) {
    let mixed = chunk.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let line = ((mixed >> 32) * LINES as u64) >> 32;
    (line as usize, (mixed >> 16) as usize % WORDS)
}

impl Board {
    pub(crate) fn new() -> Self {
        Self {
            lines: (0..LINES).map(|_| Line::default()).collect(),
            announced: AtomicBool::new(false),
            sleeping: AtomicU32::new(0),
            sleepers: Mutex::new(Vec::new()),
        }
    }

    /// Before a post: takes and releases the tree's lock by `pass`, if nobody has done that yet.
    #[inline]
    pub(crate) fn announce(&self, pass: impl FnOnce()) {
        if !self.announced.load(Ordering::Acquire) {
            pass();
            self.announced.store(true, Ordering::Release);
        }
    }

    /// Posts `range`, if there is place for it and nobody else has posted a byte of it. Whoever locks in the tree from now on sees it; the
    /// caller has to look there.
    #[inline]
    pub(crate) fn post(&self, range: ByteRange) -> Option<Posted> {
        let value = encode(range)?;
        let (number, guess) = place_of(range.start() >> CHUNK_SHIFT);
        let line = &self.lines.get(number)?.0;
        // Written without a look at it: most likely the word is free, and the line comes here once instead of twice.
        let take = |word: &AtomicU64| {
            let taken = word.compare_exchange(FREE, value, Ordering::SeqCst, Ordering::Relaxed);
            taken.is_ok()
        };
        let word = match line.get(guess).is_some_and(take) {
            true => guess,
            false => line.iter().position(take)?,
        };
        let posted = Posted { line: number, word };
        // Of two who post the same byte at once both may lose: neither waits, and both have another way.
        let others = line.iter().enumerate().filter(|(other, _)| *other != word);
        for (_, other) in others {
            if decode(other.load(Ordering::SeqCst)).is_some_and(|other| other.overlaps(range)) {
                self.take_back(posted);
                return None;
            }
        }
        Some(posted)
    }

    /// Ends a post, and wakes who waits for any.
    #[inline]
    #[allow(clippy::needless_pass_by_value, reason = "it is spent")]
    pub(crate) fn take_back(&self, posted: Posted) {
        let line = self.lines.get(posted.line);
        if let Some(word) = line.and_then(|line| line.0.get(posted.word)) {
            let had = word.swap(FREE, Ordering::SeqCst);
            debug_assert_ne!(had, FREE, "what was posted is there");
        }
        if self.sleeping.load(Ordering::SeqCst) != 0 {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        let mut sleepers = self.sleepers.lock();
        let all = std::mem::take(&mut *sleepers);
        self.sleeping.store(0, Ordering::SeqCst);
        drop(sleepers);
        all.iter().for_each(|parker| parker.wake());
    }

    /// The first byte of `range` that is posted, for somebody who has just done what posters look at.
    pub(crate) fn first(&self, range: ByteRange) -> Option<u64> {
        fence(Ordering::SeqCst);
        let (first, last) = (range.start() >> CHUNK_SHIFT, range.last() >> CHUNK_SHIFT);
        let in_line = |line: &Line| {
            let words = line.0.iter();
            let posted = words.filter_map(|word| decode(word.load(Ordering::SeqCst)));
            let inside = posted.filter(|posted| posted.overlaps(range));
            inside.map(|posted| posted.start().max(range.start())).min()
        };
        if last - first >= LINES as u64 {
            return self.lines.iter().filter_map(in_line).min();
        }
        let lines = (first..=last).filter_map(|chunk| self.lines.get(place_of(chunk).0));
        lines.filter_map(in_line).min()
    }

    /// Waits until no byte of `range` is posted; says whether it had to sleep.
    #[cold]
    pub(crate) fn wait(&self, range: ByteRange) -> bool {
        for _ in 0..SPINS {
            if self.first(range).is_none() {
                return false;
            }
            std::hint::spin_loop();
        }
        let parker = Parker::new();
        let mut slept = false;
        loop {
            let mut sleepers = self.sleepers.lock();
            sleepers.push(parker.clone());
            self.count(&sleepers);
            drop(sleepers);
            // Whoever takes a post back that is seen here sees that somebody sleeps.
            let blocked = self.first(range).is_some();
            if blocked {
                slept = true;
                parker.sleep();
            }
            let mut sleepers = self.sleepers.lock();
            sleepers.retain(|other| !Arc::ptr_eq(other, &parker));
            self.count(&sleepers);
            drop(sleepers);
            if !blocked {
                return slept;
            }
        }
    }

    /// Whether a thread sleeps, or is about to.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleeping.load(Ordering::SeqCst) != 0
    }

    fn count(&self, sleepers: &[Arc<Parker>]) {
        let count = u32::try_from(sleepers.len()).unwrap_or(u32::MAX);
        self.sleeping.store(count, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks(start: u64, count: u64) -> ByteRange {
        ByteRange::from_len(start * 512, count * 512).unwrap()
    }

    #[test]
    fn a_word_holds_a_range_within_a_chunk() {
        let last = u64::MAX - 511;
        for range in [
            blocks(0, 1),
            blocks(0, 32),
            blocks(31, 1),
            blocks(32, 8),
            blocks(1 << 40, 8),
            ByteRange::new(last, u64::MAX).unwrap(),
        ] {
            let word = encode(range).unwrap();
            assert_ne!(word, FREE);
            assert_eq!(decode(word), Some(range));
        }
        for other in [
            blocks(31, 2),
            blocks(0, 33),
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
            (0..LINES as u64 * 4).for_each(|chunk| in_line[place_of(chunk * step).0] += 1);
            assert!(in_line.iter().all(|&n| n <= WORDS), "{step}: {in_line:?}");
        }
    }

    #[test]
    fn what_is_posted_is_found_and_a_full_line_refuses() {
        let board = Board::new();
        let held: Vec<_> = (0..8).map(|n| board.post(blocks(n, 1)).unwrap()).collect();
        assert!(board.post(blocks(9, 1)).is_none(), "the line is full");
        assert_eq!(board.first(blocks(5, 20)), Some(5 * 512));
        assert_eq!(board.first(blocks(8, 24)), None);
        assert_eq!(board.first(ByteRange::to_infinity(700)), Some(700));
        held.into_iter().for_each(|posted| board.take_back(posted));
        assert_eq!(board.first(ByteRange::ALL), None);
        let one = board.post(blocks(4, 4)).unwrap();
        assert!(board.post(blocks(7, 2)).is_none());
        let other = board.post(blocks(8, 2)).unwrap();
        board.take_back(one);
        board.take_back(other);
        assert!(!board.wait(ByteRange::ALL));
    }
}
