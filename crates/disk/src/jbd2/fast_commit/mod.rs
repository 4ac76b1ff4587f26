//! Fast commits: changes since the last transaction, as records of what was done to inodes and
//! names.
//!
//! The fast-commit area is a chain of records (tag and length, both 16-bit little-endian, then that
//! many bytes) that fills whole blocks; no record crosses a block. The first record is a head,
//! which names the transaction that the records come before. Each fast commit ends with a tail
//! record that names it again, has a crc32c over everything since the last tail, and fills its
//! block. So one head may be followed by several fast commits.
//!
//! [`FastCommitScan`] finds the complete ones, block by block. [`Operations`] reads the records of
//! one. [`FastCommitWriter`] packs the records of a new one into blocks.

mod area_writer;
mod operation;
mod record;
mod scan;
#[cfg(test)]
mod tests;

pub use area_writer::{FastCommitWriter, OperationTooLong};
pub use operation::{EntryChange, Operation, OperationError, Operations};
pub use scan::{FastCommitScan, UnknownFastCommitFeatures};
