//! Collecting findings.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_disk::location::Location;
use parking_lot::Mutex;

/// One thing that is wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// Where.
    pub place: Location,
    /// What.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.what)
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

/// What was collected in the end.
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

    /// Adds damage at `place`.
    pub(crate) fn add(&self, place: Location, what: impl fmt::Display) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list.lock();
        if list.len() < self.limit {
            let what = what.to_string();
            list.push(Finding { place, what });
        }
    }

    /// Adds a state at `place` that is not as it could be, but is no damage.
    pub(crate) fn note(&self, place: Location, what: impl fmt::Display) {
        let what = what.to_string();
        self.notes.lock().push(Finding { place, what });
    }

    /// Findings so far.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Ends the collection.
    pub(crate) fn collect(self) -> Collected {
        // Threads add findings in any order; a report has them by location.
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
