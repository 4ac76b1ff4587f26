//! The page cache: folios, address spaces, dirty and uptodate state, reclaim, readahead, flushing.
//!
//! A [`PageCache`] owns the memory (an arena with a byte budget) and the background work. An
//! [`AddressSpace`] is one file's part of it: an index from page number to [`Folio`]. A folio is 4
//! KiB to 2 MiB of contiguous, naturally aligned memory with state of its own; an address space
//! holds folios of any mix of sizes. This crate knows no block map, no device and no file system:
//! the owner of an address space implements [`Writeback`], and `extant-iomap` does the I/O.
//!
//! # Invariants
//! J2 to J6 of `docs/INVARIANTS.md`; [`AddressSpace::verify`] checks them.
//!
//! # Locks
//! Outermost first: [`AddressSpace::invalidate_lock`] → [`AddressSpace::writeback_pass`] → folio
//! lock (several: ascending index) → the address space's index → the list of dirty files, the
//! reclaim clock, the arena. The last four are private and short: a thread waits for nothing under
//! them. The folio lock is the lock around the folio's bytes and state: [`FolioRef`] holds it
//! shared (a cached read), [`FolioGuard`] exclusively (everything else). A copy into or out of a
//! folio happens under that one lock, so a read sees each folio whole.
//!
//! `extant_lock_order` checks the first three, and the locks before and after them, in builds with
//! debug assertions.
//!
//! # Concurrency
//! Lookups share the index; two folios never contend. A writer that meets a folio under writeback
//! waits for its end without holding the folio lock. No thread waits for memory, or at a dirty
//! limit, with a folio locked.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod address_space;
mod arena;
mod block_bits;
mod buddy;
mod cache;
mod cache_state;
mod clock;
mod config;
mod counters;
mod dirty_list;
mod errseq;
mod flusher;
mod folio;
mod folio_guard;
mod folio_tree;
mod invalidate;
mod locks;
mod pin;
mod pinnable;
mod private;
mod readahead;
mod recent;
mod verify;
mod wakeup;

pub use address_space::{AddressSpace, AddressSpaceParams, SEQUENTIAL_FOLIO_BYTES};
pub use cache::PageCache;
pub use config::{Config, MAX_ORDER};
pub use counters::PageCacheStats;
pub use dirty_list::{FILES_TOGETHER, SMALL_FILE_BYTES, Writeback, WritebackReason};
pub use errseq::{ErrorCursor, WritebackErrors, WritebackFault};
pub use folio::Folio;
pub use folio_guard::{FolioGuard, FolioLocked, FolioRef, Overwrite};
pub use folio_tree::Tag;
pub use locks::{InvalidateExclusive, InvalidateLock, InvalidateShared, WritebackPass};
pub use pin::Pinned;
pub use private::FolioPrivate;
pub use readahead::{Readahead, Window};
pub use recent::RecentFolios;
pub use verify::CachedRun;
