//! Removal of ranges: the tree on disk, what is known of it, and the blocks that become free, under
//! `map_lock` and a handle.

use std::ops::Range;

use extant_disk::damage::MapDamage;
use extant_disk::extent::{Extent, MAX_END};
use extant_jbd2::Handle;
use extant_units::{Blocks, Lblk, at_most_u32};

use super::clusters::{ClusterMap, FreedRun};
use super::disk_nodes::{ToldChange, has_extents, with_told_nodes};
use super::extent_tree::{self, Limit};
use super::indirect;
use super::locked_map::ExclusiveMap;
use crate::alloc;
use crate::inode::path_choice;
use crate::state::alloc::Run;
use crate::state::inode::Inode;
use crate::state::map::{MapView, ReservationFate, Status};
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, credits, stop};

/// Upper bound of the extents that one step of a removal takes.
const STEP_EXTENTS: u32 = 64;
/// Upper bound of the metadata blocks (of directories) that are freed under one handle; see
/// [`credits::remove`].
pub(super) const METADATA_BLOCKS: u64 = credits::REVOKES as u64;

/// Returns whether the file's own blocks are metadata that the journal knows.
pub(super) fn is_metadata(fs: &Fs, inode: &Inode) -> bool {
    // The value of an attribute changes with the entry that has it: in the journal.
    inode.kind != FileKind::Regular
        || inode.holds_value()
        || path_choice::is_data_journalled(fs, inode)
}

/// Fails for a file with a block map on a volume with clusters, which need extents: the blocks of
/// one cluster could not be told from those of others.
///
/// # Errors
/// [`Error::Corrupt`]: reported.
pub(super) fn require_map_for_clusters(fs: &Fs, inode: &Inode) -> Result<()> {
    if !fs.layout.has_clusters() || has_extents(inode) {
        return Ok(());
    }
    let error = Error::corrupt(Location::Inode(inode.ino), MapDamage::NoClusters);
    fs.fault.report(fs, &error);
    Err(error)
}

/// Makes `from..to` a hole: frees blocks and reservations, right to left. Needs [`credits::remove`]
/// credits. May restart the handle, so the inode must be an orphan or the operation repeatable. The
/// caller has dropped the page cache over the range and prevents its refill.
///
/// Between its steps the map in memory equals the one on disk. A crash there leaves the front part.
///
/// # Errors
/// Damage, a stopped journal or [`crate::Error::Interrupted`], with a part removed;
/// [`crate::Error::NoSpace`] if cutting an extent in two needs a node and not even the pool has a
/// block.
pub(crate) fn remove(fs: &Fs, h: &mut Handle, inode: &Inode, from: Lblk, to: u64) -> Result<()> {
    let start = u64::from(from.get());
    debug_assert!(start <= to, "blocks {start}..{to} become a hole");
    require_map_for_clusters(fs, inode)?;
    let mut end = to.min(MAX_END);
    if end >= MAX_END {
        alloc::release_window(fs, inode.ino);
    }
    let need = credits::remove(fs);
    loop {
        // Each metadata block may need a revoke record, and a handle has room for this many.
        let mut blocks = if is_metadata(fs, inode) {
            METADATA_BLOCKS
        } else {
            u64::MAX
        };
        {
            let map = ExclusiveMap::lock(inode);
            MapView::lock(&fs.maps, &inode.known).drop_delayed(start, end);
            while start < end && blocks > 0 && h.ensure(need)? {
                let limit = Limit {
                    extents: step_extents(fs, h),
                    blocks,
                };
                let (clear_from, freed) = remove_step(fs, h, &map, (from, end), limit)?;
                debug_assert!(
                    (start..=end).contains(&clear_from) && (clear_from < end || freed == 0),
                    "each step removes or ends"
                );
                debug_assert!(
                    freed <= blocks,
                    "within the revoke records of the handle (J28)"
                );
                end = clear_from;
                blocks -= freed;
            }
        }
        if start >= end {
            return Ok(());
        }
        h.restart(need)?;
        fs.check_removal_may_end()?;
    }
}

/// Number of extents whose groups the remaining credits can pay for, at least one.
fn step_extents(fs: &Fs, h: &Handle) -> usize {
    let each = credits::remove_extent(&fs.layout);
    let base = credits::remove(fs) - each;
    debug_assert!(h.credits_left() >= base, "the step was ensured (J22)");
    let spare = h.credits_left().saturating_sub(base);
    let count = spare / each;
    count.clamp(1, STEP_EXTENTS) as usize
}

