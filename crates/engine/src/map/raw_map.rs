//! The maps of internal files before the file system is built: the journal's, the orphan file's.

use std::ops::Range;

use extant_disk::damage::ReservedDamage;
use extant_disk::extent::{MAX_END, ROOT_BYTES};
use extant_jbd2::BlockCache;
use extant_units::{Ino, Lblk, Pblk};

use super::disk_nodes::DiskNodes;
use super::lookup::in_tree;
use super::{DistinctRuns, indirect};
use crate::state::map::{MapState, Status};
use crate::state::volume::{Layout, SystemZones};
use crate::types::error::{Error, Location, Result};

/// A run of file blocks and its location.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RawRun {
    /// First file block.
    pub(crate) lblk: Lblk,
    /// First physical block.
    pub(crate) pblk: Pblk,
    /// Blocks.
    pub(crate) len: u32,
}

/// Parts for reading the map of an inode before there is an inode in memory.
pub(crate) struct RawMap<'a> {
    /// The metadata cache.
    pub(crate) cache: &'a BlockCache,
    /// The file system's shape.
    pub(crate) layout: &'a Layout,
    /// Blocks that the file may not own. Empty while they are not known yet.
    pub(crate) zones: &'a SystemZones,
    /// The inode.
    pub(crate) ino: Ino,
    /// Its generation.
    pub(crate) generation: u32,
    /// Its `i_block`.
    pub(crate) i_block: [u8; ROOT_BYTES],
    /// That is an extent tree's root (the inode's EXTENTS flag), not block pointers.
    pub(crate) extents: bool,
}

/// Calls `each` with the ranges that an extent tree has in `range`, holes included, in order.
///
/// # Errors
/// Damage or a failed read; those of `each`.
pub(crate) fn raw_ranges(
    map: &RawMap<'_>,
    range: Range<u64>,
    mut each: impl FnMut(Status) -> Result<()>,
) -> Result<()> {
    let owner = (map.ino, map.generation);
    let nodes = DiskNodes::new(map.cache, map.layout, map.zones, owner, map.i_block);
    let end = range.end.min(MAX_END);
    let mut at = range.start;
    while at < end {
        let Ok(lblk) = u32::try_from(at) else { break };
        let found = in_tree(&nodes, Lblk::new(lblk))?;
        let Some(part) = found.cut(at, end) else {
            let damage = ReservedDamage::NotMapped { block: at };
            return Err(Error::corrupt(Location::Inode(map.ino), damage));
        };
        at = part.end();
        each(part)?;
    }
    Ok(())
}

/// The runs of the first `blocks` blocks of a file that has no holes there: adjacent runs merged,
/// the last cut at `blocks`.
///
/// # Errors
/// Damage or a failed read; [`Error::Corrupt`] for a hole, unwritten blocks, or a block that occurs
/// twice.
pub(crate) fn raw_runs(map: &RawMap<'_>, blocks: u32) -> Result<Vec<RawRun>> {
    let owner = (map.ino, map.generation);
    let nodes = DiskNodes::new(map.cache, map.layout, map.zones, owner, map.i_block);
    let mut runs: Vec<RawRun> = Vec::new();
    let mut seen = DistinctRuns::default();
    let mut at = 0;
    // Each round moves on by at least one block, and `blocks` is the caller's.
    while at < blocks {
        let lblk = Lblk::new(at);
        let found = if map.extents {
            in_tree(&nodes, lblk)?
        } else {
            indirect::find(&nodes, lblk)?
        };
        let part = found.cut(u64::from(at), u64::from(blocks));
        let Some((part, MapState::Written(pblk))) = part.map(|part| (part, part.state)) else {
            let damage = ReservedDamage::NotMapped { block: at.into() };
            return Err(Error::corrupt(Location::Inode(map.ino), damage));
        };
        // Without this, a map of a few blocks could name more runs than memory can hold.
        if !seen.add(pblk.get(), pblk.plus(part.len.into()).get()) {
            let damage = ReservedDamage::RepeatedBlock { block: pblk };
            return Err(Error::corrupt(Location::Inode(map.ino), damage));
        }
        at += part.len;
        match runs.last_mut() {
            Some(last) if last.pblk.checked_add(u64::from(last.len)) == Some(pblk) => {
                last.len += part.len;
            }
            _ => runs.push(RawRun {
                lblk,
                pblk,
                len: part.len,
            }),
        }
    }
    let len: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
    debug_assert_eq!(len, u64::from(blocks), "all of the file, and no more");
    Ok(runs)
}
