//! A device with a base that is never written and private changes in memory.
//!
//! # Invariants
//! - The base is never written, but by [`CowDevice::write_through`].
//! - A changed block is stored as a whole. Of a block of zeros only that fact is stored.
//! - The memory of the changes stays within the limit, if there is one. A write that would exceed
//!   it fails; the blocks before the one that did not fit are changed, the others are not.
//!
//! # Locks
//! One lock protects the changes. It is held over reads of the base when a block is changed in
//! part.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_units::DevOff;
use parking_lot::RwLock;

use crate::device::{BlockDevice, check_range};
use crate::queue::Queueing;

/// Bytes of one entry of the changes: a page, and the usual block of a file system.
const BLOCK: usize = 4096;
const BLOCK_U64: u64 = BLOCK as u64;
/// Bytes of memory that an entry takes beside its content, with the free slots of the table.
const ENTRY: u64 = 64;

/// A writable device over a base that it never writes. Dropping it drops the changes. It serves to
/// read a dirty image as it would be after a replay, and to rebuild the states that a power cut
/// leaves.
pub struct CowDevice<D> {
    base: D,
    changes: RwLock<Changes>,
    limit: u64,
    read_only: AtomicBool,
}

impl<D: fmt::Debug> fmt::Debug for CowDevice<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CowDevice")
            .field("base", &self.base)
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Changes {
    blocks: HashMap<u64, Block>,
    /// Bytes of content of all blocks that are not zeros.
    bytes: u64,
}

/// A changed block.
enum Block {
    Zeros,
    Bytes(Box<[u8]>),
}

impl Changes {
    fn memory(&self) -> u64 {
        self.bytes + self.blocks.len() as u64 * ENTRY
    }

    /// Stores `bytes` as block `index`, within `limit`.
    fn put(&mut self, index: u64, bytes: &[u8; BLOCK], limit: u64) -> io::Result<()> {
        let zeros = bytes.iter().all(|&byte| byte == 0);
        if let Some(Block::Bytes(old)) = self.blocks.get_mut(&index) {
            if zeros {
                self.blocks.insert(index, Block::Zeros);
                debug_assert!(self.bytes >= BLOCK_U64, "the old content is counted");
                self.bytes -= BLOCK_U64;
            } else {
                old.copy_from_slice(bytes);
            }
            return Ok(());
        }
        let grows = ENTRY + if zeros { 0 } else { BLOCK_U64 };
        if self.memory() + grows > limit {
            let mib = limit >> 20;
            let what = format!("the changes kept in memory exceed their limit of {mib} MiB");
            return Err(io::Error::new(io::ErrorKind::OutOfMemory, what));
        }
        let no_memory = |_| io::Error::from(io::ErrorKind::OutOfMemory);
        self.blocks.try_reserve(1).map_err(no_memory)?;
        let block = if zeros {
            Block::Zeros
        } else {
            let mut copy = Vec::new();
            copy.try_reserve_exact(BLOCK).map_err(no_memory)?;
            copy.extend_from_slice(bytes);
            self.bytes += BLOCK_U64;
            Block::Bytes(copy.into_boxed_slice())
        };
        self.blocks.insert(index, block);
        Ok(())
    }
}

impl<D: BlockDevice> CowDevice<D> {
    /// A device that reads as `base` until it is written. The caller bounds how much is written.
    pub fn new(base: D) -> Self {
        Self::with_limit(base, u64::MAX)
    }

    /// A device whose changes take at most `limit` bytes of memory.
    pub fn with_limit(base: D, limit: u64) -> Self {
        Self {
            base,
            changes: RwLock::default(),
            limit,
            read_only: AtomicBool::new(false),
        }
    }

    /// Refuses writes from now on.
    pub fn freeze(&self) {
        self.read_only.store(true, Ordering::Release);
    }

    /// The device below.
    pub fn base(&self) -> &D {
        &self.base
    }

