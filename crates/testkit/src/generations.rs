//! A file of blocks with number, generation and checksum, in which torn and old blocks are found.
//!
//! # Concurrency
//! A writer locks its blocks, so the generations of a block are in order. Readers take no lock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::content;

/// The bytes of a block.
pub const SIZE: usize = 4096;
/// Number, generation and checksum.
const HEAD: usize = 24;

/// A block as its `generation` wrote it.
pub fn block(number: usize, generation: u64) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    let seed = (number as u64) << 40 | generation;
    bytes[HEAD..].copy_from_slice(&content::fill(seed, 0, SIZE - HEAD));
    bytes[..8].copy_from_slice(&(number as u64).to_le_bytes());
    bytes[8..16].copy_from_slice(&generation.to_le_bytes());
    let sum = sum(&bytes);
    bytes[16..HEAD].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let word = bytes.get(at..at + 8).and_then(|word| word.try_into().ok());
    word.map_or(0, u64::from_le_bytes)
}

/// The checksum of a block, over everything but itself.
fn sum(bytes: &[u8]) -> u64 {
    let words = (0..bytes.len()).step_by(8).filter(|&at| at != 16);
    words.fold(7, |sum: u64, at| {
        (sum ^ word(bytes, at))
            .wrapping_mul(0x100_0000_01b3)
            .rotate_left(23)
    })
}

/// Returns the generation of a block that is whole.
///
/// # Errors
/// The block is torn, or another block's bytes are there. The error says how it begins.
pub fn judge(number: usize, bytes: &[u8]) -> Result<u64, String> {
    let generation = word(bytes, 8);
    if bytes.len() == SIZE && word(bytes, 0) == number as u64 && word(bytes, 16) == sum(bytes) {
        return Ok(generation);
    }
    let begins = word(bytes, 0);
    Err(format!(
        "block {number} is torn: it begins as generation {generation} of block {begins}"
    ))
}

fn lock(last: &Mutex<u64>) -> MutexGuard<'_, u64> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The generations of all blocks, shared by writers and readers.
pub struct Blocks {
    /// Per block, the generation that was begun last. A writer holds the mutex while it writes.
    last: Vec<Mutex<u64>>,
    /// The newest generation that readers have to find.
    newest: Vec<AtomicU64>,
}

/// A writer's lock on some blocks.
pub struct WriteLock<'a> {
    blocks: &'a Blocks,
    first: usize,
    last: Vec<MutexGuard<'a, u64>>,
    /// The blocks in their next generations.
    pub bytes: Vec<u8>,
}

impl WriteLock<'_> {
    /// Ends the write: readers that begin later must find these generations, or newer ones.
    pub fn written(self) {
        for (newest, last) in self.blocks.newest[self.first..].iter().zip(&self.last) {
            newest.fetch_max(**last, Ordering::SeqCst);
        }
    }
}

impl Blocks {
    /// `count` blocks in generation 1.
    pub fn new(count: usize) -> Self {
        Self {
            last: (0..count).map(|_| Mutex::new(1)).collect(),
            newest: (0..count).map(|_| AtomicU64::new(1)).collect(),
        }
    }

    /// All blocks in their first generation.
    pub fn first_bytes(&self) -> Vec<u8> {
        let numbers = 0..self.last.len();
        numbers.flat_map(|number| block(number, 1)).collect()
    }

    /// Locks blocks `first..end` against other writers.
    pub fn lock(&self, first: usize, end: usize) -> WriteLock<'_> {
        let mut last: Vec<_> = self.last[first..end].iter().map(lock).collect();
        let mut bytes = Vec::with_capacity((end - first) * SIZE);
        for (number, generation) in (first..).zip(&mut last) {
            **generation += 1;
            bytes.extend(block(number, **generation));
        }
        WriteLock {
            blocks: self,
            first,
            last,
            bytes,
        }
    }

    /// The oldest generations that a reader of blocks `first..end` that begins now may find.
    pub fn least(&self, first: usize, end: usize) -> Vec<u64> {
        let newest = self.newest[first..end].iter();
        newest.map(|newest| newest.load(Ordering::SeqCst)).collect()
    }

    /// Judges the bytes that a reader found of blocks from `first` on. Returns their generations.
    ///
    /// # Errors
    /// A block is torn, or older than `least` says.
    pub fn judge(&self, first: usize, least: &[u64], bytes: &[u8]) -> Result<Vec<u64>, String> {
        let found = (first..).zip(least).zip(bytes.chunks(SIZE));
        let judged = found.map(|((number, least), bytes)| match judge(number, bytes)? {
            old if old < *least => Err(format!(
                "block {number} is of generation {old}, after {least}"
            )),
            generation => Ok(generation),
        });
        judged.collect()
    }

    /// Records the generations that a reader has seen: later readers must find nothing older.
    pub fn seen(&self, first: usize, generations: &[u64]) {
        for (newest, seen) in self.newest[first..].iter().zip(generations) {
            newest.fetch_max(*seen, Ordering::SeqCst);
        }
    }

    /// Checks that every block of `bytes` has its last generation. No writer may run.
    ///
    /// # Errors
    /// The first block that does not.
    pub fn check_all(&self, bytes: &[u8]) -> Result<(), String> {
        if bytes.len() < self.last.len() * SIZE {
            return Err(format!("only {} bytes", bytes.len()));
        }
        for (number, last) in self.last.iter().enumerate() {
            let last = *lock(last);
            let found = judge(number, &bytes[number * SIZE..(number + 1) * SIZE])?;
            if found != last {
                return Err(format!(
                    "block {number} is of generation {found}, not {last}"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_and_old_blocks_are_found() {
        let blocks = Blocks::new(3);
        let old = blocks.first_bytes();
        assert_eq!(blocks.check_all(&old), Ok(()));
        let locked = blocks.lock(1, 3);
        let mut new = old.clone();
        new[SIZE..].copy_from_slice(&locked.bytes);
        let least = blocks.least(0, 3);
        assert_eq!(blocks.judge(0, &least, &old), Ok(vec![1, 1, 1]));
        assert_eq!(blocks.judge(0, &least, &new), Ok(vec![1, 2, 2]));
        locked.written();
        let least = blocks.least(0, 3);
        assert!(blocks.judge(0, &least, &old).is_err(), "old");
        new[SIZE..SIZE + 1024].copy_from_slice(&old[SIZE..SIZE + 1024]);
        assert!(blocks.judge(0, &least, &new).is_err(), "torn");
        assert!(blocks.check_all(&old).is_err());
    }
}
