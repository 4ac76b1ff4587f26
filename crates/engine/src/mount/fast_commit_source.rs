//! The operations of the running transaction, as the records of a fast commit.
//!
//! # Responsibility
//! [`OperationRecorder`] has what changed. Entries are told as they were noted, in order. Inodes
//! and ranges are told as they are now: the record in the inode table and the extents in the tree,
//! as the running transaction has them. So a range that changed twice is told once, and nothing has
//! to be told of an inode that is gone.
//!
//! The order is that of Linux, whose replay and e2fsck's rely on it: entries first, the record of a
//! new inode in front of its first name; then the ranges and the record of each other inode.
//!
//! # Invariants
//! - No handle is open, so the blocks that are read here change only afterwards.
//! - An inode is told if it has a name and is a regular file with extents. One without a name is
//!   deleted by a replay, which sees its last name go, or is never made. Others have the
//!   transaction committed as a whole; their changes were not told anyway.
//!
//! # Locks
//! The recorder's leaf, and reads of blocks. The thread that commits holds none.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use extant_disk::extent::Extent;
use extant_disk::features::{Compat, Incompat, RoCompat};
use extant_disk::inode::{GOOD_OLD_SIZE, InodeFlags, RawInode};
use extant_disk::jbd2::fast_commit::{EntryChange, FastCommitWriter, Operation};
use extant_failpoint::{ActiveFailpoint, Failpoint};
use extant_jbd2::{BlockCache, OperationSource};
use extant_units::{Ino, Lblk, Tid};

use crate::config::{DataMode, MountOptions};
use crate::map::{RawMap, raw_ranges};
use crate::state::group::GroupTable;
use crate::state::map::{MapState, Status};
use crate::state::volume::{
    EntryFate, Layout, NotedEntry, OperationRecorder, Operations, SystemZones,
};
use crate::types::FileKind;
use crate::types::error::{Error, Result};

/// Blocks of a fast commit at most: more is committed as a whole sooner than it is replayed.
const MAX_BLOCKS: usize = 1024;
/// Groups at most whose blocks a replay frees, with the inodes whose last name went: it does all in
/// one transaction, where an eviction takes as many as it needs.
const MAX_FREED_GROUPS: u64 = 64;

/// Returns whether a mount of the volume writes fast commits, if its log has room for them.
pub(super) fn is_wanted(layout: &Layout, options: &MountOptions) -> bool {
    let features = &layout.features;
    let quotas = features.has_ro_compat(RoCompat::QUOTA);
    features.has_compat(Compat::FAST_COMMIT)
        && features.has_incompat(Incompat::EXTENTS)
        // Usage of quotas is in blocks that no record tells, and every operation changes it.
        && !quotas
        && !layout.has_clusters()
        && options.data() != DataMode::Journal
        && !options.read_only()
        && !options.unlogged()
}

/// The records of fast commits of a mount.
pub(super) struct FastCommitSource {
    operations: Arc<OperationRecorder>,
    cache: Arc<BlockCache>,
    layout: Layout,
    groups: Arc<GroupTable>,
    zones: Arc<SystemZones>,
    failpoint: ActiveFailpoint,
}

impl FastCommitSource {
    /// A source that tells what is noted in `operations`.
    pub(super) fn new(
        operations: &Arc<OperationRecorder>,
        (cache, groups, zones): (&Arc<BlockCache>, &Arc<GroupTable>, &Arc<SystemZones>),
        layout: &Layout,
    ) -> Self {
        Self {
            operations: Arc::clone(operations),
            cache: Arc::clone(cache),
            layout: layout.clone(),
            groups: Arc::clone(groups),
            zones: Arc::clone(zones),
            failpoint: ActiveFailpoint::default(),
        }
    }

    /// The same with the failpoint that a test switches on.
    pub(super) fn failing(self, failpoint: ActiveFailpoint) -> Self {
        Self { failpoint, ..self }
    }
}

impl std::fmt::Debug for FastCommitSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FastCommitSource").finish_non_exhaustive()
    }
}

impl OperationSource for FastCommitSource {
    fn tell(&self, tid: Tid, fast: &mut FastCommitWriter) -> bool {
        let taken = self.operations.take(tid);
        let told = Telling {
            source: self,
            fast,
            freed: 0,
        }
        .all(&taken);
        if let Err(error) = &told {
            tracing::debug!(%error, "no fast commit tells the transaction");
        }
        told.is_ok()
    }
}

/// The record of a file with a name.
struct LiveFile {
    ino: Ino,
    record: Vec<u8>,
    raw: RawInode,
}

struct Telling<'a> {
    source: &'a FastCommitSource,
    fast: &'a mut FastCommitWriter,
    /// Groups in which a replay may have to free blocks.
    freed: u64,
}

