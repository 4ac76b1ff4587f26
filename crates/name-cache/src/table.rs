//! A table of names up to one length, in sets.
//!
//! ```text
//!   set:  head line                        a name's lines, one after the other
//!         | sequence | used | tag 0..5 |   | dir, inode | generation, length, kind | name ... |
//! ```
//!
//! A name may be in one set only, chosen by its hash. A tag is the hash of the name in that way of
//! the set, with the lowest bit set; zero means that the way is free. `used` has a bit for each way
//! that was found since its bits were cleared.
//!
//! # Invariants
//! - All words but `used` change only between an odd sequence and the next even one, by the holder
//!   of the set's writer lock.
//! - A name is in at most one way.
//!
//! The header of the crate argues why readers need no lock.

use extant_sync::Mutex;
use extant_sync::atomic::{AtomicU64, Ordering, fence};
use extant_units::{Ino, index};

use crate::key::Key;
use crate::lines::{Lines, WORDS};
use crate::step::{Omitted, Step};

/// Names of a set: as many as have a tag in the head line, or as a model checker can afford.
pub(crate) const WAYS: usize = if cfg!(extant_shuttle) {
    2
} else {
    WORDS - TAGS
};
/// Locks of writers, which sets share: 64, or as many as a model checker can afford.
const WRITERS: usize = if cfg!(extant_shuttle) { 1 } else { 64 };
/// Times that a reader meets a writer before it gives up.
const ATTEMPTS: u32 = 4;

/// Words of a head line: the sequence.
const SEQUENCE: usize = 0;
/// The ways that were found.
const USED: usize = 1;
/// The first tag.
const TAGS: usize = 2;

/// Words before the name in its lines.
const FIXED: usize = 2;

/// A directory's answer for a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// The directory does not have the name.
    Absent,
    /// It leads to an inode.
    Present(Target),
}

/// The inode that a name leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Target {
    /// Its number.
    pub ino: Ino,
    /// Its generation.
    pub generation: u32,
    /// Its kind, in a number of the user's.
    pub kind: u8,
}

/// A mutex without data, on a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct WriterLock(Mutex<()>);

/// A table. See the module.
pub(crate) struct Table {
    lines: Lines,
    sets: u64,
    /// Lines of a name.
    name_lines: usize,
    writers: Box<[WriterLock]>,
    omitted: Omitted,
}

/// One set of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Set(usize);

/// The outcome of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stored {
    /// The entry went to a free way, or was there.
    Entered,
    /// Another name left the table for it.
    Evicted,
    /// The table has no sets.
    Refused,
}

impl Table {
    /// A table of at most `bytes` for names of up to `longest` bytes.
    pub(crate) fn new(bytes: usize, longest: usize, omitted: Omitted) -> Self {
        let name_lines = (FIXED + longest.div_ceil(8)).div_ceil(WORDS);
        let set_lines = 1 + WAYS * name_lines;
        let lines = Lines::zeroed(bytes / (WORDS * 8) / set_lines * set_lines);
        Self {
            sets: (lines.len() / set_lines) as u64,
            lines,
            name_lines,
            writers: (0..WRITERS).map(|_| WriterLock::default()).collect(),
            omitted,
        }
    }

    /// The entry of `key`, with its set and the sequence of that.
    #[inline]
    pub(crate) fn get(&self, key: Key<'_>) -> Option<(Entry, Set, u64)> {
        let set = self.set_of(key)?;
        let sequence = &self.head(set)[SEQUENCE];
        for _ in 0..ATTEMPTS {
            let before = sequence.load(Ordering::Acquire);
            if before & 1 != 0 {
                std::hint::spin_loop();
                continue;
            }
            let found = self.way_of(set, key).map(|way| (way, self.entry(set, way)));
            fence(Ordering::Acquire);
            let again = self.omitted.is(Step::ReaderLooksAgain);
            if again || sequence.load(Ordering::Relaxed) == before {
                let (way, entry) = found?;
                self.note_use(set, way);
                return Some((entry, set, before));
            }
        }
        None
    }

    /// Returns whether `set` is as it was at `sequence`. The caller has taken its reference before,
    /// under a lock.
    #[inline]
    pub(crate) fn is_at(&self, set: Set, sequence: u64) -> bool {
        self.omitted.is(Step::TicketIsCompared)
            || self.head(set)[SEQUENCE].load(Ordering::Relaxed) == sequence
    }

    /// Enters `entry` for `key`, in place of what there was.
    pub(crate) fn put(&self, key: Key<'_>, entry: Entry) -> Stored {
        let Some(set) = self.set_of(key) else {
            return Stored::Refused;
        };
        self.exclude(set, || {
            let there = self.way_of(set, key);
            if there.is_some_and(|way| self.entry(set, way) == entry) {
                return Stored::Entered;
            }
            let way = there.unwrap_or_else(|| self.victim(set, key));
            let tag = &self.head(set)[TAGS + way];
            let evicts = there.is_none() && tag.load(Ordering::Relaxed) != 0;
            self.change(set, || {
                self.store(set, way, key, entry);
                tag.store(key.hash | 1, Ordering::Relaxed);
            });
            if evicts {
                Stored::Evicted
            } else {
                Stored::Entered
            }
        })
    }

