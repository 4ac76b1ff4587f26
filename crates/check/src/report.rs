//! The outcome of a check.

use crate::findings::{Collected, Finding, Findings};
use crate::inodes::Scan;
use crate::open::Opened;

/// The outcome of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// Damage, up to the limit asked for.
    pub findings: Vec<Finding>,
    /// Findings in all.
    pub found: u64,
    /// States that are not as they could be, but are no damage: totals in the superblock, which
    /// Linux lets lag behind the groups; orphans; an error that the journal remembers; copies that
    /// only a repair would read.
    pub notes: Vec<Finding>,
    /// Transactions that were replayed, in memory, before the check.
    pub replayed: u64,
    /// Inodes that wait to be deleted or truncated.
    pub orphans: u64,
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
    /// The report on a volume after all passes.
    pub(crate) fn new(opened: &Opened, scan: &Scan, orphans: u64, findings: Findings) -> Self {
        let Collected {
            findings,
            count,
            notes,
        } = findings.collect();
        Self {
            findings,
            found: count,
            notes,
            replayed: opened.replayed,
            orphans,
            inodes_used: scan.inodes_used(),
            directories: scan.dirs.len() as u64,
            blocks_used: scan.usage.count(),
            blocks: opened.volume.sb.blocks_count().get(),
        }
    }

    /// Returns whether there are no findings.
    pub fn is_clean(&self) -> bool {
        self.found == 0
    }
}
