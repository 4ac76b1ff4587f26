//! Reserving space for writes into holes, and giving it back.
//!
//! A hole becomes delayed with the lock of what is known of the map held, so the reservation and
//! the blocks that it is for are there at once. With clusters of several blocks, it depends on
//! blocks beside the hole as well: those that are delayed, and those that are mapped. So there the
//! map is locked too.

use std::ops::Range;

use extant_disk::extent::MAX_END;
use extant_units::{Lblk, at_most_u32};

use super::clusters::cluster_around;
use super::locked_map::SharedMap;
use super::lookup::{learn, mapping};
use super::removal::require_map_for_clusters;
use crate::alloc;
use crate::state::inode::Inode;
use crate::state::map::{BlockMapping, MapState, MapView, WriteSpan};
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// For a buffered write of `span`: reserves space for the hole there, 1 to `len` blocks, which
/// becomes delayed (`new`). Any other state is returned as it is, as far as `span` is locked. Fewer
/// blocks than asked for when space is short. In a block map the caller has
/// [reserved blocks](super::reserve_indirect_blocks) for the blocks' pointers.
///
/// # Errors
/// [`Error::NoSpace`] if not one block can be reserved; those of
/// [`lookup`](super::lookup()).
pub(crate) fn reserve_delayed(
    fs: &Fs,
    inode: &Inode,
    span: WriteSpan,
    privileged: bool,
) -> Result<BlockMapping> {
    if fs.layout.has_clusters() {
        return reserve_in_clusters(fs, inode, span, privileged);
    }
    let WriteSpan { lblk, len, locked } = span;
    let mut view = MapView::lock(&fs.maps, &inode.known);
    let mut is_learnt = false;
    let known = match view.find(lblk) {
        Some(found) => {
            fs.stats.es_hits.bump();
            found
        }
        None => {
            drop(view);
            is_learnt = true;
            let map = SharedMap::lock(inode);
            let (found, again) = learn(fs, &map, lblk)?;
            view = again;
            found
        }
    };
    let found = mapping(&view, &known, lblk, locked);
    let reserved = match found.state {
        MapState::Hole => {
            let hole = BlockMapping {
                len: found.len.min(len),
                ..found
            };
            reserve_hole(
                fs,
                inode,
                &mut view,
                FoundHole {
                    hole,
                    allocated: &[],
                },
                privileged,
            )
        }
        _ => Ok(found),
    };
    drop(view);
    if is_learnt {
        fs.maps.status.shrink();
    }
    reserved
}

/// [`reserve_delayed`] on a volume with clusters: what the blocks need depends on blocks beside
/// them that are mapped, so the map stays locked meanwhile.
fn reserve_in_clusters(
    fs: &Fs,
    inode: &Inode,
    span: WriteSpan,
    privileged: bool,
) -> Result<BlockMapping> {
    require_map_for_clusters(fs, inode)?;
    let WriteSpan { lblk, len, locked } = span;
    let reserved = {
        let map = SharedMap::lock(inode);
        let look = || {
            let (known, view) = learn(fs, &map, lblk)?;
            let found = mapping(&view, &known, lblk, locked);
            Ok::<_, Error>((found, view))
        };
        let (found, view) = look()?;
        drop(view);
        if found.state != MapState::Hole {
            return Ok(found);
        }
        let len = found.len.min(len);
        let allocated = allocated_ends(fs, &map, lblk, len)?;
        let (found, mut view) = look()?;
        match found.state {
            MapState::Hole => {
                // Where it is shorter by now, it ends within a cluster that is not mapped at all.
                let len = found.len.min(len);
                let hole = BlockMapping { len, ..found };
                let allocated = &allocated;
                reserve_hole(
                    fs,
                    inode,
                    &mut view,
                    FoundHole { hole, allocated },
                    privileged,
                )
            }
            _ => Ok(found),
        }
    };
    fs.maps.status.shrink();
    reserved
}

/// A hole that a view has just shown.
struct FoundHole<'a> {
    hole: BlockMapping,
    /// The clusters at its ends that are the file's already.
    allocated: &'a [u64],
}

/// Makes `hole` delayed: all of it, or as much as there is space for.
fn reserve_hole(
    fs: &Fs,
    inode: &Inode,
    view: &mut MapView<'_>,
    hole: FoundHole<'_>,
    privileged: bool,
) -> Result<BlockMapping> {
    let FoundHole { hole, allocated } = hole;
    // Halved while it is too much: a write goes as far as there is space.
    let mut len = hole.len;
    let reservation = loop {
        let needed = view.to_reserve(hole.lblk, len, allocated);
        match alloc::reserve(fs, inode, needed, privileged) {
            Err(error) if error.is_lack_of_room() && len > 1 => len /= 2,
            other => break other?,
        }
    };
    view.set_delayed(hole.lblk, len, (reservation, allocated));
    Ok(BlockMapping {
        len,
        state: MapState::Delayed,
        new: true,
        seq: view.cookie(MapState::Delayed),
        ..hole
    })
}

/// Makes the delayed parts of `from..to` holes and gives their reservations back: a write came out
/// short, or its data could not be written. Returns how many blocks that were.
pub(crate) fn drop_delayed(fs: &Fs, inode: &Inode, from: Lblk, to: u64) -> u64 {
    // An allocation relies on the reservation from its look at the range to its end.
    let _map = SharedMap::lock(inode);
    MapView::lock(&fs.maps, &inode.known).drop_delayed(u64::from(from.get()), to)
}

/// The clusters, by number, at the ends of `len` blocks from `lblk` on, a hole, that are the file's
/// already. The map is locked, so they stay what they are.
///
/// # Errors
/// Damage, or a failed read.
fn allocated_ends(fs: &Fs, map: &SharedMap<'_>, lblk: Lblk, len: u32) -> Result<Vec<u64>> {
    let layout = &fs.layout;
    let at = u64::from(lblk.get());
    let first = cluster_around(layout, at);
    let last = cluster_around(layout, at + u64::from(len.max(1)) - 1);
    let mut ends = vec![first];
    if ends.last() != Some(&last) {
        ends.push(last);
    }
    let mut allocated = Vec::new();
    for cluster in ends {
        if is_allocated(fs, map, &cluster)? {
            allocated.push(cluster.start >> layout.cluster_bits);
        }
    }
    Ok(allocated)
}

/// Returns whether a block of the file blocks `range` is mapped.
fn is_allocated(fs: &Fs, map: &SharedMap<'_>, range: &Range<u64>) -> Result<bool> {
    let mut at = range.start;
    while at < range.end.min(MAX_END) {
        let (found, _view) = learn(fs, map, Lblk::new(at_most_u32(at)))?;
        if matches!(found.state, MapState::Written(_) | MapState::Unwritten(_)) {
            return Ok(true);
        }
        at = found.end().max(at + 1);
    }
    Ok(false)
}