    /// Removes what there is of `key`.
    pub(crate) fn remove(&self, key: Key<'_>) {
        if self.omitted.is(Step::NamesAreForgotten) {
            return;
        }
        let Some(set) = self.set_of(key) else { return };
        self.exclude(set, || {
            if let Some(way) = self.way_of(set, key) {
                let tag = &self.head(set)[TAGS + way];
                self.change(set, || tag.store(0, Ordering::Relaxed));
            }
        });
    }

    /// Runs `change` with the writer lock of `set` held.
    fn exclude<R>(&self, set: Set, change: impl FnOnce() -> R) -> R {
        if self.omitted.is(Step::WritersExclude) {
            return change();
        }
        let _held = self.writers[set.0 % self.writers.len()].0.lock();
        change()
    }

    /// Runs `write`, which changes words of `set`, between an odd sequence and an even one.
    fn change(&self, set: Set, write: impl FnOnce()) {
        let sequence = &self.head(set)[SEQUENCE];
        let before = sequence.load(Ordering::Relaxed);
        if !self.omitted.is(Step::SequenceIsMarked) {
            debug_assert_eq!(before & 1, 0, "one writer at a time");
            sequence.store(before + 1, Ordering::Relaxed);
        }
        fence(Ordering::Release);
        write();
        sequence.store(before + 2, Ordering::Release);
    }

    #[inline]
    fn set_of(&self, key: Key<'_>) -> Option<Set> {
        let (_, at) = key.hash.carrying_mul(self.sets, 0);
        (self.sets > 0).then(|| Set(index(at)))
    }

    #[inline]
    fn first_line(&self, set: Set) -> usize {
        set.0 * (1 + WAYS * self.name_lines)
    }

    #[inline]
    fn head(&self, set: Set) -> &[AtomicU64; WORDS] {
        self.lines.line(self.first_line(set))
    }

    /// Word `at` of a name.
    #[inline]
    fn word(&self, set: Set, way: usize, at: usize) -> &AtomicU64 {
        let line = self.first_line(set) + 1 + way * self.name_lines + at / WORDS;
        &self.lines.line(line)[at % WORDS]
    }

    /// The way that has `key`. Without the writer lock the answer may be of no moment.
    #[inline]
    fn way_of(&self, set: Set, key: Key<'_>) -> Option<usize> {
        let head = self.head(set);
        (0..WAYS).find(|way| {
            let tag = head[TAGS + way].load(Ordering::Relaxed);
            tag == key.hash | 1 && self.is_name(set, *way, key)
        })
    }

    #[inline]
    fn is_name(&self, set: Set, way: usize, key: Key<'_>) -> bool {
        let load = |at| self.word(set, way, at).load(Ordering::Relaxed);
        let [d0, d1, d2, d3, ..] = load(0).to_le_bytes();
        let [.., len, _, _, _] = load(1).to_le_bytes();
        u32::from_le_bytes([d0, d1, d2, d3]) == key.dir.get()
            && usize::from(len) == key.name.len()
            && key.has_words(|at| load(FIXED + at))
    }

    #[inline]
    fn entry(&self, set: Set, way: usize) -> Entry {
        let [_, _, _, _, i0, i1, i2, i3] =
            self.word(set, way, 0).load(Ordering::Relaxed).to_le_bytes();
        let [g0, g1, g2, g3, _, kind, _, _] =
            self.word(set, way, 1).load(Ordering::Relaxed).to_le_bytes();
        match Ino::new(u32::from_le_bytes([i0, i1, i2, i3])) {
            None => Entry::Absent,
            Some(ino) => Entry::Present(Target {
                ino,
                generation: u32::from_le_bytes([g0, g1, g2, g3]),
                kind,
            }),
        }
    }

    fn store(&self, set: Set, way: usize, key: Key<'_>, entry: Entry) {
        let (ino, generation, kind) = match entry {
            Entry::Absent => (0, 0, 0),
            Entry::Present(to) => (to.ino.get(), to.generation, to.kind),
        };
        let dir_and_ino = u64::from(key.dir.get()) | u64::from(ino) << 32;
        let len = key.name.len() as u64;
        let rest = u64::from(generation) | len << 32 | u64::from(kind) << 40;
        let all = [dir_and_ino, rest].into_iter().chain(key.words());
        for (at, word) in all.enumerate() {
            self.word(set, way, at).store(word, Ordering::Relaxed);
        }
    }

    /// Notes that a way was found. Its line is written only once between two clearings.
    #[inline]
    fn note_use(&self, set: Set, way: usize) {
        let used = &self.head(set)[USED];
        if used.load(Ordering::Relaxed) & 1 << way == 0 {
            used.fetch_or(1 << way, Ordering::Relaxed);
        }
    }

    /// The way for a new name: a free one, else one that was not found lately, beginning at a
    /// way that the name decides. A walk over more names than there is room for so retains some.
    fn victim(&self, set: Set, key: Key<'_>) -> usize {
        let head = self.head(set);
        let free = |way: &usize| head[TAGS + way].load(Ordering::Relaxed) == 0;
        if let Some(way) = (0..WAYS).find(free) {
            return way;
        }
        let used = head[USED].load(Ordering::Relaxed);
        let start = index((key.hash >> 1) % WAYS as u64);
        let mut ways = (0..WAYS).map(|step| (start + step) % WAYS);
        ways.find(|way| used & 1 << way == 0).unwrap_or_else(|| {
            head[USED].store(0, Ordering::Relaxed);
            start
        })
    }
}