    /// The blocks that were written, in order: ranges of bytes of the device. They may have the
    /// content of the base again.
    pub fn changed(&self) -> Vec<Range<DevOff>> {
        let mut blocks: Vec<u64> = self.changes.read().blocks.keys().copied().collect();
        blocks.sort_unstable();
        let range = |index: u64| {
            let start = index * BLOCK_U64;
            DevOff::new(start)..DevOff::new(start + self.base_len(index) as u64)
        };
        blocks.into_iter().map(range).collect()
    }

    /// Lets `write` change the bytes of `range` on the base. They are no private change then, also
    /// where their neighbours in a block are.
    ///
    /// # Errors
    /// The range lies past the end, or the base fails.
    pub fn write_through(
        &self,
        range: Range<DevOff>,
        write: impl FnOnce(&D) -> io::Result<()>,
    ) -> io::Result<()> {
        let len = extant_units::index(range.end.since(range.start));
        check_range(range.start, len, self.base.len())?;
        let mut changes = self.changes.write();
        write(&self.base)?;
        for (index, inside, _) in pieces(range.start, len) {
            let mut bytes = [0; BLOCK];
            match changes.blocks.get(&index) {
                Some(Block::Bytes(changed)) => bytes.copy_from_slice(changed),
                Some(Block::Zeros) => {}
                None => continue,
            }
            let at = DevOff::new(index * BLOCK_U64 + inside.start as u64);
            self.base.read_at(at, &mut bytes[inside])?;
            changes.put(index, &bytes, self.limit)?;
        }
        Ok(())
    }

    /// Bytes of memory that the changes take.
    #[cfg(test)]
    fn memory(&self) -> u64 {
        self.changes.read().memory()
    }

    /// Bytes of block `index` that lie within the base: fewer than a block at its end.
    fn base_len(&self, index: u64) -> usize {
        let start = index * BLOCK_U64;
        debug_assert!(start < self.base.len(), "the range was checked");
        extant_units::index((self.base.len() - start).min(BLOCK_U64))
    }
}

/// The parts of blocks that `[offset, offset + len)` covers: block, range in the block, range in
/// the buffer.
fn pieces(
    offset: DevOff,
    len: usize,
) -> impl Iterator<Item = (u64, std::ops::Range<usize>, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == len {
            return None;
        }
        let at = offset.get() + done as u64;
        let inside = extant_units::index(at % BLOCK_U64);
        let piece = (BLOCK - inside).min(len - done);
        let item = (at / BLOCK_U64, inside..inside + piece, done..done + piece);
        done += piece;
        Some(item)
    })
}

