//! Collecting findings.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_disk::damage::CorruptKind;
use extant_disk::location::Location;
use parking_lot::Mutex;

use crate::remedy::{Doubt, Remedy, Repair};

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// The structure, and which one.
    pub place: Location,
    /// The damage; of a note, the state. Its display is the message.
    pub kind: CorruptKind,
    /// The repair, or the doubt that it leaves.
    pub remedy: Remedy,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.kind)
    }
}

/// Findings of all threads.
///
/// # Locks
/// Each list has a lock, held for one push.
pub(crate) struct Findings {
    list: Mutex<Vec<Finding>>,
    notes: Mutex<Vec<Finding>>,
    count: AtomicU64,
    limit: usize,
}

/// A moment in the collection.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    findings: usize,
    notes: usize,
    count: u64,
}

/// Findings as they are in the end.
pub(crate) struct Collected {
    /// Findings, by location.
    pub(crate) findings: Vec<Finding>,
    /// Findings in all, those past the limit included.
    pub(crate) count: u64,
    /// Notes, in the order in which they were made.
    pub(crate) notes: Vec<Finding>,
}

impl Findings {
    /// No findings; at most `limit` of those to come are kept.
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            notes: Mutex::new(Vec::new()),
            count: AtomicU64::new(0),
            limit,
        }
    }

    /// Adds damage at `place` that has no certain repair.
    pub(crate) fn add(&self, place: Location, kind: impl Into<CorruptKind>) {
        let doubt = Doubt::of(&place);
        self.push(place, kind, || Remedy::Left(doubt));
    }

    /// Adds damage that has no certain repair, and makes nothing else doubtful.
    pub(crate) fn add_alone(&self, place: Location, kind: impl Into<CorruptKind>) {
        self.push(place, kind, || Remedy::Left(Doubt::Nothing));
    }

    /// Adds damage that has no certain repair, and may hide names.
    pub(crate) fn add_hiding(&self, place: Location, kind: impl Into<CorruptKind>) {
        self.push(place, kind, || Remedy::Left(Doubt::Names));
    }

    /// Adds damage that has no certain repair, and may hide inodes and what they own.
    pub(crate) fn add_hiding_inodes(&self, place: Location, kind: impl Into<CorruptKind>) {
        self.push(place, kind, || Remedy::Left(Doubt::Maps));
    }

    /// Adds damage that `repair` mends.
    pub(crate) fn add_repairable(
        &self,
        place: Location,
        kind: impl Into<CorruptKind>,
        repair: impl FnOnce() -> Repair,
    ) {
        self.push(place, kind, || Remedy::Repair(repair()));
    }

    fn push(&self, place: Location, kind: impl Into<CorruptKind>, remedy: impl FnOnce() -> Remedy) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list.lock();
        if list.len() < self.limit {
            list.push(Finding {
                place,
                kind: kind.into(),
                remedy: remedy(),
            });
        }
    }

    /// Adds a state at `place` that is not as it could be, but is no damage.
    pub(crate) fn note(&self, place: Location, kind: impl Into<CorruptKind>) {
        self.push_note(place, kind, Remedy::Left(Doubt::Nothing));
    }

    /// Adds a state at `place` that is no damage, and that `repair` mends nevertheless.
    pub(crate) fn note_repairable(
        &self,
        place: Location,
        kind: impl Into<CorruptKind>,
        repair: Repair,
    ) {
        self.push_note(place, kind, Remedy::Repair(repair));
    }

    /// Adds a state at `place` that is no damage, with what it means for repairs.
    pub(crate) fn push_note(&self, place: Location, kind: impl Into<CorruptKind>, remedy: Remedy) {
        let kind = kind.into();
        self.notes.lock().push(Finding {
            place,
            kind,
            remedy,
        });
    }

    /// Findings so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Returns whether there are more findings than are kept: which of them are depends on the
    /// order in which threads came.
    pub(crate) fn overflows(&self) -> bool {
        self.count() > self.limit as u64
    }

    /// The collection as it is now.
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            findings: self.list.lock().len(),
            notes: self.notes.lock().len(),
            count: self.count(),
        }
    }

    /// Forgets what was added since `mark`.
    pub(crate) fn rewind(&self, mark: Mark) {
        self.list.lock().truncate(mark.findings);
        self.notes.lock().truncate(mark.notes);
        self.count.store(mark.count, Ordering::Relaxed);
    }

    /// Ends the collection.
    pub(crate) fn collect(self) -> Collected {
        // Threads add findings in any order; a report has them by location. Those of one inode, or
        // of one group, come from one thread at a time, and stay in its order.
        let mut findings = self.list.into_inner();
        findings.sort_by_key(|finding| rank(&finding.place));
        Collected {
            findings,
            count: self.count.into_inner(),
            notes: self.notes.into_inner(),
        }
    }
}

/// The rank of a location in a report.
fn rank(place: &Location) -> (u8, u64) {
    match place {
        Location::Superblock => (0, 0),
        Location::Journal => (1, 0),
        Location::Orphans => (2, 0),
        Location::Inode(ino)
        | Location::ExtentNode(ino, _)
        | Location::DirBlock(ino, _)
        | Location::XattrBlock(ino, _) => (3, u64::from(ino.get())),
        Location::GroupDesc(group)
        | Location::BlockBitmap(group)
        | Location::InodeBitmap(group) => (4, u64::from(group.get())),
        Location::Block(pblk) => (5, pblk.get()),
    }
}

#[cfg(test)]
mod tests {
    use extant_disk::damage::SuperblockDamage;
    use extant_units::{Group, Ino, Lblk, Pblk};

    use super::*;

    #[test]
    fn findings_that_are_not_kept_are_counted() {
        let findings = Findings::new(2);
        let add = || {
            findings.add(
                Location::Superblock,
                SuperblockDamage::RecoveryWithoutJournal,
            )
        };
        add();
        let mark = findings.mark();
        add();
        assert_eq!((findings.count(), findings.overflows()), (2, false));
        add();
        assert_eq!((findings.count(), findings.overflows()), (3, true));
        findings.rewind(mark);
        assert_eq!((findings.count(), findings.overflows()), (1, false));
        for _ in 0..4 {
            add();
        }
        let collected = findings.collect();
        assert_eq!((collected.findings.len(), collected.count), (2, 5));
    }

    /// Two inodes, or two groups, come by their numbers; all else by its kind.
    #[test]
    fn a_report_has_an_order() {
        let places = [
            Location::Superblock,
            Location::Journal,
            Location::Orphans,
            Location::Inode(Ino::ROOT),
            Location::DirBlock(Ino::new(12).unwrap(), Lblk::new(0)),
            Location::GroupDesc(Group::new(0)),
            Location::BlockBitmap(Group::new(1)),
            Location::Block(Pblk::new(0)),
            Location::Block(Pblk::new(1)),
        ];
        let ranks = places.map(|place| rank(&place));
        assert!(ranks.is_sorted_by(|one, next| one < next), "{ranks:?}");
    }
}
