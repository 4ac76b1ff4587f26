//! Building the shared state of a mount.

use extant_sync::OnceLock;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FlushLatch};
use extant_disk::damage::LinkDamage;
use extant_disk::features::Incompat;
use extant_disk::superblock::Superblock;
use extant_jbd2::{BlockCache, Config, Journal};
use extant_name_cache::NameCache;
use extant_sync::Mutex;
use extant_units::{Blocks, Ino, at_most_usize};

use super::fast_commit_source::{FastCommitSource, is_wanted};
use super::find_journal::FoundJournal;
use super::volume_marks::mark_in_use;
use crate::config::{MountOptions, Tuning};
use crate::state::alloc::{Allocator, Parts, SpaceCounts};
use crate::state::attr_blocks::SharedBlocks;
use crate::state::crypt::KeyRing;
use crate::state::file::{Files, LoggedDevice};
use crate::state::group::{GroupTable, Totals};
use crate::state::inode::InodeCache;
use crate::state::map::{DelayedTrees, SharedMaps, StatusCache};
use crate::state::orphans::Orphans;
use crate::state::volume::{Fault, Layout, MountedSuperblock, RenameLock, Stats, Zone, mmp};
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, Upcalls, credits};
use crate::{file, namei, orphan, quota};

/// Functions of upper modules that modules below this one call.
pub(crate) const UPCALLS: Upcalls = Upcalls {
    evict: namei::evict,
    file_callbacks: file::callbacks,
    find_dquot: quota::find_dquot,
};

/// Reads the rest of the metadata and puts the parts together. The superblock is marked as in use.
pub(super) fn build(
    (dev, latch): (Arc<dyn BlockDevice>, Arc<FlushLatch>),
    sb: &Superblock,
    found: Option<&FoundJournal>,
    options: MountOptions,
    tuning: Tuning,
) -> Result<Arc<Fs>> {
    let layout = Layout::new(sb);
    let budget = at_most_usize(tuning.block_cache_bytes);
    let cache = BlockCache::new(Arc::clone(&dev), layout.block_size, budget);
    let own = own_zones(sb, found);
    let (groups, zones, totals) = GroupTable::load(&cache, &layout, own, options.read_only())?;
    let (groups, zones) = (Arc::new(groups), Arc::new(zones));
    if !options.read_only() {
        mark_in_use(&dev, found.is_some(), totals, !options.recovering())?;
    }
    let operations = is_wanted(&layout, &options).then(Arc::default);
    let source = (operations.as_ref())
        .map(|noted| FastCommitSource::new(noted, (&cache, &groups, &zones), &layout));
    let config = journal_config(&layout, &options, &tuning, source);
    let journal = open_journal((&dev, &cache), found, &options, config)?;
    let stats = Arc::new(Stats::default());
    let alloc = Allocator::new(Parts {
        layout: layout.clone(),
        cache: Arc::clone(&cache),
        discard: options.discard().then(|| Arc::clone(&dev)),
        groups: Arc::clone(&groups),
        zones: Arc::clone(&zones),
        counts: Arc::new(counts(&layout, totals)),
        stats: Arc::clone(&stats),
        failpoint: tuning.failpoint,
    });
    let logged = LoggedDevice::new(Arc::clone(&dev), Arc::clone(&journal), layout.block_size);
    Ok(Arc::new_cyclic(|this| Fs {
        super_block: MountedSuperblock::new(&layout, sb.raw().state()),
        files: Files::new(&tuning, layout.block_size, logged),
        fault: Fault::new(options.errors()),
        mmp: OnceLock::new(),
        ended: OnceLock::new(),
        inodes: InodeCache::new(&stats, tuning.block_cache_bytes),
        names: NameCache::new(tuning.name_bytes(layout.inodes_count())),
        maps: SharedMaps {
            status: StatusCache::default(),
            delayed: DelayedTrees::new(&alloc.counts, layout.block_size, tuning.tree())
                .in_clusters(layout.cluster_bits),
        },
        quotas: OnceLock::new(),
        xattr_blocks: SharedBlocks::default(),
        keys: KeyRing::default(),
        orphans: Orphans::default(),
        rename_lock: RenameLock::default(),
        growing: Mutex::default(),
        interrupted: false.into(),
        this: this.clone(),
        upcalls: UPCALLS,
        dev,
        latch,
        layout,
        cache,
        operations: operations.filter(|_| journal.has_fast_commits()),
        journal,
        groups,
        alloc,
        zones,
        options,
        tuning,
        stats,
    }))
}

fn journal_config(
    layout: &Layout,
    options: &MountOptions,
    tuning: &Tuning,
    source: Option<FastCommitSource>,
) -> Config {
    Config {
        operations: source.map(|source| Arc::new(source.failing(tuning.failpoint)) as _),
        commit_interval: options.commit(),
        barrier: options.barrier(),
        checksums: layout.metadata_csum(),
        spare_credits: credits::spare(layout),
        commit_each_handle: tuning.commit_each_handle,
        failpoint: tuning.failpoint,
        ..Config::default()
    }
}

/// The blocks of the journal and of multiple mount protection.
fn own_zones(sb: &Superblock, found: Option<&FoundJournal>) -> Vec<Zone> {
    let mut zones = found.map(FoundJournal::zones).unwrap_or_default();
    zones.extend(mmp::zone(sb));
    zones
}

/// Opens the journal of a mount that writes; otherwise transactions have no log.
fn open_journal(
    (dev, cache): (&Arc<dyn BlockDevice>, &Arc<BlockCache>),
    found: Option<&FoundJournal>,
    options: &MountOptions,
    config: Config,
) -> Result<Arc<Journal>> {
    match found {
        Some(found) if !options.read_only() && !options.unlogged() => {
            let journal = Journal::open(
                Arc::clone(cache),
                found.log_device(dev),
                found.log_map(),
                config,
            )?;
            if journal.recorded_errno() != 0 {
                journal.clear_errno()?;
            }
            Ok(journal)
        }
        _ => Ok(Journal::without_log(Arc::clone(cache), config)),
    }
}

fn counts(layout: &Layout, totals: Totals) -> SpaceCounts {
    let extents = layout.features.has_incompat(Incompat::EXTENTS);
    let pooled = if extents { layout.end().get() } else { 0 };
    SpaceCounts::new(
        Blocks::new(pooled),
        Blocks::new(totals.free_blocks),
        layout.root_reserved,
        totals.free_inodes,
        totals.dirs,
    )
    .in_clusters(layout.cluster_bits, Blocks::new(pooled))
}

/// The last steps: reads the root, finishes orphans, starts the threads.
pub(super) fn start(fs: &Arc<Fs>) -> Result<()> {
    if !fs.options.read_only() {
        quota::open(fs)?;
    }
    if fs.iget(Ino::ROOT)?.kind != FileKind::Directory {
        return Err(Error::corrupt(Location::Inode(Ino::ROOT), LinkDamage::Root));
    }
    if fs.options.read_only() {
        return Ok(());
    }
    orphan::open(fs)?;
    orphan::process_all(fs, |fs, inode, size| {
        file::finish_truncation(fs, inode, size)
    })?;
    fs.start_reaper()
}
