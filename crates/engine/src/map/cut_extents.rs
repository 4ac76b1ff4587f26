//! Cutting extents where a range operation starts and ends, before it changes anything else.
//!
//! Only a cut can need a block for a node. The steps after it (removing, converting, shifting whole
//! extents) cannot run out of space. So an operation that cuts first has changed nothing visible if
//! there is no space.
//!
//! # Locks
//! `map_lock` exclusively. The status tree knows runs, not extents: nothing changes there.

use extant_disk::extent::MAX_END;
use extant_jbd2::Handle;
use extant_units::Lblk;

use super::disk_nodes::{DiskNodes, has_extents, with_nodes};
use super::extent_tree::{self, Found};
use super::locked_map::{ExclusiveMap, SharedMap};
use crate::state::inode::Inode;
use crate::types::error::Result;
use crate::volume::Fs;

/// Returns whether `at` lies within an extent, and is not its first block. Never in files without
/// extents.
///
/// # Errors
/// Damage, or a failed read.
pub(crate) fn is_within_extent(fs: &Fs, inode: &Inode, at: u64) -> Result<bool> {
    let Some(at) = u32::try_from(at).ok().filter(|&at| u64::from(at) < MAX_END) else {
        return Ok(false);
    };
    let map = SharedMap::lock(inode);
    if !has_extents(inode) {
        return Ok(false);
    }
    let nodes = DiskNodes::of(fs, &map, inode.core.read().i_block);
    let found = extent_tree::find(&nodes, Lblk::new(at));
    let found = found.inspect_err(|error| fs.fault.report(fs, error))?;
    Ok(matches!(found, Found::Extent(extent) if extent.lblk.get() < at))
}

/// Makes `at` the first block of an extent, if it lies within one. Needs
/// [`crate::volume::credits::allocate`] credits. Does nothing in files without extents.
///
/// # Errors
/// [`crate::Error::NoSpace`], with nothing changed; damage; a stopped journal.
pub(crate) fn split(fs: &Fs, h: &mut Handle, inode: &Inode, at: u64) -> Result<()> {
    let Some(at) = u32::try_from(at).ok().filter(|&at| u64::from(at) < MAX_END) else {
        return Ok(());
    };
    let map = ExclusiveMap::lock(inode);
    if has_extents(inode) {
        with_nodes(fs, h, &map, true, |nodes| {
            extent_tree::split_at(nodes, Lblk::new(at))
        })?;
    }
    Ok(())
}

/// Cuts the next written extent in `from..to` that is too long to become unwritten in one piece.
/// Needs [`crate::volume::credits::allocate`] credits. Returns the block to go on at; `None` at the
/// end.
///
/// # Errors
/// As [`split`].
pub(crate) fn split_longest(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    from: u64,
    to: u64,
) -> Result<Option<u64>> {
    let Ok(from) = u32::try_from(from) else {
        return Ok(None);
    };
    let map = ExclusiveMap::lock(inode);
    if !has_extents(inode) {
        return Ok(None);
    }
    let next = with_nodes(fs, h, &map, true, |nodes| {
        extent_tree::split_longest(nodes, Lblk::new(from), to)
    })?;
    debug_assert!(
        next.is_none_or(|next| next > u64::from(from)),
        "{next:?} after {from}"
    );
    Ok(next)
}
