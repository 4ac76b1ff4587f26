//! A file of four blocks with a cache, a map and a device: as little as shows what the range lock
//! is for.

use std::sync::Arc;

use extant_range_lock::{ByteRange, FileLock, RangeLock, Step};
use extant_sync::RwLock;
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use shuttle::thread::yield_now;

/// Blocks of the file.
const BLOCKS: usize = 4;
/// Bytes of a block: two cells of one sector.
const BLOCK: u64 = 1024;
const CELL: u64 = 512;

/// Content that another file put into a block that was freed.
const FOREIGN: u8 = 0xbb;

/// A folio of one block: its two cells, while they are cached.
type Folio = Option<[u8; 2]>;

/// Which step of an operation on the file is left out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    None,
    /// One of the range lock's own.
    Lock(Step),
    /// The overwrite asks before it has the folio.
    AsksTooEarly,
    /// The overwrite reads the size before it asks.
    ReadsSizeFirst,
    /// The overwrite does not ask about the file's lock.
    IgnoresFileLock,
    /// The truncation cuts the file before it has locked the range.
    CutsTooEarly,
}

pub(crate) struct File {
    pub(crate) inode: RwLock<()>,
    locks: Arc<RangeLock>,
    fault: Fault,
    /// In cells.
    size: AtomicU64,
    folios: [Mutex<Folio>; BLOCKS],
    device: [Mutex<[u8; 2]>; BLOCKS],
    /// A fault that was seen: see `World` for why it is noted.
    fault_seen: AtomicBool,
}

/// A lock that no thread holds.
struct Unrelated;

impl FileLock for Unrelated {
    fn is_exclusive(&self) -> bool {
        false
    }
}

fn block_of(cell: u64) -> usize {
    usize::try_from(cell / 2).unwrap()
}

fn bytes_of(cell: u64) -> ByteRange {
    ByteRange::from_len(cell * CELL, CELL).unwrap()
}

impl File {
    /// `size` cells that hold 1; the first `cached` blocks are in the cache.
    pub(crate) fn new(size: u64, cached: usize, fault: Fault) -> Arc<Self> {
        let locks = match fault {
            Fault::Lock(step) => RangeLock::omitting(step),
            _ => RangeLock::default(),
        };
        let cells = |block: usize| {
            let first = 2 * block as u64;
            [u8::from(first < size), u8::from(first + 1 < size)]
        };
        Arc::new(Self {
            inode: RwLock::default(),
            locks: Arc::new(locks),
            fault,
            size: AtomicU64::new(size),
            folios: std::array::from_fn(|block| Mutex::new((block < cached).then(|| cells(block)))),
            device: std::array::from_fn(|block| Mutex::new(cells(block))),
            fault_seen: AtomicBool::new(false),
        })
    }

    /// The size moved under the EOF lock, another file's block was written, or an operation on the
    /// whole file saw half of a write.
    pub(crate) fn note_fault(&self) {
        self.fault_seen.store(true, Ordering::SeqCst);
    }

