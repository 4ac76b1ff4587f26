//! Direct I/O: between the caller's bytes and the device, past the page cache.
//!
//! `write` and `read` are one call each; `file/direct_queue.rs` keeps many of them in flight. All
//! take what they need of the cache with them: dirty blocks of the range are written first, and a
//! write leaves none of the range cached, so that buffered and direct I/O see one file. A write
//! takes the steps of writeback in their order: blocks, unwritten; the data; the conversion, and
//! with it the sizes (J18, J20). A crash in between shows zeros or the old size, never what the
//! blocks held before.
//!
//! Bytes need no alignment. Where a range cuts a block, the block is locked, read and written as a
//! whole; parts of it that were never written are zeros. What cannot be done directly goes through
//! the cache and is written from there before the call returns: data that goes through the journal,
//! files without extents that have to grow, and ranges that the cache does not let go of.
//!
//! # Invariants
//! * From before a direct write hands its first byte to the device until its range is unlocked, no
//!   block of the range is cached or being filled: a reader finds the old bytes before, or
//!   the new ones afterwards.
//! * Nothing is converted and no size moves unless the data has arrived. (J19)
//!
//! # Locks
//! The range (`LOCKED`), as every write has it, for reads as well: no thread truncates or
//! writes it meanwhile. A write locks its blocks against fills, too (`DIO_LOCKED`), which take that
//! bit alone for what they read: so fills meet direct writes and nothing else, and a writer may
//! fill within its own range. Short requests of a queue take a lock slot instead ([`fast_path`]),
//! which is both. The invalidate lock is taken once in the life of a file, by `Direct::announce`.

mod clear_cache;
mod direct_read;
mod direct_write;
pub(crate) mod fast_path;
pub(in crate::file) mod known_runs;

pub(crate) use self::direct_read::read;
pub(super) use self::direct_write::write;