impl<D: BlockDevice> BlockDevice for CowDevice<D> {
    fn len(&self) -> u64 {
        self.base.len()
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.base.read_at(offset, buf)?;
        let changes = self.changes.read();
        if changes.blocks.is_empty() {
            return Ok(());
        }
        for (block, inside, within) in pieces(offset, buf.len()) {
            match changes.blocks.get(&block) {
                Some(Block::Bytes(changed)) => buf[within].copy_from_slice(&changed[inside]),
                Some(Block::Zeros) => buf[within].fill(0),
                None => {}
            }
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        if self.is_read_only() {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        check_range(offset, buf.len(), self.base.len())?;
        let mut changes = self.changes.write();
        for (block, inside, within) in pieces(offset, buf.len()) {
            let mut bytes = [0; BLOCK];
            let have = self.base_len(block);
            match changes.blocks.get(&block) {
                _ if inside == (0..have) => {}
                Some(Block::Bytes(changed)) => bytes.copy_from_slice(changed),
                Some(Block::Zeros) => {}
                None => {
                    let at = DevOff::new(block * BLOCK_U64);
                    self.base.read_at(at, &mut bytes[..have])?;
                }
            }
            bytes[inside].copy_from_slice(&buf[within]);
            changes.put(block, &bytes, self.limit)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.base.counters()
    }

    fn queueing(&self, depth: usize) -> Queueing {
        self.base.queueing(depth).through_wrapper()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn changes_stay_private_and_cross_blocks() {
        let bytes: Vec<u8> = (0..20_000u32).map(|i| i.to_le_bytes()[0]).collect();
        let base = Arc::new(MemoryDevice::from_bytes(&bytes));
        let one = CowDevice::new(base.clone());
        one.write_at(DevOff::new(5000), &[9; 7000]).unwrap();
        one.write_at(DevOff::new(19_990), &[7; 10]).unwrap();
        let mut expected = bytes.clone();
        expected[5000..12_000].fill(9);
        expected[19_990..].fill(7);
        let mut all = vec![0; 20_000];
        one.read_at(DevOff::ZERO, &mut all).unwrap();
        assert_eq!(all, expected);
        let mut middle = [0; 9000];
        one.read_at(DevOff::new(4000), &mut middle).unwrap();
        assert_eq!(middle, expected[4000..13_000]);
        assert_eq!(base.to_bytes(), bytes);
        assert_eq!(one.memory(), 3 * (BLOCK_U64 + ENTRY));
        // The last block is shorter, as the base is.
        let changed = [(4096, 8192), (8192, 12_288), (16_384, 20_000)];
        let changed = changed.map(|(start, end)| DevOff::new(start)..DevOff::new(end));
        assert_eq!(one.changed(), changed);
        assert!(one.write_at(DevOff::new(19_999), &[0; 2]).is_err());
        one.freeze();
        let refused = one.write_at(DevOff::ZERO, &[1]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ReadOnlyFilesystem);
    }

    #[test]
    fn writes_through_show_beside_private_changes() {
        let base = Arc::new(MemoryDevice::from_bytes(&vec![1; 12_288]));
        let one = CowDevice::new(base.clone());
        one.write_at(DevOff::new(100), &[2; 10]).unwrap();
        one.write_at(DevOff::new(4096), &[0; 4096]).unwrap();
        let range = DevOff::new(105)..DevOff::new(5000);
        let write = |base: &Arc<MemoryDevice>| base.write_at(DevOff::new(105), &[3; 4895]);
        one.write_through(range, write).unwrap();
        let mut all = vec![0; 12_288];
        one.read_at(DevOff::ZERO, &mut all).unwrap();
        let mut expected = vec![1; 12_288];
        expected[100..105].fill(2);
        expected[4096..8192].fill(0);
        expected[105..5000].fill(3);
        assert_eq!(all, expected);
        assert_eq!(base.to_bytes()[104..106], [1, 3]);
        let past = DevOff::new(12_000)..DevOff::new(12_289);
        assert!(one.write_through(past, |_| Ok(())).is_err());
    }

    #[test]
    fn zeros_are_shared_and_the_rest_is_limited() {
        let base = MemoryDevice::from_bytes(&vec![3; 4 << 20]);
        let one = CowDevice::with_limit(base, 1 << 20);
        one.write_at(DevOff::new(100), &vec![0; 3 << 20]).unwrap();
        assert!(one.memory() < 100_000, "{}", one.memory());
        let mut some = [1; 200];
        one.read_at(DevOff::ZERO, &mut some).unwrap();
        assert_eq!([some[99], some[100]], [3, 0]);
        let refused = one.write_at(DevOff::ZERO, &vec![5; 2 << 20]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "the changes kept in memory exceed their limit of 1 MiB"
        );
        assert!(one.memory() <= 1 << 20);
        // Changed blocks can be changed in place; zeros free their memory.
        one.write_at(DevOff::ZERO, &[6; BLOCK]).unwrap();
        one.write_at(DevOff::ZERO, &[0; 16 * BLOCK]).unwrap();
        one.write_at(DevOff::new(1 << 20), &[8; 8 * BLOCK]).unwrap();
    }
}