/// One step of [`remove`]. Returns the block from which on nothing is left, and the number of freed
/// blocks.
fn remove_step(
    fs: &Fs,
    h: &mut Handle,
    map: &ExclusiveMap<'_>,
    (from, end): (Lblk, u64),
    limit: Limit,
) -> Result<(u64, u64)> {
    let inode = map.inode();
    let (parts, runs, clear_from, mut result) = if has_extents(inode) {
        let change = ToldChange {
            map,
            pool: true,
            blocks: u64::from(from.get())..end,
        };
        let (removed, freed) = with_told_nodes(fs, h, change, |nodes| {
            let removed = extent_tree::remove_some(nodes, from, end, limit)?;
            let clusters = ClusterMap {
                layout: &fs.layout,
                ino: inode.ino,
                nodes: &*nodes,
            };
            let freed = clusters.freed_space(&removed.parts);
            for freed in &freed.runs {
                nodes.sub_blocks(freed.run.len);
            }
            Ok((removed, freed))
        })?;
        // As with a bitmap that cannot be read: what is free is not known.
        if let Some(error @ Error::Io(_)) = &freed.failure {
            stop(h, error);
        }
        let parts: Vec<Run> = removed.parts.iter().map(run_of).collect();
        (
            parts,
            freed.runs,
            removed.clear_from,
            freed.failure.map_or(Ok(()), Err),
        )
    } else {
        let (runs, clear_from, result) = indirect::remove_some(fs, h, map, (from, end), limit)
            .inspect_err(|error| fs.fault.report(fs, error))?;
        let freed = runs
            .iter()
            .copied()
            .map(FreedRun::without_clusters)
            .collect();
        (runs, freed, clear_from, result)
    };
    let hole = Status::hole(Lblk::new(at_most_u32(clear_from)), end);
    if hole.len > 0 {
        MapView::lock(&fs.maps, &inode.known).set(hole, ReservationFate::GiveBack);
    }
    fs.stats.extents_removed.add(parts.len() as u64);
    let mut removed = 0;
    for part in parts {
        removed += part.len.get();
        // The map is right already: go on, and report the first failure.
        if is_metadata(fs, inode) {
            result = result.and(alloc::forget_blocks(h, part));
        }
    }
    for freed in runs {
        result = result.and(free_or_keep(fs, h, inode, &freed));
    }
    result.inspect_err(|error| fs.fault.report(fs, error))?;
    Ok((clear_from, removed))
}

fn run_of(extent: &Extent) -> Run {
    Run {
        start: extent.pblk,
        len: Blocks::new(u64::from(extent.len)),
    }
}

/// Frees what a removal has left without a block. A cluster with delayed blocks beside those stays
/// reserved.
fn free_or_keep(fs: &Fs, h: &mut Handle, inode: &Inode, freed: &FreedRun) -> Result<()> {
    let kept = delayed_ends(fs, inode, &freed.clusters);
    if kept.is_empty() {
        return alloc::free_blocks(fs, h, freed.run, false);
    }
    let bits = fs.layout.cluster_bits;
    let part = |clusters: &Range<u64>| Run {
        start: freed.run.start.plus(clusters.start - freed.clusters.start),
        len: Blocks::new(clusters.end - clusters.start),
    };
    let mut result = Ok(());
    let mut rest = freed.clusters.clone();
    for cluster in kept {
        let (start, end) = (cluster << bits, (cluster + 1) << bits);
        let (reservation, freed) = alloc::free_reserved(fs, h, part(&(start..end)), inode);
        MapView::lock(&fs.maps, &inode.known).reserve_again(cluster, reservation);
        result = result.and(freed);
        // It is the first or the last.
        if start == rest.start {
            rest.start = end;
        } else {
            rest.end = start;
        }
    }
    if rest.is_empty() {
        return result;
    }
    result.and(alloc::free_blocks(fs, h, part(&rest), false))
}

/// The clusters at the ends of `clusters`, file blocks, that have delayed blocks.
fn delayed_ends(fs: &Fs, inode: &Inode, clusters: &Range<u64>) -> Vec<u64> {
    if !fs.layout.has_clusters() || clusters.is_empty() {
        return Vec::new();
    }
    let view = MapView::lock(&fs.maps, &inode.known);
    let mut ends: Vec<u64> = [clusters.start, clusters.end - 1]
        .map(|at| at >> fs.layout.cluster_bits)
        .into();
    ends.dedup();
    ends.retain(|&cluster| view.has_delayed_in(cluster));
    ends
}
