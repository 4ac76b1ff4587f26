//! REVOKE: of all copies in a log, those that are written: the last one of each block, unless a
//! later transaction revoked it (J28).

use std::collections::HashMap;

use extant_disk::damage::JournalDamage;
use extant_units::{Pblk, Tid};

use super::reader::LogReader;
use super::scan::{LoggedCopy, Scan};
use crate::error::JournalError;
use crate::hash::NumberHash;

/// The copies to be written, and the revokes that decided about them.
pub(super) struct LastCopies {
    /// The last copy of each block that was not revoked, in the order of the blocks.
    pub(super) copies: Vec<LoggedCopy>,
    /// Blocks whose last copy was revoked.
    pub(super) revoked: u64,
    /// The last revoke of each block that has copies. It voids the copies of its own transaction
    /// and of earlier ones.
    revokes: HashMap<u64, Tid, NumberHash>,
}

impl LastCopies {
    /// Chooses the copies to be written.
    pub(super) fn choose(reader: &LogReader<'_>, scan: &Scan) -> Result<Self, JournalError> {
        let mut last: HashMap<u64, LoggedCopy, NumberHash> = HashMap::default();
        for copy in &scan.copies {
            last.insert(copy.target.get(), *copy);
        }
        let mut chosen = Self {
            copies: Vec::new(),
            revoked: 0,
            revokes: HashMap::default(),
        };
        let mut block = reader.buffer();
        for &(at, tid) in &scan.revoke_blocks {
            reader.read(at, &mut block)?;
            let targets = reader
                .format
                .revokes(&block)
                .map_err(|error| JournalDamage::LogBlock { at, error })?;
            for target in targets.map(Pblk::get) {
                if last.contains_key(&target) {
                    // Revoke blocks are in log order: a later revoke voids more copies.
                    chosen.revokes.insert(target, tid);
                }
            }
        }
        let all = last.len();
        let mut copies: Vec<LoggedCopy> = last.into_values().collect();
        copies.retain(|copy| !chosen.is_void(copy));
        chosen.revoked = (all - copies.len()) as u64;
        chosen.replace(copies);
        Ok(chosen)
    }

    /// Returns whether `copy` was revoked.
    pub(super) fn is_void(&self, copy: &LoggedCopy) -> bool {
        let revoke = self.revokes.get(&copy.target.get());
        revoke.is_some_and(|&tid| !copy.tid.is_after(tid))
    }

    /// Sets the copies, in any order, one for each block at most.
    pub(super) fn replace(&mut self, mut copies: Vec<LoggedCopy>) {
        copies.sort_unstable_by_key(|copy| copy.target);
        debug_assert!(
            copies.windows(2).all(|two| two[0].target < two[1].target),
            "J29: one copy of each block is written, so that order does not matter"
        );
        debug_assert!(
            !copies.iter().any(|copy| self.is_void(copy)),
            "J28: no revoked copy is written"
        );
        self.copies = copies;
    }
}
