//! The journal of ext4: block cache, handles, transactions, commit, checkpoint, revoke, recovery.
//!
//! It knows blocks, not inodes. All metadata goes through three types: a [`BlockCache`] gives out [`Block`]s,
//! a [`Handle`] modifies them, the [`Journal`] makes what handles did durable, all of a transaction or nothing.
//!
//! # The life of a modification
//! 1. [`Journal::start`] joins the running transaction, declaring how many blocks may be modified (credits).
//! 2. [`Handle::modify`] attaches a block to the transaction and changes its bytes; [`Handle::create`] makes a
//!    new block; [`Handle::forget`] takes a freed one out, with a revoke record if the log has a copy of it.
//! 3. Dropping the handle ends its part. The transaction goes on, for up to five seconds or a quarter of the log.
//! 4. The commit thread locks the transaction (starts wait, open handles end), takes it over (starts go on),
//!    and writes revoke blocks, descriptors, copies and at last the commit record, with a flush before it and
//!    after it. Now the transaction is durable: freed blocks may be reused ([`Handle::on_commit`]).
//! 5. A checkpoint writes the blocks home, later, and then moves the tail of the log over the transaction.
//!
//! After a crash [`recover`] brings home what lies between tail and head.
//!
//! # Copy on write
//! A block's bytes are a shared snapshot. Whoever needs them to stay as they are (a reader, a committing
//! transaction, a checkpoint) keeps a reference; a modification then copies. Nobody waits for anybody's I/O,
//! and a transaction never sees what a later one did.
//!
//! # What a crash shows
//! The state at the end of some transaction, not older than the last one reported durable. It rests on four
//! orders: copies before the commit record (its preflush); the record before anything of it goes home, and
//! before freed blocks are reused (its forced unit access, and the callbacks' place); home before the tail (the
//! preflush of the superblock's write); the superblock names a tail before an empty log is written to. And on
//! revoke records: a block that was freed and has a new owner is not overwritten by an old copy.
//!
//! # Modules, locks
//! `cache` and `block` stand alone. `running` has the running transaction, `commit` the committing one,
//! `log_write` its way into the log, `log_index` what is in the log, `checkpoint` the way home, `log` the device
//! side, `recovery` the way back. Lock order, outermost first: a checkpoint's turn, the journal's state, a
//! block, a transaction's parts, the log's index. The cache's shards are leaves. Only the turn, the journal's
//! superblock and a block that is being read are held through I/O.
//!
//! # Memory
//! Blocks of the running and the committing transaction and those that a checkpoint has yet to write home stay
//! in the cache whatever its budget: at most as much as the log holds, and a copy of those modified since.
#![forbid(unsafe_code)]

mod block;
mod blockio;
mod cache;
mod checkpoint;
mod commit;
mod config;
mod error;
mod handle;
mod hash;
mod journal;
mod log;
mod log_index;
mod log_map;
mod log_write;
mod nesting;
mod ordered;
mod recovery;
mod running;
mod sizes;
mod stats;
mod transaction;

pub use block::{Block, BlockData, CheckKey};
pub use cache::BlockCache;
pub use config::Config;
pub use error::{BlockError, JournalError};
pub use handle::Handle;
pub use journal::Journal;
pub use log_map::LogMap;
pub use ordered::OrderedData;
pub use recovery::{Recovery, SkippedCopy, inspect, recover, recover_within};
pub use stats::JournalStats;