impl Telling<'_> {
    fn all(mut self, operations: &Operations) -> Result<()> {
        let inodes = &operations.inodes;
        // New inodes whose record stands in front of their only entry, and that have no range:
        // Linux counts the blocks of a file as it reads its record.
        let mut told = HashSet::new();
        // Inodes that came and went: there is nothing that an entry could lead to.
        let mut gone = HashSet::new();
        for entry in &operations.entries {
            if gone.contains(&entry.ino) {
                continue;
            }
            if entry.fate == EntryFate::Made {
                let Some(file) = self.file(entry.ino)? else {
                    gone.insert(entry.ino);
                    continue;
                };
                self.add(&Operation::Inode(file.ino, &file.record))?;
                if inodes.get(&file.ino).is_none_or(Vec::is_empty) {
                    told.insert(file.ino);
                }
            } else {
                told.remove(&entry.ino);
            }
            self.entry(entry)?;
        }
        for (ino, ranges) in inodes.iter().filter(|(ino, _)| !told.contains(ino)) {
            if let Some(file) = self.file(*ino)? {
                self.ranges(&file, ranges)?;
                self.add(&Operation::Inode(file.ino, &file.record))?;
            }
        }
        Ok(())
    }

    fn add(&mut self, operation: &Operation<'_>) -> Result<()> {
        if self.fast.blocks() > MAX_BLOCKS {
            return Err(Error::NotSupported("a fast commit of so many blocks"));
        }
        let added = self.fast.add(operation);
        added.map_err(|_| Error::NotSupported("an operation that no fast commit tells"))
    }

    fn entry(&mut self, entry: &NotedEntry) -> Result<()> {
        let change = EntryChange {
            parent: entry.parent,
            ino: entry.ino,
            name: &entry.name,
        };
        match entry.fate {
            EntryFate::Made => self.add(&Operation::Create(change)),
            EntryFate::Added => self.add(&Operation::Link(change)),
            EntryFate::Removed if self.source.failpoint.is(Failpoint::RemovalForgotten) => Ok(()),
            EntryFate::Removed => {
                self.bound_deletion(entry.ino)?;
                self.add(&Operation::Unlink(change))
            }
        }
    }

    /// Fails if a replay could have to free the blocks of too many groups with the inode `ino`,
    /// which has lost a name.
    fn bound_deletion(&mut self, ino: Ino) -> Result<()> {
        let source = self.source;
        let at = source.groups.inode_location(&source.layout, ino)?;
        let block = source.cache.read_unchecked(at.block)?.data();
        let record = block.get(at.offset..at.offset + usize::from(source.layout.inode_size));
        let raw = record.and_then(RawInode::of);
        let Some(raw) = raw.filter(|raw| raw.links.get() == 0) else {
            return Ok(());
        };
        let high = u64::from(raw.blocks_hi.get()) << 32;
        // In sectors or, of huge files, in blocks: not less than there are in any case.
        let most = high | u64::from(raw.blocks_lo.get());
        self.freed += most.min(source.layout.groups().into());
        match self.freed > MAX_FREED_GROUPS {
            true => Err(Error::NotSupported("a replay that frees so many blocks")),
            false => Ok(()),
        }
    }

    /// The record of inode `ino` as it is now; `None` if it has no name.
    fn file(&self, ino: Ino) -> Result<Option<LiveFile>> {
        let source = self.source;
        let at = source.groups.inode_location(&source.layout, ino)?;
        let block = source.cache.read_unchecked(at.block)?.data();
        let record = block.get(at.offset..at.offset + usize::from(source.layout.inode_size));
        let whole = record.unwrap_or_default();
        let Some(raw) = RawInode::of(whole).filter(|raw| raw.links.get() > 0) else {
            return Ok(None);
        };
        let untold = || Error::NotSupported("an inode that no fast commit tells");
        let flags = InodeFlags::from_bits_retain(raw.flags.get());
        let plain = FileKind::from_mode(raw.mode.get()) == Some(FileKind::Regular)
            && flags.contains(InodeFlags::EXTENTS);
        let len = fixed_len(whole).filter(|_| plain).ok_or_else(untold)?;
        Ok(Some(LiveFile {
            ino,
            record: whole.get(..len).ok_or_else(untold)?.to_vec(),
            raw: *raw,
        }))
    }

    /// Tells what the file blocks `ranges` are.
    fn ranges(&mut self, file: &LiveFile, ranges: &[Range<u64>]) -> Result<()> {
        if self.source.failpoint.is(Failpoint::RangeForgotten) {
            return Ok(());
        }
        let source = self.source;
        let map = RawMap {
            cache: &source.cache,
            layout: &source.layout,
            zones: &source.zones,
            ino: file.ino,
            generation: file.raw.generation.get(),
            i_block: file.raw.block,
            extents: true,
        };
        for range in ranges {
            raw_ranges(&map, range.clone(), |part| {
                self.add(&told_range(file.ino, &part))
            })?;
        }
        Ok(())
    }
}

/// Bytes of a record in front of its attributes. `None` for one that has room for further fields
/// and none of them: e2fsck looks for their length in every record.
fn fixed_len(record: &[u8]) -> Option<usize> {
    let Some(extra) = record.get(GOOD_OLD_SIZE..GOOD_OLD_SIZE + 2) else {
        return Some(GOOD_OLD_SIZE);
    };
    let extra = u16::from_le_bytes(extra.try_into().ok()?);
    (extra >= 4).then_some(GOOD_OLD_SIZE + usize::from(extra))
}

fn told_range(ino: Ino, part: &Status) -> Operation<'static> {
    let (lblk, len) = (part.lblk, part.len);
    let extent = |pblk, unwritten| Extent {
        lblk,
        len,
        pblk,
        unwritten,
    };
    match part.state {
        MapState::Written(pblk) => Operation::AddRange(ino, extent(pblk, false)),
        MapState::Unwritten(pblk) => Operation::AddRange(ino, extent(pblk, true)),
        // No tree on disk has a delayed block.
        MapState::Hole | MapState::Delayed => Operation::DelRange {
            ino,
            lblk: Lblk::new(lblk.get()),
            len,
        },
    }
}
