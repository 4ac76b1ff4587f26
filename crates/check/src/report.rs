//! What was found.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::inodes::Scan;
use super::volume::Volume;
use extant_disk::location::Location;

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

/// The outcome of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// What is wrong, up to the limit asked for.
    pub findings: Vec<Finding>,
    /// How many findings there were in all.
    pub found: u64,
    /// What is not as it could be, but is no damage: totals in the superblock, which Linux lets lag
    /// behind the groups; orphans; an error that the journal remembers; copies that only a repair
    /// would read.
    pub notes: Vec<Finding>,
    /// Transactions that were replayed, in memory, before the check.
    pub replayed: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use, metadata included.
    pub blocks_used: u64,
    /// Blocks of the file system.
    pub blocks: u64,
}

impl Report {
    /// Whether nothing was found.
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }
}

/// Collects findings from several threads. The lock is held for a push only.
pub(super) struct Findings {
    list: Mutex<Vec<Finding>>,
    notes: Mutex<Vec<Finding>>,
    found: AtomicU64,
    limit: usize,
}

impl Findings {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            list: Mutex::new(Vec::new()),
            notes: Mutex::new(Vec::new()),
            found: AtomicU64::new(0),
            limit,
        }
    }

    /// Something is wrong at `place`.
    pub(super) fn add(&self, place: Location, what: impl fmt::Display) {
        self.found.fetch_add(1, Ordering::Relaxed);
        let mut list = self.list.lock();
        if list.len() < self.limit {
            list.push(Finding {
                place,
                what: what.to_string(),
            });
        }
    }

    /// How many there are so far.
    pub(super) fn count(&self) -> u64 {
        self.found.load(Ordering::Relaxed)
    }

    /// Something at `place` is worth a word, but no damage.
    pub(super) fn note(&self, place: Location, what: impl fmt::Display) {
        let what = what.to_string();
        self.notes.lock().push(Finding { place, what });
    }

    pub(super) fn into_report(self, volume: &Volume, scan: &Scan) -> Report {
        let mut findings = self.list.into_inner();
        findings.sort_by_key(|finding| order(&finding.place));
        Report {
            findings,
            found: self.found.into_inner(),
            notes: self.notes.into_inner(),
            replayed: volume.replayed,
            inodes_used: scan.inodes_used(),
            directories: scan.dirs.len() as u64,
            blocks_used: scan.usage.count(),
            blocks: volume.sb.blocks_count().get(),
        }
    }
}

/// Findings of several threads come in any order; the report has them by place.
fn order(place: &Location) -> (u8, u64) {
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
