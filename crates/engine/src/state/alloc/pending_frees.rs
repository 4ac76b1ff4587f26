//! Blocks freed by transactions that are not durable yet: a list of runs for each.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use extant_units::Tid;
use parking_lot::Mutex;

use crate::state::alloc::Run;

/// Lists of freed runs by transaction.
#[derive(Default)]
pub(crate) struct Pending {
    pub(crate) lists: Mutex<HashMap<Tid, Vec<Run>>>,
    pub(crate) blocks: AtomicU64,
}

impl Pending {
    /// Returns whether a commit would return no blocks.
    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.load(Relaxed) == 0
    }
}

/// Number of blocks that wait for a commit.
#[cfg(test)]
impl Pending {
    pub(crate) fn blocks(&self) -> extant_units::Blocks {
        extant_units::Blocks::new(self.blocks.load(Relaxed))
    }
}
