//! Finding and replaying the journal, before anything else of the volume is trusted.
//!
//! Until the replay is done, blocks on the device may be older than the log, or torn. So the
//! journal is found with as little as possible: one group descriptor (without its checksum, which a
//! torn write may have spoiled), the journal's inode, and its map. If the inode is unusable, the
//! superblock's copy of its map is used.

use std::sync::Arc;

use extant_blockdev::{BlockDevice, memory_share};
use extant_disk::damage::{GroupDamage, GroupPart, ReservedDamage};
use extant_disk::extent::{MAGIC as EXTENT_MAGIC, ROOT_BYTES};
use extant_disk::group_desc::{GroupChecksum, GroupDesc};
use extant_disk::superblock::{RawSuperblock, Superblock};
use extant_jbd2::{
    BlockCache, FastCommits, JournalError, LogMap, Recovery, count_with_fast_commits, recover,
    recover_to_fast_commits,
};
use extant_units::{Blocks, Ino};

use super::external_journal;
use crate::config::MountOptions;
use crate::inode::{InodeCore, InodeFlags, format};
use crate::map::{RawMap, RawRun, raw_runs};
use crate::state::group::locate;
use crate::state::volume::{Layout, SystemZones, Zone};
use crate::types::error::{Error, Location, Result};

/// Memory of the cache that serves until the replay is done.
const CACHE_BYTES: usize = 1 << 20;

/// The journal of a volume.
pub(super) struct FoundJournal {
    place: Place,
}

/// The place of a journal.
enum Place {
    /// In an inode of the volume.
    Inode(Ino, Vec<RawRun>),
    /// On a device of its own.
    Device(Arc<dyn BlockDevice>, LogMap),
}

impl FoundJournal {
    /// Finds the journal of the volume, if it has one.
    ///
    /// # Errors
    /// The journal is on another device, which the options do not give, or neither its inode nor
    /// the superblock's copy of it is valid.
    pub(super) fn find(
        dev: &Arc<dyn BlockDevice>,
        sb: &Superblock,
        layout: &Layout,
        options: &MountOptions,
    ) -> Result<Option<Self>> {
        use extant_disk::features::Compat;
        if !layout.features.has_compat(Compat::HAS_JOURNAL) {
            return Ok(None);
        }
        let Some(ino) = layout.journal_inode else {
            let given = options.journal_device().ok_or_else(|| {
                Error::UnsupportedFeature(
                    "has_journal with a journal on another device (the option journal_path names \
                     it; ro,noload read the volume without it)"
                        .into(),
                )
            })?;
            let log = external_journal::log_on(given, sb, layout)?;
            let place = Place::Device(Arc::clone(given), log);
            return Ok(Some(Self { place }));
        };
        let cache = BlockCache::new(Arc::clone(dev), layout.block_size, CACHE_BYTES);
        let runs = from_inode(&cache, layout, ino).or_else(|error| {
            tracing::warn!(%error, "the journal's inode is damaged: trying the superblock's copy");
            from_backup(&cache, layout, ino, sb.raw()).unwrap_or(Err(error))
        })?;
        let place = Place::Inode(ino, runs);
        Ok(Some(Self { place }))
    }

    /// Replays the transactions of the log, if it is not empty, and returns the fast commits behind
    /// them. The memory of the replay is at most `memory` bytes, if given.
    ///
    /// # Errors
    /// [`Error::NeedsReplay`] if the device cannot be written; a log that is damaged or
    /// unsupported.
    pub(super) fn replay(
        &self,
        dev: &Arc<dyn BlockDevice>,
        layout: &Layout,
        memory: Option<u64>,
    ) -> Result<(Recovery, Option<FastCommits>)> {
        let (device_blocks, bs) = (Blocks::new(layout.end().get()), layout.block_size);
        let memory = memory.unwrap_or_else(memory_share);
        match recover_to_fast_commits(dev, bs, &self.log_map(), device_blocks, memory) {
            Ok(recovered) => Ok(recovered),
            Err(JournalError::ReadOnly) => Err(Error::NeedsReplay),
            Err(error) => Err(error.into()),
        }
    }

    /// The number of transactions and fast commits of the log, if it holds fast commits and can be
    /// read.
    pub(super) fn count_with_fast_commits(
        &self,
        dev: &Arc<dyn BlockDevice>,
        layout: &Layout,
        memory: u64,
    ) -> Option<u64> {
        let bs = layout.block_size;
        let counted = count_with_fast_commits(dev, bs, &self.log_map(), memory);
        counted.ok().flatten()
    }

