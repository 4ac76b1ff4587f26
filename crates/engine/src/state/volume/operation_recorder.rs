//! The operations of the running transaction that a fast commit can tell.
//!
//! # Responsibility
//! Entries of directories are noted as they come and go. Of inodes and of ranges of files only
//! that they changed: a fast commit tells what they are when it is written
//! (`mount/fast_commit_source.rs`).
//!
//! The code that changes a block says by [`Handle::telling`] that the change is noted here, or that
//! a replay makes it by itself: a bitmap follows from the inodes and ranges, a block of a directory
//! from its entries. What is not said so, or is more than [`MAX_BYTES`], has the whole transaction
//! committed.
//!
//! # Invariants
//! - Handles of one transaction at a time note something: a transaction runs only once the handles
//!   of the one before have ended. A note for another transaction forgets all others.
//! - A number that was freed has no new owner in the same transaction: records would not say whose
//!   entry is whose.
//!
//! # Locks
//! One leaf, held for a few operations on maps.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use extant_jbd2::Handle;
use extant_sync::Mutex;
use extant_units::{Ino, Tid};

/// Bytes that the notes of one transaction may take: some thousands of files, more than an area of
/// fast commits holds.
const MAX_BYTES: usize = 1 << 20;
/// Ranges of one file that are noted one by one.
const MAX_RANGES: usize = 64;

/// The notes about the running transaction.
#[derive(Default, Debug)]
pub(crate) struct OperationRecorder {
    notes: Mutex<Notes>,
}

#[derive(Default, Debug)]
struct Notes {
    tid: Option<Tid>,
    untold: Operations,
    bytes: usize,
    /// New inodes that have no name yet.
    nameless: HashSet<Ino>,
    freed: HashSet<Ino>,
}

/// Operations that no fast commit has told yet.
#[derive(Default, Debug)]
pub(crate) struct Operations {
    /// Inodes whose record changed, and the file blocks whose place or state did.
    pub(crate) inodes: BTreeMap<Ino, Vec<Range<u64>>>,
    /// Entries that came or went, in order.
    pub(crate) entries: Vec<NotedEntry>,
}

/// The way in which an entry changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EntryFate {
    /// It is the first one of a new inode.
    Made,
    Added,
    Removed,
}

/// An entry that came or went.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct NotedEntry {
    pub(crate) fate: EntryFate,
    pub(crate) parent: Ino,
    pub(crate) ino: Ino,
    pub(crate) name: Box<[u8]>,
}

impl OperationRecorder {
    /// Notes that the record of inode `ino` changes under `h`.
    pub(crate) fn touch(&self, h: &mut Handle, ino: Ino) {
        self.note(h, |notes| {
            notes.inode(ino);
            true
        });
    }

    /// Notes that the file blocks `range` of inode `ino` change under `h`.
    pub(crate) fn change_range(&self, h: &mut Handle, ino: Ino, range: Range<u64>) {
        self.note(h, |notes| {
            notes.bytes += size_of::<Range<u64>>();
            add_range(notes.inode(ino), range)
        });
    }

    /// Notes that the directory `parent` gets the entry `name`, which leads to `ino`.
    pub(crate) fn add_entry(&self, h: &mut Handle, parent: Ino, (ino, name): (Ino, &[u8])) {
        self.note(h, |notes| {
            let fate = match notes.nameless.remove(&ino) {
                true => EntryFate::Made,
                false => EntryFate::Added,
            };
            notes.entry(fate, parent, (ino, name));
            true
        });
    }

    /// Notes that the directory `parent` loses the entry `name`, which led to `ino`.
    pub(crate) fn remove_entry(&self, h: &mut Handle, parent: Ino, (ino, name): (Ino, &[u8])) {
        self.note(h, |notes| {
            notes.entry(EntryFate::Removed, parent, (ino, name));
            true
        });
    }

    /// Notes that the number `ino` is taken for a new inode.
    pub(crate) fn take_number(&self, h: &mut Handle, ino: Ino) {
        self.note(h, |notes| {
            notes.nameless.insert(ino);
            !notes.freed.contains(&ino)
        });
    }

    /// Notes that the number `ino` becomes free.
    pub(crate) fn free_number(&self, h: &mut Handle, ino: Ino) {
        self.note(h, |notes| {
            notes.nameless.remove(&ino);
            notes.freed.insert(ino);
            true
        });
    }

    /// Notes something about the transaction of `h`. If `add` returns false, that cannot be told.
    fn note(&self, h: &mut Handle, add: impl FnOnce(&mut Notes) -> bool) {
        let mut notes = self.notes.lock();
        if notes.tid != Some(h.tid()) {
            *notes = Notes {
                tid: Some(h.tid()),
                ..Notes::default()
            };
        }
        if notes.bytes > MAX_BYTES {
            h.set_untold();
            return;
        }
        if !add(&mut notes) {
            h.set_untold();
        }
        if notes.bytes > MAX_BYTES {
            notes.untold = Operations::default();
            h.set_untold();
        }
    }

    /// Takes the operations of `tid` that no fast commit has told yet.
    pub(crate) fn take(&self, tid: Tid) -> Operations {
        let mut notes = self.notes.lock();
        if notes.tid != Some(tid) {
            return Operations::default();
        }
        notes.bytes = 0;
        std::mem::take(&mut notes.untold)
    }
}

impl Notes {
    fn inode(&mut self, ino: Ino) -> &mut Vec<Range<u64>> {
        let entry = self.untold.inodes.entry(ino);
        entry.or_insert_with(|| {
            self.bytes += 256;
            Vec::new()
        })
    }

    fn entry(&mut self, fate: EntryFate, parent: Ino, (ino, name): (Ino, &[u8])) {
        // The record of the inode is told with it.
        self.inode(ino);
        self.bytes += size_of::<NotedEntry>() + name.len();
        self.untold.entries.push(NotedEntry {
            fate,
            parent,
            ino,
            name: name.into(),
        });
    }
}

/// Adds `range` to `ranges`, which are in order and apart. False if they are too many.
fn add_range(ranges: &mut Vec<Range<u64>>, mut range: Range<u64>) -> bool {
    if range.is_empty() {
        return true;
    }
    let from = ranges.partition_point(|other| other.end < range.start);
    let to = ranges.partition_point(|other| other.start <= range.end);
    for met in ranges.drain(from..to) {
        range = met.start.min(range.start)..met.end.max(range.end);
    }
    ranges.insert(from, range);
    ranges.len() <= MAX_RANGES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_joined_where_they_meet() {
        let mut ranges = Vec::new();
        for range in [4..6, 10..12, 0..1, 6..7, 7..7, 20..21] {
            assert!(add_range(&mut ranges, range));
        }
        assert_eq!(ranges, [0..1, 4..7, 10..12, 20..21]);
        add_range(&mut ranges, 5..11);
        assert_eq!(ranges, [0..1, 4..12, 20..21]);
        add_range(&mut ranges, 0..30);
        assert!(ranges.iter().eq([&(0..30)]));
        let many = MAX_RANGES as u64 + 1;
        let fits = |n: u64| add_range(&mut ranges, 2 * n + 40..2 * n + 41);
        let fit: Vec<bool> = (1..=many).map(fits).collect();
        assert_eq!(fit.iter().filter(|fits| !**fits).count(), 2);
    }
}
