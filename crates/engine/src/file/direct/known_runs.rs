//! The runs of a file's blocks that a queue remembers from one request to the next.
//!
//! A remembered run is valid while the sequence of the map on disk is what it was, one word that is
//! read without a lock. Reservations elsewhere in the file do not move it. The caller holds the
//! range that it asks for, with nothing of it cached, so no other thread changes the map there.
//!
//! A queue that is idle keeps the runs, and no reference to the file: the inode may leave memory. A
//! pointer without a reference keeps its memory from becoming another inode, so the comparison of
//! addresses tells files apart.

use std::ptr;
use std::sync::{Arc, Weak};

use extant_iomap::Iomap;
use extant_units::{DevOff, Lblk, Pos};

use crate::file::mapping::iomap_ops::FileContext;
use crate::map;
use crate::state::inode::Inode;
use crate::state::map::MapState;
use crate::types::error::Result;

/// Runs that are remembered: as many as can be searched faster than the map answers.
const MAX_RUNS: usize = 16;

/// The known runs of one file.
#[derive(Default)]
pub(in crate::file) struct KnownRuns {
    /// The file that they are of.
    inode: Weak<Inode>,
    /// By offset.
    runs: Vec<Iomap>,
    /// The run to replace next, if there is no room: each in its turn.
    next: usize,
}

impl KnownRuns {
    /// Prepares for requests to `inode`: forgets the runs of another file.
    #[inline]
    pub(in crate::file) fn switch_file(&mut self, inode: &Arc<Inode>) {
        if !ptr::eq(self.inode.as_ptr(), Arc::as_ptr(inode)) {
            *self = Self {
                inode: Arc::downgrade(inode),
                ..Self::default()
            };
        }
    }

    /// The first of the `count` blocks from `lblk` on, if all have their data and lie in one run.
    ///
    /// # Errors
    /// The map cannot be read.
    pub(in crate::file) fn find(
        &mut self,
        cx: &FileContext<'_>,
        lblk: Lblk,
        count: u32,
    ) -> Result<Option<DevOff>> {
        let bs = cx.fs.layout.block_size;
        let (pos, len) = (bs.pos(lblk), u64::from(count) * bs.bytes_u64());
        let sequence = cx.inode.known.disk_sequence();
        let known = self.runs_up_to(pos).checked_sub(1).map(|at| &self.runs[at]);
        let has = |run: &&Iomap| run.cookie == sequence && run.clamp(pos, len) == len;
        if let Some(run) = known.filter(has) {
            return Ok(run.device_at(pos));
        }
        let found = map::lookup(cx.fs, cx.inode, lblk, u32::MAX)?;
        let MapState::Written(_) = found.state else {
            return Ok(None);
        };
        let run = cx.to_iomap(&found)?;
        let at = run.device_at(pos).filter(|_| found.len >= count);
        self.remember(run);
        Ok(at)
    }

    /// The number of runs that begin at `pos` or before.
    #[inline]
    fn runs_up_to(&self, pos: Pos) -> usize {
        self.runs.partition_point(|run| run.offset <= pos)
    }

    /// Remembers `run`. It replaces those that it covers and those of another map, and one more
    /// where there is no room.
    fn remember(&mut self, run: Iomap) {
        self.runs.retain(|old| {
            old.cookie == run.cookie && !(run.offset <= old.offset && old.end() <= run.end())
        });
        if self.runs.len() >= MAX_RUNS {
            self.runs.remove(self.next % MAX_RUNS);
            self.next = self.next.wrapping_add(1);
        }
        let at = self.runs_up_to(run.offset);
        self.runs.insert(at, run);
        debug_assert!(self.runs.len() <= MAX_RUNS, "memory is bounded");
    }
}

#[cfg(test)]
mod tests {
    use extant_iomap::IomapKind;

    use super::*;

    /// A run of `blocks` of the map with this `cookie`.
    fn run(cookie: u64, blocks: std::ops::Range<u64>) -> Iomap {
        Iomap {
            offset: Pos::new(blocks.start * 4096),
            length: (blocks.end - blocks.start) * 4096,
            kind: IomapKind::Mapped(DevOff::new(1 << 30)),
            new: false,
            cookie,
        }
    }

    /// The first blocks of what is known.
    fn firsts(runs: &KnownRuns) -> Vec<u64> {
        let known = runs.runs.iter();
        known.map(|run| run.offset.get() / 4096).collect()
    }

    #[test]
    fn a_run_replaces_what_it_covers_and_what_another_map_said() {
        let mut runs = KnownRuns::default();
        for blocks in [20..30, 0..10, 40..50, 60..70] {
            runs.remember(run(1, blocks));
        }
        assert_eq!(firsts(&runs), [0, 20, 40, 60]);
        // Equal to one, longer than another at both ends, and beside the others.
        runs.remember(run(1, 20..30));
        runs.remember(run(1, 39..51));
        assert_eq!(firsts(&runs), [0, 20, 39, 60]);
        // Parts of what is known replace nothing.
        runs.remember(run(1, 5..12));
        runs.remember(run(1, 55..65));
        assert_eq!(firsts(&runs), [0, 5, 20, 39, 55, 60]);
        runs.remember(run(2, 100..110));
        assert_eq!(firsts(&runs), [100]);
    }

    #[test]
    fn a_full_memory_gives_up_each_run_in_its_turn() {
        let mut runs = KnownRuns::default();
        let all = MAX_RUNS as u64;
        for first in 0..all {
            runs.remember(run(1, first..first + 1));
        }
        assert_eq!(runs.runs.len(), MAX_RUNS);
        for first in all..3 * all {
            runs.remember(run(1, first..first + 1));
            assert_eq!(runs.runs.len(), MAX_RUNS);
        }
        // Of those that were there, the first went, then the one that was third, and so on.
        let mut expected: Vec<u64> = (0..all).collect();
        for (turn, first) in (all..3 * all).enumerate() {
            expected.remove(turn % MAX_RUNS);
            expected.push(first);
        }
        assert_eq!(firsts(&runs), expected);
    }
}
