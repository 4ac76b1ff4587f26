//! The page cache: folios, mappings, dirty and uptodate state, reclaim, readahead windows, flushing.
//!
//! A [`PageCache`] owns the memory (an arena with a byte budget) and the background work. A
//! [`AddressSpace`] is one file's part of it: an index from page number to [`Folio`]. A folio is 4 KiB to
//! 2 MiB of contiguous, naturally aligned memory with state of its own; folios of any mix of sizes live
//! in one mapping. This crate knows no block map, no device and no file system: whoever owns a mapping
//! implements [`Writeback`], and `extant-iomap` does the I/O.
//!
//! # Locks
//! Outermost first: [`AddressSpace::invalidate_lock`] → [`AddressSpace::writeback_pass`] → folio lock (several: ascending
//! index) → the mapping's index → the list of dirty mappings, the reclaim clock, the arena. The last
//! four are private and short: nothing is waited for under them. The folio lock is the lock around the
//! folio's bytes and state: [`FolioRef`] holds it shared (a cached read), [`FolioGuard`] exclusively
//! (anything else). Because a copy into or out of a folio happens under that one lock, a read sees each
//! folio whole.
//!
//! `extant_lock_order` checks the first three, and what comes before and after them, in builds with debug assertions.
//!
//! # Concurrency
//! Lookups share the index; two folios never contend. A writer that meets a folio under writeback
//! waits until it is stable, without holding the folio. Nobody waits for memory or for dirty
//! throttling with a folio locked.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod block_bits;
mod buddy;
mod cache;
mod config;
mod dirty_list;
mod errseq;
mod flusher;
mod folio;
mod invalidate;
mod mapping;
mod memory;
mod order;
mod pin;
mod private;
mod readahead;
mod recent;
mod reclaim;
mod stats;
mod sync;
mod tree;
mod verify;

pub(crate) use extant_units::index;

pub use cache::PageCache;
pub use config::Config;
pub use dirty_list::{Writeback, WritebackReason};
pub use errseq::{ErrorCursor, WritebackErrors, WritebackFault};
pub use folio::{Folio, FolioGuard, FolioRef};
pub use mapping::{AddressSpace, AddressSpaceParams};
pub use order::InvalidateLock;
pub use pin::Pinned;
pub use private::FolioPrivate;
pub use readahead::{Readahead, Window};
pub use recent::RecentFolios;
pub use stats::{Counter, PageCacheStats};
pub use tree::Tag;
pub use verify::CachedRun;

/// The largest folio order: 2 MiB.
pub const MAX_ORDER: u32 = 9;
