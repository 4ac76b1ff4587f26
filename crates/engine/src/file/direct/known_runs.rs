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

use crate::file::mapping::iomap_ops::FileOps;
use crate::inode::Inode;
use crate::map::{self, MapState};
use crate::types::error::Result;

/// As many as can be searched faster than the map answers.
const MOST: usize = 16;

/// The known runs of one file.
#[derive(Default)]
pub(super) struct KnownRuns {
    /// The file that they are of.
    inode: Weak<Inode>,
    /// By offset.
    known: Vec<Iomap>,
    /// The run to replace next, if there is no room: each in its turn.
    next: usize,
}

impl KnownRuns {
    /// Says that the next requests are for `inode`: forgets the runs of another file.
    #[inline]
    pub(super) fn turn_to(&mut self, inode: &Arc<Inode>) {
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
    pub(super) fn find(
        &mut self,
        ops: &FileOps<'_>,
        lblk: Lblk,
        count: u32,
    ) -> Result<Option<DevOff>> {
        let bs = ops.fs.layout.block_size;
        let (pos, len) = (bs.pos(lblk), u64::from(count) * bs.bytes_u64());
        let sequence = ops.inode.known.disk_sequence();
        let known = self
            .runs_up_to(pos)
            .checked_sub(1)
            .map(|at| &self.known[at]);
        let has = |run: &&Iomap| run.cookie == sequence && run.clamp(pos, len) == len;
        if let Some(run) = known.filter(has) {
            return Ok(run.device_at(pos));
        }
        let found = map::lookup(ops.fs, ops.inode, lblk, u32::MAX)?;
        let MapState::Written(_) = found.state else {
            return Ok(None);
        };
        let run = ops.describe(&found)?;
        let at = run.device_at(pos).filter(|_| found.len >= count);
        self.remember(run);
        Ok(at)
    }

    /// The number of runs that begin at `pos` or before.
    #[inline]
    fn runs_up_to(&self, pos: Pos) -> usize {
        self.known.partition_point(|run| run.offset <= pos)
    }

    /// Remembers `run`. It replaces those that it covers and those of another map, and one more
    /// where there is no room.
    fn remember(&mut self, run: Iomap) {
        self.known.retain(|old| {
            old.cookie == run.cookie && !(run.offset <= old.offset && old.end() <= run.end())
        });
        if self.known.len() >= MOST {
            self.known.remove(self.next % MOST);
            self.next = self.next.wrapping_add(1);
        }
        let at = self.runs_up_to(run.offset);
        self.known.insert(at, run);
        debug_assert!(self.known.len() <= MOST, "memory is bounded");
    }
}
