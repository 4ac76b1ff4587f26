//! The journal of ext4: block cache, handles, transactions, commit, checkpoint, revoke, recovery.
//!
//! The crate knows blocks, not inodes. All metadata goes through three types: the [`BlockCache`]
//! returns [`Block`]s, a [`Handle`] modifies them, and the [`Journal`] makes the modifications of a
//! transaction durable, all of them or none. `docs/JOURNAL.md` draws a commit as a time line and
//! says what a crash at each point leaves.
//!
//! # The life of a modification
//! 1. [`Journal::start`] joins the running transaction and declares how many blocks the handle may
//!    modify (credits).
//! 2. [`Handle::modify`] attaches a block to the transaction and changes its bytes.
//!    [`Handle::create`] makes a new block. [`Handle::forget`] detaches a freed block, with a
//!    revoke record if the log has a copy of it.
//! 3. Dropping the handle ends its part. The transaction runs on, for up to five seconds or a
//!    quarter of the log.
//! 4. A commit locks the transaction: new handles wait, open ones end. It then makes it
//!    the committing transaction, and new handles start another one. It writes revoke blocks,
//!    descriptors, copies and last the commit record, with a flush before and after the record. Now
//!    the transaction is durable, and freed blocks may be reused ([`Handle::on_commit`]).
//! 5. A checkpoint writes the blocks to their home locations, and then moves the tail of the log
//!    past the transaction.
//!
//! After a crash, [`recover`] writes the copies between tail and head to their home locations.
//!
//! # Invariants
//! A crash leaves the state at the end of some transaction, not older than the last one that was
//! reported durable. This follows from four orders of writes and from revoke records:
//!
//! 1. Copies are durable before the commit record (the record's preflush).
//! 2. The commit record is durable before any of its blocks is written to its home location, and
//!    before blocks that the transaction freed are reused (forced unit access of the record; the
//!    callbacks run after it).
//! 3. Blocks are durable at their home locations before the tail moves (preflush of the
//!    superblock's write).
//! 4. The superblock names a tail before anything is written to an empty log.
//! 5. A freed block that has a new owner is not overwritten by an old copy (revoke records).
//!
//! Blocks of the running and the committing transaction, and those that are not yet checkpointed,
//! stay in the cache whatever its budget: at most as many as the log holds, and one copy of each
//! block that was modified since.
//!
//! # Locks
//! Outermost first: the checkpoint lock, the journal's state, a block, a transaction's parts, the
//! log's index. The cache's shards are leaves. Only the checkpoint lock, the lock of the journal's
//! superblock and a block that is being read are held over I/O.
//!
//! # Concurrency
//! The bytes of a block are a shared snapshot. A reader, a committing transaction and a checkpoint
//! each keep a reference; a modification copies while a reference exists. So no modification waits
//! for I/O, and a transaction never contains what a later one did.
#![forbid(unsafe_code)]

mod block;
mod blockio;
mod cache;
mod checkpoint;
mod commit;
mod config;
mod error;
mod fast_area;
mod fast_commit;
mod handle;
mod hash;
mod journal;
mod log;
mod log_index;
mod log_map;
mod log_superblock;
mod log_write;
mod nesting;
mod operation_source;
mod ordered;
mod recovery;
mod ring;
mod running;
mod shared;
mod sizes;
mod state;
mod stats;
mod transaction;

pub use block::{Block, BlockData, CheckKey};
pub use cache::BlockCache;
pub use config::Config;
pub use error::{BlockError, JournalError, StopReason};
pub use handle::Handle;
pub use hash::{NumberHash, NumberHasher};
pub use journal::Journal;
pub use log_map::LogMap;
pub use operation_source::OperationSource;
pub use ordered::OrderedData;
pub use recovery::{
    FastCommits, Recovery, SkippedCopies, SkippedCopy, count_with_fast_commits, inspect, recover,
    recover_to_fast_commits, recover_within, replace_fast_commits,
};
pub use stats::JournalStats;
