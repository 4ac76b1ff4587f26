//! Looking up mappings.
//!
//! A lookup asks the extent status tree for the map on disk and the I/O tree for delayed blocks,
//! both at once ([`MapView`]), and reads the disk only for what neither knows.

use extant_disk::damage::MapDamage;
use extant_disk::extent::MAX_END;
use extant_disk::inode::InodeFlags;
use extant_units::{Lblk, at_most_u32};

use super::disk_nodes::DiskNodes;
use super::extent_tree::{self, Found};
use super::indirect;
use super::locked_map::{LockedMap, SharedMap};
use crate::state::inode::Inode;
use crate::state::map::{BlockMapping, MapState, MapView, Status};
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The mapping of `lblk`: a range of 1 to `max` blocks from it on. What is known in memory answers
/// if it can, else the tree on disk, whose answer is remembered. Blocks behind the end of the file
/// are holes.
///
/// # Errors
/// Damage or a failed read in the tree; [`Error::FileTooBig`] past the last possible file block.
pub(crate) fn lookup(fs: &Fs, inode: &Inode, lblk: Lblk, max: u32) -> Result<BlockMapping> {
    let status = {
        let mut view = MapView::lock(&fs.maps, &inode.known);
        if let Some(found) = view.find(lblk) {
            fs.stats.es_hits.bump();
            return Ok(mapping(&view, &found, lblk, max));
        }
        drop(view);
        let map = SharedMap::lock(inode);
        let (found, view) = learn(fs, &map, lblk)?;
        mapping(&view, &found, lblk, max)
    };
    fs.maps.status.shrink();
    Ok(status)
}

/// The known range of `lblk`, after a lookup on disk if nothing is known, with the view still
/// locked.
pub(super) fn learn<'a, G>(
    fs: &'a Fs,
    map: &LockedMap<'a, G>,
    lblk: Lblk,
) -> Result<(Status, MapView<'a>)> {
    let inode = map.inode();
    let mut view = MapView::lock(&fs.maps, &inode.known);
    if let Some(found) = view.find(lblk) {
        return Ok((found, view));
    }
    drop(view);
    fs.stats.es_misses.bump();
    let found = on_disk(fs, map, lblk).inspect_err(|error| fs.fault.report(fs, error))?;
    view = MapView::lock(&fs.maps, &inode.known);
    if found.state != MapState::Hole && view.has_delayed(u64::from(found.lblk.get()), found.end()) {
        // A delayed block is a hole on disk (J14), unless the map's blocks belong to another file
        // as well.
        let error = Error::corrupt(Location::Inode(inode.ino), MapDamage::DelayedMapped);
        fs.fault.report(fs, &error);
        return Err(error);
    }
    view.fill(found);
    // Meanwhile another thread may have reserved a part of a hole.
    let known = view.find(lblk);
    debug_assert!(known.is_some(), "what was just filled in is known (J14)");
    Ok((known.unwrap_or(found), view))
}

/// The range around `lblk` in the map on disk.
pub(super) fn on_disk<G>(fs: &Fs, map: &LockedMap<'_, G>, lblk: Lblk) -> Result<Status> {
    let inode = map.inode();
    if u64::from(lblk.get()) >= MAX_END {
        return Err(Error::FileTooBig);
    }
    if !matches!(
        inode.kind,
        FileKind::Regular | FileKind::Directory | FileKind::Symlink
    ) {
        return Err(Error::Invalid);
    }
    let (root, flags) = {
        let core = inode.core.read();
        (core.i_block, core.flags)
    };
    if flags.contains(InodeFlags::INLINE_DATA) {
        return Err(Error::NotSupported("a map of inline data"));
    }
    let nodes = DiskNodes::of(fs, map, root);
    if !flags.contains(InodeFlags::EXTENTS) {
        return indirect::find(&nodes, lblk);
    }
    in_tree(&nodes, lblk)
}

/// The range around `lblk`, which lies before [`MAX_END`], in the extent tree.
pub(super) fn in_tree(nodes: &DiskNodes<'_>, lblk: Lblk) -> Result<Status> {
    Ok(match extent_tree::find(nodes, lblk)? {
        Found::Extent(extent) => Status::of(&extent),
        Found::Hole { start, end } => Status::hole(start, end),
    })
}

/// The part from `lblk` on of `status`, which `view` has just shown: at most `max` blocks.
pub(super) fn mapping(view: &MapView<'_>, status: &Status, lblk: Lblk, max: u32) -> BlockMapping {
    let from = u64::from(lblk.get());
    let part = status.cut(from, from + u64::from(max.max(1)));
    debug_assert!(
        part.is_some(),
        "the block lies in the range that was found for it"
    );
    let part = part.unwrap_or(*status);
    debug_assert!(
        part.lblk == lblk && part.len > 0,
        "{part:?} for block {lblk}"
    );
    BlockMapping {
        lblk: part.lblk,
        len: part.len,
        state: part.state,
        new: false,
        seq: view.cookie(part.state),
    }
}

/// The range that starts at `at`, holes and delayed ones included, as long as it is one range on
/// the device, and not past `to`; `None` from there on. True when it was looked up: successive
/// ranges are no snapshot.
///
/// # Errors
/// Those of [`lookup`]; [`Error::Interrupted`].
pub(crate) fn range_at(fs: &Fs, inode: &Inode, at: u64, to: u64) -> Result<Option<Status>> {
    let to = to.min(MAX_END);
    let mut joined: Option<Status> = None;
    let mut at = at;
    // Each round moves on by at least one block.
    while at < to {
        let Ok(lblk) = u32::try_from(at).map(Lblk::new) else {
            break;
        };
        fs.check_interrupted()?;
        let left = at_most_u32(to - at);
        let found = lookup(fs, inode, lblk, left)?;
        debug_assert!(found.len <= left, "{found:?} for {left} blocks");
        let next = Status {
            lblk: found.lblk,
            len: found.len,
            state: found.state,
        };
        at = next.end();
        match &mut joined {
            Some(whole) if whole.merges_with(&next) => whole.len += next.len,
            Some(_) => break,
            none => *none = Some(next),
        }
    }
    Ok(joined)
}

/// Returns whether all of `mapping` is unchanged, as far as that is known without a lookup on disk:
/// `false` also if the range was forgotten. The map may have changed elsewhere.
pub(crate) fn still_holds(fs: &Fs, inode: &Inode, mapping: &BlockMapping) -> bool {
    let expected = Status {
        lblk: mapping.lblk,
        len: mapping.len,
        state: mapping.state,
    };
    let known = MapView::lock(&fs.maps, &inode.known).find(mapping.lblk);
    known.and_then(|known| known.cut(u64::from(expected.lblk.get()), expected.end()))
        == Some(expected)
}

/// Forgets everything that is known and gives reservations back.
#[cfg(test)]
pub(crate) fn evict(fs: &Fs, inode: &Inode) {
    MapView::lock(&fs.maps, &inode.known).forget(0, MAX_END);
}

/// All ranges of a file, and the result that ended the walk.
#[cfg(test)]
pub(crate) fn ranges(fs: &Fs, inode: &Inode) -> (Vec<Status>, Result<()>) {
    let mut all: Vec<Status> = Vec::new();
    loop {
        let at = all.last().map_or(0, Status::end);
        match range_at(fs, inode, at, MAX_END) {
            Ok(Some(range)) => all.push(range),
            Ok(None) => return (all, Ok(())),
            Err(error) => return (all, Err(error)),
        }
    }
}
