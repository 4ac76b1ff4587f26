//! Replaying fast commits: changes of inodes and names that a log holds on top of its transactions.
//!
//! # Responsibility
//! The transactions are replayed before, and the log holds nothing but the fast commits.
//!
//! 1. A private copy of the volume in memory is mounted without a log (`apply.rs`). Each record is
//!    done again there with the engine's own maps, directories, bitmaps and counts. Inodes that
//!    lose their last name go; orphans of the transactions stay, for the mount to finish in as
//!    many transactions as it takes.
//! 2. The blocks that differ then become one transaction of the log, which takes the place of the
//!    fast commits when its commit record is durable (`bring_home.rs`).
//! 3. That transaction is replayed as any other.
//!
//! So a power cut at any point leaves the fast commits as they were, or the transaction: the next
//! mount does the same again, or the rest. Records that are damaged change nothing on the device.
//!
//! # Invariants
//! - A block or an inode that a record claims is free, or becomes free by a record of the same
//!   log. Blocks that records claim are taken before anything is allocated (`claimed_blocks.rs`).
//! - Links are counted entry by entry; the record of an inode that is no directory says how many it
//!   has in the end. Directories get their blocks here, whatever records say of them.
//! - Entries and ranges of an inode that is not in use, and has no record in the same fast commit,
//!   count for nothing: the inode is gone again by the end of the log.
//!
//! # Errors
//! Damage of a record; features that are only read. The mount fails then.

mod apply;
mod bring_home;
mod claimed_blocks;

use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice, memory_share};
use extant_jbd2::FastCommits;

use super::build_fs::build;
use super::find_journal::FoundJournal;
use super::read_superblock;
use super::unmount::end;
use crate::config::{MountOptions, Tuning};
use crate::quota;
use crate::types::error::{Error, Result};

/// Replays `commits` onto the volume on `dev`, whose transactions were replayed.
///
/// # Errors
/// A record that is damaged, or changes what the engine only reads; more changes than fit the log
/// or the memory; a failed device.
pub(super) fn replay(
    dev: &Arc<dyn BlockDevice>,
    found: &FoundJournal,
    commits: &FastCommits,
    options: &MountOptions,
    mut tuning: Tuning,
) -> Result<()> {
    let limit = tuning.replay_bytes.unwrap_or_else(memory_share);
    let copy = Arc::new(CowDevice::with_limit(Arc::clone(dev), limit));
    let overlay: Arc<dyn BlockDevice> = Arc::clone(&copy) as _;
    let mut how = options.clone();
    how.set_recovering();
    how.set_unlogged();
    let sb = read_superblock::read(&overlay, &mut how)?;
    if how.read_only() {
        return Err(Error::UnsupportedFeature(
            "replaying fast commits (fast_commit) beside features that are only read".into(),
        ));
    }
    tuning.flushers = 0;
    tuning.name_cache_bytes = 0;
    let parts = (Arc::clone(&overlay), Arc::default());
    let fs = build(parts, &sb, Some(found), how, tuning)?;
    let applied = quota::open(&fs).and_then(|()| apply::apply(&fs, commits));
    let ended = end(&fs);
    let inodes = applied?;
    ended?;
    let blocks = bring_home::bring_home(dev, &copy, found, &sb)?;
    tracing::info!(inodes, blocks, "fast commits were replayed");
    Ok(())
}