    /// Replays a log that has no fast commits.
    ///
    /// # Errors
    /// It has some; as [`FoundJournal::replay`].
    pub(super) fn replay_transactions(
        &self,
        dev: &Arc<dyn BlockDevice>,
        layout: &Layout,
    ) -> Result<Recovery> {
        let (device_blocks, bs) = (Blocks::new(layout.end().get()), layout.block_size);
        Ok(recover(dev, bs, &self.log_map(), device_blocks)?)
    }

    /// The location of the log's blocks.
    pub(super) fn log_map(&self) -> LogMap {
        match &self.place {
            Place::Inode(_, runs) => {
                LogMap::new(runs.iter().map(|run| (run.pblk, run.len)).collect())
            }
            Place::Device(_, log) => log.clone(),
        }
    }

    /// The device of the log of the volume on `dev`.
    pub(super) fn log_device(&self, dev: &Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        match &self.place {
            Place::Inode(..) => Arc::clone(dev),
            Place::Device(device, _) => Arc::clone(device),
        }
    }

    /// The journal's blocks as system zones: no other file may map them.
    pub(super) fn zones(&self) -> Vec<Zone> {
        let Place::Inode(ino, runs) = &self.place else {
            return Vec::new();
        };
        let zone = |run: &RawRun| Zone {
            start: run.pblk,
            end: run.pblk.saturating_add(u64::from(run.len)),
            owner: Some(*ino),
        };
        runs.iter().map(zone).collect()
    }
}

fn from_inode(cache: &BlockCache, layout: &Layout, ino: Ino) -> Result<Vec<RawRun>> {
    let damaged = |damage: ReservedDamage| Error::corrupt(Location::Inode(ino), damage);
    let (group, index) = layout
        .group_of_inode(ino)
        .ok_or_else(|| damaged(ReservedDamage::JournalMissing))?;
    let (block, offset) = layout.desc_location(group);
    let table = cache.read_unchecked(block)?.data();
    let bytes = table
        .get(offset..offset + layout.desc_size)
        .unwrap_or_default();
    let desc = GroupDesc::parse(bytes, group, &GroupChecksum::None)
        .map_err(|error| Error::corrupt(Location::GroupDesc(group), error))?;
    let location = locate(layout, desc.inode_table, index);
    if !layout.contains(location.block, Blocks::ONE) {
        let damage = GroupDamage::Outside {
            part: GroupPart::InodeTable,
            start: desc.inode_table,
        };
        return Err(Error::corrupt(Location::GroupDesc(group), damage));
    }
    let block = cache.read_unchecked(location.block)?.data();
    let end = location.offset + usize::from(layout.inode_size);
    let record = block.get(location.offset..end).unwrap_or_default();
    let core = InodeCore::decode(&format(layout), ino, record)
        .map_err(|error| Error::corrupt(Location::Inode(ino), error))?;
    if core.links == 0 {
        return Err(damaged(ReservedDamage::JournalUnused));
    }
    let map = RawMap {
        cache,
        layout,
        zones: &SystemZones::default(),
        ino,
        generation: core.generation,
        i_block: core.i_block,
        extents: core.flags.contains(InodeFlags::EXTENTS),
    };
    runs_of(&map, core.disk_size)
}

/// From the copy of the inode's map and size in the superblock; `None` if there is none.
fn from_backup(
    cache: &BlockCache,
    layout: &Layout,
    ino: Ino,
    raw: &RawSuperblock,
) -> Option<Result<Vec<RawRun>>> {
    /// `s_jnl_blocks` holds a copy.
    const COPIED: u8 = 1;
    if raw.jnl_backup_type != COPIED {
        return None;
    }
    let (pointers, sizes) = raw.jnl_blocks.split_at_checked(ROOT_BYTES / 4)?;
    let [size_high, size_low] = sizes else {
        return None;
    };
    let size = u64::from(size_high.get()) << 32 | u64::from(size_low.get());
    if size == 0 {
        return None;
    }
    let mut i_block = [0; ROOT_BYTES];
    for (slot, pointer) in i_block.chunks_exact_mut(4).zip(pointers) {
        slot.copy_from_slice(&pointer.get().to_le_bytes());
    }
    let map = RawMap {
        cache,
        layout,
        zones: &SystemZones::default(),
        ino,
        generation: 0,
        i_block,
        extents: i_block.starts_with(&EXTENT_MAGIC.to_le_bytes()),
    };
    Some(runs_of(&map, size))
}

fn runs_of(map: &RawMap<'_>, size: u64) -> Result<Vec<RawRun>> {
    let blocks = size >> map.layout.block_size.log2();
    let blocks = u32::try_from(blocks)
        .ok()
        .filter(|&blocks| u64::from(blocks) <= map.layout.end().get() && blocks > 0)
        .ok_or_else(|| {
            let damage = ReservedDamage::JournalSize { size };
            Error::corrupt(Location::Inode(map.ino), damage)
        })?;
    raw_runs(map, blocks)
}