    pub(crate) fn has_fault(&self) -> bool {
        self.fault_seen.load(Ordering::SeqCst)
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::SeqCst)
    }

    /// A cell that is cached.
    pub(crate) fn cached(&self, cell: u64) -> Option<u8> {
        let folio = *self.folios[block_of(cell)].lock().unwrap();
        folio.map(|cells| cells[usize::from(cell % 2 == 1)])
    }

    pub(crate) fn stored(&self, cell: u64) -> u8 {
        self.device[block_of(cell)].lock().unwrap()[usize::from(cell % 2 == 1)]
    }

    /// Cuts the file to `size` cells: lock to infinity, which waits out what is in flight; zero the
    /// rest of the last block; lower the size; drop the folios behind it; free their blocks.
    pub(crate) fn truncate(&self, size: u64) {
        let shared = self.inode.read();
        let from = size * CELL / BLOCK * BLOCK;
        let early = self.fault == Fault::CutsTooEarly;
        if early {
            self.cut(size);
        }
        let held = self.locks.lock_eof(from, &shared);
        if !early && self.size() > size {
            self.cut(size);
        }
        drop(held);
    }

    fn cut(&self, size: u64) {
        if size % 2 == 1
            && let Some(cells) = &mut *self.folios[block_of(size)].lock().unwrap()
        {
            cells[1] = 0;
        }
        yield_now();
        self.size.store(size, Ordering::SeqCst);
        for block in block_of(size + 1)..BLOCKS {
            *self.folios[block].lock().unwrap() = None;
        }
        for block in block_of(size + 1)..BLOCKS {
            *self.device[block].lock().unwrap() = [FOREIGN; 2];
        }
    }

    /// The fast path of a small write: the folio's lock alone. False if it may not.
    pub(crate) fn overwrite(&self, cell: u64, with: u8) -> bool {
        let is_locked = || match self.fault {
            Fault::IgnoresFileLock => self.locks.is_locked(bytes_of(cell), &Unrelated),
            _ => self.locks.is_locked(bytes_of(cell), &self.inode),
        };
        let early = (self.fault == Fault::AsksTooEarly).then(is_locked);
        let mut folio = self.folios[block_of(cell)].lock().unwrap();
        let Some(cells) = &mut *folio else {
            return false;
        };
        let size_first = self.fault == Fault::ReadsSizeFirst && cell < self.size();
        if early.unwrap_or_else(is_locked) || (!size_first && cell >= self.size()) {
            return false;
        }
        cells[usize::from(cell % 2 == 1)] = with;
        true
    }

    /// The fast path of an append within a cached block. Returns where it went.
    pub(crate) fn append(&self, with: u8) -> Option<u64> {
        let cell = self.size();
        let from = cell * CELL / BLOCK * BLOCK;
        let held = self.locks.try_lock_eof(from, &self.inode)?;
        if self.size() != cell || block_of(cell) >= BLOCKS {
            return None;
        }
        let mut folio = self.folios[block_of(cell)].lock().unwrap();
        let cells = folio.as_mut()?;
        cells[usize::from(cell % 2 == 1)] = with;
        if self.size() != cell {
            self.note_fault();
        }
        self.size.store(cell + 1, Ordering::SeqCst);
        drop(folio);
        drop(held);
        Some(cell)
    }

    /// A request of a direct queue for one block, by a slot. False if it may not.
    pub(crate) fn write_direct(&self, block: usize, with: u8) -> bool {
        let range = ByteRange::from_len(block as u64 * BLOCK, BLOCK).unwrap();
        let Some(held) = RangeLock::try_lock_slot(&self.locks, range, &self.inode) else {
            return false;
        };
        let inside = 2 * block as u64 + 2 <= self.size();
        if !inside || self.folios[block].lock().unwrap().is_some() {
            return false;
        }
        for cell in 0..2 {
            yield_now();
            let mut device = self.device[block].lock().unwrap();
            if device[cell] == FOREIGN {
                self.note_fault();
            }
            device[cell] = with;
        }
        drop(held);
        true
    }

    /// An operation on the file as a whole: lock it, drain, write the cache back, drop the cache.
    pub(crate) fn collapse(&self) {
        self.alone(|| self.write_and_drop());
    }

    /// Runs `work` with the file locked and drained.
    pub(crate) fn alone(&self, work: impl FnOnce()) {
        let exclusive = self.inode.write();
        RangeLock::drain(|| Some(&self.locks), &exclusive);
        work();
        drop(exclusive);
    }

    fn write_and_drop(&self) {
        for block in 0..BLOCKS {
            let folio = *self.folios[block].lock().unwrap();
            if let Some(cells) = folio {
                *self.device[block].lock().unwrap() = cells;
            }
        }
        yield_now();
        for folio in &self.folios {
            *folio.lock().unwrap() = None;
        }
    }
}
