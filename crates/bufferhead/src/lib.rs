//! Buffered file I/O with a record per block: Linux's buffer heads.
//!
//! Each folio has a ring of records ([`BufferHead`]), one per block, that says where the block is
//! and what state it is in. A write prepares the records of its range, copies, and publishes them;
//! writeback gathers the dirty records and allocates space for those without. The file system is
//! asked block by block.
//!
//! This is the buffer-head path. It stands beside `extant-iomap`, with the same borders, for files
//! that ranges cannot serve, and for comparison. A write costs more here the more blocks lie before
//! it in its folio and, without [`BufferOps::stop_at_range_end`], the more blocks the folio has.
//! The ring is linked one way and reachable only from its head, as in the design that it
//! reproduces; every step is counted ([`BufferCounters`]).
//!
//! Whatever does not depend on the difference is shared. Cached reads, readahead, fills, zeroing
//! and seeking are `extant-iomap`'s, over the file system's [`extant_iomap::IomapOps`]. The page
//! cache reports their changes to the records ([`extant_pagecache::FolioPrivate`]).
//!
//! # Locks
//! Handle → folio: an allocating write or a writeback pass starts its handle before it locks
//! folios, and no thread waits for writeback with a handle open. (The iomap path has the opposite
//! order; a file is on one path at a time.)
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod commit;
mod counters;
mod logged;
mod ops;
mod prepare;
mod record;
mod ring;
mod submission;
mod write;
mod writeback;

pub use counters::{BufferCounters, BufferStats};
pub use ops::{BlockLocation, BlockMap, BufferOps, BufferWriteback, FolioWrite};
pub use record::{BufferHead, BufferState};
pub use ring::{MAX_RUN, Ring};
pub use write::write;
pub use writeback::{write_back, write_ordered};
