//! Writing one fast commit: its records, packed into whole blocks.

use extant_units::BlockSize;

use super::operation::Operation;
use super::record::{RECORD_HEADER, TAG_HEAD, TAG_PAD, TAG_TAIL};
use crate::csum::Crc32c;

/// Bytes of the value of a tail that mean something: the transaction and the checksum.
const TAIL_VALUE: usize = 8;
/// Bytes that each block keeps for the record that ends it: a tail, or padding that is not empty.
const END_OF_BLOCK: usize = RECORD_HEADER + TAIL_VALUE;

/// A record that no block has room for, or an operation that no record can say.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Debug)]
#[error("an operation that does not fit a record")]
pub struct OperationTooLong;

/// The blocks of one fast commit, as far as its records were added.
#[derive(Clone, Debug)]
pub struct FastCommitWriter {
    block: usize,
    tid: u32,
    bytes: Vec<u8>,
    is_empty: bool,
}

impl FastCommitWriter {
    /// Begins a fast commit that comes before transaction `tid`, which is the `first` one of that
    /// transaction in the area or follows another.
    pub fn new(block: BlockSize, tid: u32, first: bool) -> Self {
        let mut bytes = Vec::new();
        if first {
            // No features.
            let value = [[0; 4], tid.to_le_bytes()].concat();
            push_record(&mut bytes, TAG_HEAD, &value);
        }
        Self {
            block: block.bytes(),
            tid,
            bytes,
            is_empty: true,
        }
    }

    /// Adds a record of `operation`.
    ///
    /// # Errors
    /// It does not fit a block, or is none that a record says. Nothing was added then.
    pub fn add(&mut self, operation: &Operation<'_>) -> Result<(), OperationTooLong> {
        let (tag, value) = operation.encode().ok_or(OperationTooLong)?;
        let len = RECORD_HEADER + value.len();
        let room = self.block - END_OF_BLOCK;
        if len > room || u16::try_from(value.len()).is_err() {
            return Err(OperationTooLong);
        }
        let used = self.bytes.len() % self.block;
        if used + len > room {
            self.fill_block(TAG_PAD, &[]);
        }
        push_record(&mut self.bytes, tag, &value);
        self.is_empty = false;
        Ok(())
    }

    /// Returns whether no operation was added.
    pub const fn is_empty(&self) -> bool {
        self.is_empty
    }

    /// The blocks that the fast commit takes if nothing is added.
    pub const fn blocks(&self) -> usize {
        self.bytes.len() / self.block + 1
    }

    /// The whole blocks of the fast commit, with its tail.
    pub fn finish(mut self) -> Vec<u8> {
        let tail = self.bytes.len();
        let tid = self.tid.to_le_bytes();
        self.fill_block(TAG_TAIL, &tid);
        // It covers everything up to its own field.
        let at = tail + RECORD_HEADER + tid.len();
        let sum = Crc32c::from_raw(0).feed(&self.bytes[..at]).raw();
        self.bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
        self.bytes
    }

    /// Adds a record that fills its block, whose value begins with `value`.
    fn fill_block(&mut self, tag: u16, value: &[u8]) {
        let left = self.block - self.bytes.len() % self.block;
        debug_assert!(left >= END_OF_BLOCK, "each block keeps room for its end");
        let mut whole = vec![0; left - RECORD_HEADER];
        whole[..value.len()].copy_from_slice(value);
        push_record(&mut self.bytes, tag, &whole);
    }
}

/// Adds a record. Its value is shorter than a block.
fn push_record(bytes: &mut Vec<u8>, tag: u16, value: &[u8]) {
    #[allow(clippy::cast_possible_truncation, reason = "shorter than a block")]
    let len = value.len() as u16;
    bytes.extend(tag.to_le_bytes());
    bytes.extend(len.to_le_bytes());
    bytes.extend(value);
}
