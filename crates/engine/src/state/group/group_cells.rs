//! The cells of all groups: a list that grows and never moves.
//!
//! # Invariants
//! - The first segment holds the groups of the mount. Each later segment is as long as all before
//!   it, and is made at once, of cells that no group has yet.
//! - A group's cell is filled before the group is counted, with release; readers acquire the count.
//!
//! # Concurrency
//! Readers take no lock. One thread at a time adds groups.

use extant_sync::OnceLock;
use extant_sync::atomic::Ordering::{Acquire, Relaxed, Release};
use extant_sync::atomic::{AtomicU32, AtomicU64};

use extant_disk::group_desc::GroupDesc;
use extant_sync::Mutex;
use extant_units::{Group, Pblk, exact_u32};

use super::group_state::{GroupState, Hints};

/// Segments: enough for 2^32 groups, of which one was there at the mount.
const SEGMENTS: usize = 33;

/// One group.
pub(crate) struct GroupCell {
    inode_table: AtomicU64,
    pub(crate) hints: Hints,
    pub(crate) state: Mutex<GroupState>,
}

/// See the module's header.
pub(crate) struct GroupCells {
    /// Groups at the mount.
    first: u32,
    count: AtomicU32,
    segments: [OnceLock<Box<[GroupCell]>>; SEGMENTS],
}

impl GroupCell {
    /// The cell of a group whose descriptor is `desc`.
    pub(crate) fn new(desc: GroupDesc) -> Self {
        let cell = Self::vacant();
        cell.fill(desc);
        cell
    }

    fn vacant() -> Self {
        Self {
            inode_table: AtomicU64::new(0),
            hints: Hints::default(),
            state: Mutex::new(GroupState {
                desc: GroupDesc::default(),
                map: None,
                trimmed: None,
                first_free: 0,
                made: 0,
                broken: false,
            }),
        }
    }

    fn fill(&self, desc: GroupDesc) {
        self.inode_table.store(desc.inode_table.get(), Relaxed);
        self.hints.usable.store(desc.free_blocks, Relaxed);
        self.hints.longest.store(desc.free_blocks, Relaxed);
        self.hints.free_inodes.store(desc.free_inodes, Relaxed);
        self.hints.used_dirs.store(desc.used_dirs, Relaxed);
        self.state.lock().desc = desc;
    }

    /// Returns the first block of the group's inode table. It never moves.
    pub(crate) fn inode_table(&self) -> Pblk {
        Pblk::new(self.inode_table.load(Relaxed))
    }
}

impl GroupCells {
    pub(crate) fn new(groups: Vec<GroupCell>) -> Self {
        let count = exact_u32(groups.len() as u64);
        Self {
            first: count,
            count: AtomicU32::new(count),
            segments: std::array::from_fn(|_| OnceLock::new()),
        }
        .with_first(groups)
    }

    fn with_first(self, groups: Vec<GroupCell>) -> Self {
        let [first, ..] = &self.segments;
        first.get_or_init(|| groups.into_boxed_slice());
        self
    }

    /// Number of groups.
    pub(crate) fn len(&self) -> u32 {
        self.count.load(Acquire)
    }

    /// The cell of `group`; `None` past the last.
    #[inline]
    pub(crate) fn get(&self, group: Group) -> Option<&GroupCell> {
        if group.get() >= self.len() {
            return None;
        }
        let (segment, at) = self.position(group);
        self.segments.get(segment)?.get()?.get(at)
    }

    /// The segment of `group`, and the place in it.
    #[inline]
    fn position(&self, group: Group) -> (usize, usize) {
        let (group, first) = (group.get(), self.first.max(1));
        match group.checked_div(first).filter(|times| *times > 0) {
            None => (0, group as usize),
            Some(times) => {
                let segment = times.ilog2();
                // At most `group`: a segment begins at `first` times a power of two up to `times`.
                (segment as usize + 1, (group - (first << segment)) as usize)
            }
        }
    }

    /// Adds a group behind the last one. The caller is the only one that adds groups.
    pub(crate) fn push(&self, desc: GroupDesc) {
        let count = self.len();
        let (segment, at) = self.position(Group::new(count));
        let Some(slot) = self.segments.get(segment) else {
            return;
        };
        let len = match segment {
            0 => self.first,
            later => self.first << (later - 1),
        };
        let cells = slot.get_or_init(|| (0..len).map(|_| GroupCell::vacant()).collect());
        if let Some(cell) = cells.get(at) {
            cell.fill(desc);
            self.count.store(count + 1, Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(table: u64) -> GroupDesc {
        GroupDesc {
            inode_table: Pblk::new(table),
            ..GroupDesc::default()
        }
    }

    #[test]
    fn added_groups_are_found_and_earlier_ones_stay() {
        for first in [1, 2, 3, 7] {
            let cells = GroupCells::new((0..first).map(|i| GroupCell::new(desc(i))).collect());
            let kept = cells.get(Group::new(0)).map(std::ptr::from_ref);
            for i in first..200 {
                assert!(cells.get(Group::new(exact_u32(i))).is_none());
                cells.push(desc(i));
            }
            assert_eq!(cells.len(), 200);
            for i in 0..200 {
                let cell = cells.get(Group::new(exact_u32(i))).unwrap();
                assert_eq!(cell.inode_table(), Pblk::new(i), "{first} at first");
            }
            assert_eq!(cells.get(Group::new(0)).map(std::ptr::from_ref), kept);
        }
    }
}
