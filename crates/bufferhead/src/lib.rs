//! Buffered file I/O with a record per block.
//!
//! The classic path: each folio has a ring of records ([`BufferHead`]), one per block, that says where the block is and what
//! state it is in. A write prepares the records of its range, copies, and publishes them; writeback
//! gathers the records that need a place. The file system is asked block by block.
//!
//! It stands beside `extant-iomap`, with the same borders, for files that cannot be served by ranges, and for comparison: what a
//! write costs here grows with the blocks before it in its folio, and, without [`BufferOps::stop_at_range_end`], with the whole
//! folio. The ring is linked one way and reachable only from its head, as in the design that it reproduces; every step is counted
//! ([`BufferCounters`]).
//!
//! What does not depend on the difference is shared: cached reads, readahead, filling, zeroing and seeking are `extant-iomap`'s,
//! over the file system's [`extant_iomap::IomapOps`]. The page cache tells the records what those change
//! ([`extant_pagecache::FolioPrivate`]).
//!
//! # Locks
//! Handle → folio: a handle that an allocating write or a writeback pass needs is started before its folios are locked, and nobody
//! waits for writeback with a handle open. (The other path has it the other way round; a file is on one path at a time.)
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod commit;
mod logged;
mod ops;
mod prepare;
mod record;
mod ring;
mod stats;
mod submission;
mod write;
mod writeback;

pub(crate) use extant_units::index;

pub use ops::{BlockLocation, BlockMap, BufferOps, BufferWriteback, FolioWrite};
pub use record::{BufferHead, BufferState};
pub use ring::Ring;
pub use stats::{BufferCounters, BufferStats};
pub use write::write;
pub use writeback::{write_back, write_ordered};

/// The most blocks that are mapped at once: a folio has no more, and an unwritten extent holds them.
pub const MAX_RUN: u32 = 2048;
