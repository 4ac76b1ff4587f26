//! The outcome of a repair.

use extant_check::Finding;

use crate::replay::Replayed;
use crate::rounds::Outcome;

/// The outcome of a repair; of a dry run, what it would be.
#[derive(Clone, Debug)]
pub struct Report {
    /// Findings that were repaired. At most as many as a check collects.
    pub fixed: Vec<Finding>,
    /// Damage that is left, up to the limit of a check.
    pub left: Vec<Finding>,
    /// Damage that is left in all.
    pub left_in_all: u64,
    /// States that are no damage, as [`extant_check::Report::notes`].
    pub notes: Vec<Finding>,
    /// Transactions of the journal that were replayed.
    pub replayed: u64,
    /// Orphans that were deleted or truncated.
    pub orphans: u64,
    /// Blocks that were written at their home locations, beside those of the replay.
    pub blocks_written: u64,
}

impl Report {
    pub(crate) fn new(outcome: Outcome, replayed: &Replayed, blocks_written: u64) -> Self {
        Self {
            fixed: outcome.fixed,
            left: outcome.last.findings,
            left_in_all: outcome.last.found,
            notes: outcome.last.notes,
            replayed: replayed.transactions,
            orphans: outcome.orphans,
            blocks_written,
        }
    }

    /// Returns whether nothing is wrong now.
    pub fn is_clean(&self) -> bool {
        self.left_in_all == 0
    }

    /// Returns whether there was something to repair, to replay or to finish.
    pub fn has_changed(&self) -> bool {
        !self.fixed.is_empty() || self.replayed > 0 || self.orphans > 0
    }
}
