//! Blocks that are held for data which is written before they are allocated.
//!
//! New files that are written together ([`crate::file`]) get their blocks in this order: the
//! allocator holds a run in memory, the data is written there, and then one transaction marks the
//! blocks and enters them. On disk they are free until that transaction is durable, so a crash
//! before it leaves nothing to show.
//!
//! # Invariants
//! * Only reserved blocks are held: the owner has a reservation for as many, and no other request
//!   counts on them. Held blocks count as free and as reserved (J12).
//! * Held blocks are marked or released: a drop releases the rest.

use std::sync::Arc;

use extant_jbd2::Handle;
use extant_units::{Blocks, Pblk};

use crate::state::alloc::{AllocatorCore, Run};
use crate::types::error::{Error, Result};

/// A run that no request gets until this is dropped.
#[must_use]
pub(crate) struct HeldBlocks {
    core: Arc<AllocatorCore>,
    /// Blocks that are still held.
    run: Run,
}

impl HeldBlocks {
    /// Holds `min` to `want` blocks in one run near `goal`; `None` if there is no such run.
    ///
    /// # Errors
    /// A bitmap cannot be read, or is damaged.
    pub(super) fn find(
        core: &Arc<AllocatorCore>,
        goal: Pblk,
        (min, want): (u64, u64),
    ) -> Result<Option<Self>> {
        let run = core.find_and_hold(goal, (min, want))?;
        debug_assert!(
            run.is_none_or(|run| (min..=want).contains(&run.len.get())),
            "{run:?} for {min} to {want} blocks"
        );
        Ok(run.map(|run| Self {
            core: Arc::clone(core),
            run,
        }))
    }

    /// Blocks that are held.
    pub(crate) fn run(&self) -> Run {
        self.run
    }

    /// Releases what is held behind the first `len` blocks.
    pub(crate) fn truncate(&mut self, len: Blocks) {
        debug_assert!(len <= self.run.len, "no more stays than is held");
        if let Some(rest) = self.run.len.checked_sub(len).filter(|rest| !rest.is_zero()) {
            self.run.len = len;
            let start = self.run.start.plus(len.get());
            self.core.release_held(Run { start, len: rest });
        }
    }

    /// Marks the blocks as in use under `h`: two credits. They count as free until they are
    /// [used](MarkedBlocks::use_for) or marked as free again.
    ///
    /// # Errors
    /// The bitmap cannot be read, is damaged, or the journal has stopped. Nothing is marked then.
    pub(crate) fn mark(mut self, h: &mut Handle) -> Result<MarkedBlocks> {
        debug_assert!(
            !self.run.len.is_zero(),
            "blocks are held until they are marked"
        );
        self.core.stats.alloc_calls.bump();
        h.telling(|h| self.core.mark_held(h, self.run))?;
        self.core.groups.shrink_maps();
        let core = Arc::clone(&self.core);
        self.run.len = Blocks::ZERO;
        Ok(MarkedBlocks { core })
    }
}

impl Drop for HeldBlocks {
    fn drop(&mut self) {
        if !self.run.len.is_zero() {
            self.core.release_held(self.run);
        }
    }
}

/// Says that blocks which were held have been marked.
pub(crate) struct MarkedBlocks {
    core: Arc<AllocatorCore>,
}

impl MarkedBlocks {
    /// Counts `len` of them as used. The caller consumes as much of a reservation.
    pub(crate) fn use_for(&self, len: Blocks) {
        self.core.counts.used(len.get());
        self.core.stats.alloc_blocks.add(len.get());
    }

    /// Marks `run`, a part of them that was not used, as free again under the same handle. It
    /// leaves the counts if it stays marked, or if its group went out of use.
    ///
    /// # Errors
    /// As [`HeldBlocks::mark`].
    pub(crate) fn give_back(&self, h: &mut Handle, run: Run) -> Result<()> {
        let (group, _) = self.core.range_in_group(run).ok_or(Error::Invalid)?;
        let counts = h.telling(|h| self.core.unmark(h, group, run));
        if !matches!(counts, Ok(true)) {
            self.core.counts.lost(run.len.get());
        }
        counts.map(drop)
    }
}
