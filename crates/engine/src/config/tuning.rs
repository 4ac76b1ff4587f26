//! The switches of the engine: every optimisation that can be measured against its absence.

use extant_blockdev::memory_share;
use extant_extent_io_tree::{ClearProbe, TreeTuning};
use extant_failpoint::ActiveFailpoint;
use extant_units::at_most_usize;

use super::memory_budget::page_cache_budget;

/// The part of a bounded memory that metadata gets at most.
const METADATA_PART: u64 = 4;
/// The part of bounded memory that names may have: one in so many.
const NAMES_PART: u64 = 16;
/// The memory for names of a small volume, for each of its inodes.
const NAME_BYTES_PER_INODE: u64 = 192;
/// The memory for names of the smallest volumes.
const LEAST_NAME_BYTES: u64 = 64 << 10;

/// The data path of a regular file's buffered I/O. `file/data_path.rs` chooses it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BufferedPath {
    /// Range mappings and large folios (`buffered_iomap`).
    #[default]
    Iomap,
    /// A record per block (`nobuffered_iomap`).
    BufferHead,
}

/// Every switch, with its fast value as the default. Fixed for the life of a mount.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tuning {
    /// The path of buffered reads and writes.
    pub buffered_path: BufferedPath,
    /// The largest folio is `4096 << max_folio_order` bytes: 0..=9.
    pub max_folio_order: u8,
    /// Buffer-head path: walks over a folio's records end with the range of a write, if no record
    /// behind it can matter. Off: they always go round.
    pub stop_at_range_end: bool,
    /// Buffer-head path: every write that extends a file stores its inode, under a handle of its
    /// own. Off: only where writeback would not move the size on disk.
    pub dirty_inode_on_append: bool,
    /// New small files that are written back at the same time get one run of blocks, one request to
    /// the device and one handle. Off: each is written by itself.
    pub joint_writeback: bool,
    /// Clearing all bits of a part of the first or last record of an I/O tree trims that record.
    /// Off: the record is cut in two, and the part removed.
    pub trim_on_clear: bool,
    /// Direct requests of a queue lock short ranges by lock slots. Off: by records in the file's
    /// I/O tree.
    pub lock_slots: bool,
    /// A long write unlocks what it has passed, as it proceeds. Off: all of its range at its end.
    pub release_fronts: bool,
    /// Called with the time that each clear in an I/O tree takes: for measuring.
    pub clear_probe: Option<ClearProbe>,
    /// The page cache's budget in bytes; `None` takes a share of the host's memory.
    pub page_cache_bytes: Option<u64>,
    /// The metadata cache's budget in bytes. An unused inode stays in memory for each 4 KiB of it.
    pub block_cache_bytes: u64,
    /// The budget of the cache of names in bytes, 85 for a place of a name of up to 48; 0 switches
    /// it off. With six names for seven places, one in ten has left for others. The host backs a
    /// part of the memory when a name first falls there. A small volume takes what two names for
    /// each of its inodes need, as memory that was used before costs the time of clearing it.
    pub name_cache_bytes: u64,
    /// Upper bound of the memory of a journal replay in bytes; `None` takes a quarter of the
    /// host's.
    pub replay_bytes: Option<u64>,
    /// Threads that write dirty data back. With none, a thread that needs clean memory does it, and
    /// deferred times are stored only with evictions, by syncs and by the unmount.
    pub flushers: u8,
    /// Each start of a handle first commits earlier changes: slow, for tests of the order between
    /// handles.
    pub commit_each_handle: bool,
    /// The failpoint that a test switches on. A shipped build has none.
    pub failpoint: ActiveFailpoint,
}

impl Tuning {
    /// Decides now what is left to the host's memory: a process that confines itself cannot ask for
    /// it later.
    pub fn measure_memory(&mut self) {
        self.page_cache_bytes.get_or_insert_with(page_cache_budget);
        let share = memory_share();
        self.replay_bytes.get_or_insert(share);
        // Where memory is short, names have what metadata has of a bounded memory.
        self.name_cache_bytes = self.name_cache_bytes.min(share / METADATA_PART);
    }

    /// Bounds the memory of file data, metadata and names together, and that of a journal's replay
    /// before there are any, to `bytes` each.
    pub fn bound_memory(&mut self, bytes: u64) {
        self.block_cache_bytes = self.block_cache_bytes.min(bytes / METADATA_PART);
        self.name_cache_bytes = self.name_cache_bytes.min(bytes / NAMES_PART);
        self.page_cache_bytes = Some(bytes - self.block_cache_bytes - self.name_cache_bytes);
        self.replay_bytes = Some(bytes);
    }

    /// The memory for names of a volume that has so many inodes when it is mounted, in bytes.
    pub(crate) fn name_bytes(&self, inodes: u32) -> usize {
        let all = (u64::from(inodes) * NAME_BYTES_PER_INODE).max(LEAST_NAME_BYTES);
        at_most_usize(self.name_cache_bytes.min(all))
    }

    /// The switches of each I/O tree: of those that lock ranges, and of those of delayed blocks.
    pub(crate) fn tree(&self) -> TreeTuning {
        TreeTuning {
            trim_on_clear: self.trim_on_clear,
            clear_probe: self.clear_probe,
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            buffered_path: BufferedPath::default(),
            max_folio_order: 9,
            stop_at_range_end: true,
            dirty_inode_on_append: false,
            joint_writeback: true,
            trim_on_clear: true,
            lock_slots: true,
            release_fronts: true,
            clear_probe: None,
            page_cache_bytes: None,
            block_cache_bytes: 64 << 20,
            name_cache_bytes: 96 << 20,
            replay_bytes: None,
            flushers: 2,
            commit_each_handle: false,
            failpoint: ActiveFailpoint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_what_a_small_volume_can_need_and_no_more_than_they_may() {
        let tuning = Tuning::default();
        assert_eq!(tuning.name_bytes(16), 64 << 10);
        assert_eq!(tuning.name_bytes(4096), 4096 * 192);
        assert_eq!(tuning.name_bytes(u32::MAX), 96 << 20);
        let none = Tuning {
            name_cache_bytes: 0,
            ..tuning
        };
        assert_eq!(none.name_bytes(4096), 0);
    }

    #[test]
    fn bounded_memory_is_divided_and_not_exceeded() {
        for bytes in [16 << 20, 100 << 20, 1 << 40] {
            let mut tuning = Tuning::default();
            tuning.bound_memory(bytes);
            let data = tuning.page_cache_bytes.unwrap();
            assert_eq!(
                data + tuning.block_cache_bytes + tuning.name_cache_bytes,
                bytes
            );
            assert!(data > bytes / 2);
        }
    }
}
