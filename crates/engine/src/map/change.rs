//! Changes of the map: the tree on disk and what is known of it together, under `map_lock` and a
//! handle.

use extant_disk::damage::MapDamage;
use extant_disk::extent::{Extent, MAX_END};
use extant_jbd2::Handle;
use extant_units::{Blocks, Lblk, Pblk, at_most_u32};

use std::ops::Range;

use super::clusters::{ClusterMap, HoleSpace, cluster_around};
use super::disk_nodes::{DiskNodes, ToldChange, has_extents, with_nodes, with_told_nodes};
use super::extent_tree;
use super::indirect;
use super::locked_map::{ExclusiveMap, SharedMap};
use super::lookup::{learn, mapping};
use super::removal::require_map_for_clusters;
use crate::alloc;
use crate::state::alloc::{AllocRequest, Run};
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, BlockMapping, MapState, MapView, ReservationFate, Status};
use crate::state::quota::SpaceClaim;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, credits};

/// A goal keeps a gap of up to this many bytes open, for the blocks in between; beyond that, a file
/// is sparse. A kernel above has some ten requests of 1 MiB in flight, and they arrive in any
/// order.
const MAX_GAP: u64 = 16 << 20;
/// Allocates blocks for `lblk` and returns their mapping: 1 to `len` blocks from `lblk` on. A range
/// that is allocated already is returned as it is. Needs [`credits::allocate`] credits. Consumes
/// the reservations of delayed blocks. In a block map all blocks are written ones, whatever `how`
/// says.
///
/// # Errors
/// [`crate::Error::NoSpace`], with nothing mapped; damage; a stopped journal;
/// [`crate::Error::FileTooBig`] past the last block that a block map can hold.
pub(crate) fn allocate(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    lblk: Lblk,
    len: u32,
    how: AllocateMode,
) -> Result<BlockMapping> {
    debug_assert!(len > 0, "no block is allocated");
    let map = ExclusiveMap::lock(inode);
    let found = {
        // Looked up again, now that no thread can change it: a truncation may have been first.
        let (status, view) = learn(fs, &map, lblk)?;
        mapping(&view, &status, lblk, len)
    };
    let delayed = match found.state {
        MapState::Delayed => true,
        MapState::Hole if how.only_delayed => return Ok(found),
        MapState::Hole => false,
        MapState::Written(_) | MapState::Unwritten(_) => return Ok(found),
    };
    require_map_for_clusters(fs, inode)?;
    let unwritten = how.unwritten && has_extents(inode);
    // Room for the entry first: after the data blocks are allocated nothing can run out of space
    // any more.
    let (goal, most) = make_room_for_entry(fs, h, &map, lblk, delayed, how)?;
    let space = space_of_hole(fs, &map, lblk, found.len.min(most))?;
    let (reserved, want) = reserved_clusters(fs, inode, (lblk, space), delayed)?;
    let (pblk, len, gained, _claim) = match space.shared {
        Some(pblk) => (pblk, want, Run::NONE, None),
        None => {
            let mut request = HoleRequest {
                lblk,
                want,
                reserved,
                how,
            };
            let claim = claim_space(fs, inode, &mut request)?;
            let want = request.want;
            let run = allocate_run(fs, h, &map, request, goal)?;
            let place = u64::from(fs.layout.place_in_cluster(lblk));
            let len = at_most_u32(run.len.get() - place).min(want);
            (run.start.plus(place), len, run, claim)
        }
    };
    debug_assert!((1..=want).contains(&len), "what was asked for");
    let extent = Extent {
        lblk,
        len,
        pblk,
        unwritten,
    };
    let new = NewExtent {
        extent,
        gained,
        reserved,
    };
    let seq = enter(fs, h, &map, new)?;
    fs.maps.status.shrink();
    let Status { len, state, .. } = Status::of(&extent);
    Ok(BlockMapping {
        lblk,
        len,
        state,
        new: true,
        seq,
    })
}

/// Up to `want` blocks from `lblk` on, none of whose clusters the file has yet.
#[derive(Clone, Copy)]
struct HoleRequest {
    lblk: Lblk,
    want: u32,
    /// They are reserved.
    reserved: bool,
    how: AllocateMode,
}

/// Allocates the clusters of `request`. `goal` is the location beside those that the file has.
fn allocate_run(
    fs: &Fs,
    h: &mut Handle,
    map: &ExclusiveMap<'_>,
    request: HoleRequest,
    goal: Option<Pblk>,
) -> Result<Run> {
    let inode = map.inode();
    let HoleRequest {
        lblk,
        want,
        reserved,
        how,
    } = request;
    let goal = how
        .goal
        .or(goal)
        .filter(|&goal| goal < fs.layout.end())
        .unwrap_or_else(|| goal_without_neighbours(fs, inode, lblk, want));
    let place = fs.layout.place_in_cluster(lblk);
    let request = AllocRequest {
        metadata: how.metadata,
        privileged: how.privileged,
        reserved,
        pool: reserved,
        narrow: !has_extents(inode),
        stream: (inode.kind == FileKind::Regular && how.goal.is_none()).then_some(inode.ino),
        ..AllocRequest::new(
            fs.layout.cluster_floor(goal),
            Blocks::new(u64::from(place) + u64::from(want)),
        )
    };
    alloc::allocate_blocks(fs, h, &request).inspect_err(|error| fs.fault.report(fs, error))
}

/// Returns whether `space`, that of the hole from `lblk` on, is reserved, and for how many blocks
/// of it that is so: they may be `delayed`, or lie in a cluster with others that are.
fn reserved_clusters(
    fs: &Fs,
    inode: &Inode,
    (lblk, space): (Lblk, HoleSpace),
    delayed: bool,
) -> Result<(bool, u32)> {
    let len = space.len;
    if !fs.layout.has_clusters() || space.shared.is_some() {
        return Ok((delayed, len));
    }
    let at = u64::from(lblk.get());
    let first = cluster_around(&fs.layout, at);
    let last = cluster_around(&fs.layout, at + u64::from(len) - 1);
    let number = |cluster: &Range<u64>| cluster.start >> fs.layout.cluster_bits;
    let view = MapView::lock(&fs.maps, &inode.known);
    let shared = view.shared_clusters();
    let is_lost = |cluster: &Range<u64>| shared.contains(&number(cluster));
    if is_lost(&first) || is_lost(&last) {
        // Nothing of the cluster is mapped, so it should be reserved: the map was damaged.
        let error = Error::corrupt(Location::Inode(inode.ino), MapDamage::DelayedMapped);
        drop(view);
        fs.fault.report(fs, &error);
        return Err(error);
    }
    if delayed {
        return Ok((true, len));
    }
    if view.has_delayed_in(number(&first)) {
        return Ok((true, at_most_u32(first.end - at).min(len)));
    }
    let ends_before = first != last && view.has_delayed_in(number(&last));
    let len = match ends_before {
        true => at_most_u32(last.start - at),
        false => len,
    };
    Ok((false, len))
}

/// The space of `len` blocks from `lblk` on, a hole of the locked map.
pub(super) fn space_of_hole(
    fs: &Fs,
    map: &ExclusiveMap<'_>,
    lblk: Lblk,
    len: u32,
) -> Result<HoleSpace> {
    if !fs.layout.has_clusters() {
        return Ok(HoleSpace { shared: None, len });
    }
    let root = map.inode().core.read().i_block;
    let nodes = DiskNodes::of(fs, map, root);
    let clusters = ClusterMap {
        layout: &fs.layout,
        ino: map.inode().ino,
        nodes: &nodes,
    };
    let space = clusters.space_of_hole(lblk, len);
    space.inspect_err(|error| fs.fault.report(fs, error))
}

/// Claims the clusters of `request` from the quotas of `inode`, until they are counted, or as many
/// as these allow: it has no more then.
fn claim_space(fs: &Fs, inode: &Inode, request: &mut HoleRequest) -> Result<Option<SpaceClaim>> {
    if request.reserved {
        return Ok(None); // the reservation is in the quotas, and `enter` claims from it
    }
    let HoleRequest {
        lblk, want, how, ..
    } = *request;
    let (layout, place) = (&fs.layout, fs.layout.place_in_cluster(lblk));
    let blocks = layout.in_whole_clusters(u64::from(place) + u64::from(want));
    let clusters = at_most_u32(blocks >> layout.cluster_bits);
    let unit = layout.cluster_bytes();
    let quota = inode.quota.as_ref();
    let (claim, clusters) = SpaceClaim::take_some(quota, clusters, unit, how.privileged)?;
    let blocks = (u64::from(clusters) << layout.cluster_bits) - u64::from(place);
    request.want = at_most_u32(blocks).min(want);
    Ok(Some(claim))
}

/// Makes room in the map for the entry of `lblk`. Returns the goal beside its neighbours, and the
/// blocks that the entry can take at most.
fn make_room_for_entry(
    fs: &Fs,
    h: &mut Handle,
    map: &ExclusiveMap<'_>,
    lblk: Lblk,
    delayed: bool,
    how: AllocateMode,
) -> Result<(Option<Pblk>, u32)> {
    let extents = has_extents(map.inode());
    let unwritten = how.unwritten && extents;
    // Room changes no block's place.
    let change = ToldChange {
        map,
        pool: delayed,
        blocks: 0..0,
    };
    with_told_nodes(fs, h, change, |nodes| {
        nodes.allow_reserve(how.privileged);
        if extents {
            let beside = extent_tree::prepare(nodes, lblk)?;
            return Ok((
                goal_beside(beside, lblk, max_gap(fs)),
                Extent::max_len(unwritten),
            ));
        }
        let room = indirect::prepare(nodes, lblk)?;
        let most = room.end - u64::from(lblk.get());
        debug_assert!(most > 0, "room was made for the block itself");
        Ok((room.goal, at_most_u32(most)))
    })
}

/// An extent to enter in a map.
#[derive(Clone, Copy)]
pub(super) struct NewExtent {
    pub(super) extent: Extent,
    /// The clusters that are new in the file.
    pub(super) gained: Run,
    /// These were reserved.
    pub(super) reserved: bool,
}

/// Enters an extent in the map and in memory. Room for it was made before. Returns the cookie
/// afterwards. On failure the clusters that it gained are free again.
pub(super) fn enter(
    fs: &Fs,
    h: &mut Handle,
    map: &ExclusiveMap<'_>,
    new: NewExtent,
) -> Result<u64> {
    let inode = map.inode();
    let NewExtent {
        extent,
        gained,
        reserved: delayed,
    } = new;
    let bytes = fs.layout.block_size.bytes_u64() * gained.len.get();
    let reserved = inode.quota.as_ref().filter(|_| delayed);
    let claim = SpaceClaim::of_reserved(reserved, bytes);
    let change = ToldChange {
        map,
        pool: delayed,
        blocks: u64::from(extent.lblk.get())..extent.end(),
    };
    let entered = with_told_nodes(fs, h, change, |nodes| {
        if has_extents(inode) {
            extent_tree::insert(nodes, extent)?;
        } else {
            indirect::enter(nodes, extent)?;
        }
        nodes.add_blocks(gained.len);
        Ok(())
    });
    let mut view = MapView::lock(&fs.maps, &inode.known);
    let fate = if delayed {
        ReservationFate::Consume
    } else {
        ReservationFate::GiveBack
    };
    if let Err(error) = entered {
        // Damage, or a stopped journal: the file system stops changes. Its counts must stay right.
        let hole = Status {
            state: MapState::Hole,
            ..Status::of(&extent)
        };
        view.set(hole, fate);
        drop(view);
        claim.consume();
        if !gained.len.is_zero() {
            let freed = alloc::free_blocks(fs, h, gained, false);
            freed.unwrap_or_else(|error| fs.fault.report(fs, &error));
        }
        return Err(error);
    }
    fs.stats.extents_inserted.bump();
    let status = Status::of(&extent);
    view.set(status, fate);
    claim.consume();
    Ok(view.cookie(status.state))
}

/// Blocks of a gap between extents that stays open at most.
fn max_gap(fs: &Fs) -> u64 {
    MAX_GAP / fs.layout.block_size.bytes_u64()
}

/// The goal for `want` blocks from `lblk` on in a file without an extent near them.
fn goal_without_neighbours(fs: &Fs, inode: &Inode, lblk: Lblk, want: u32) -> Pblk {
    let goal = alloc::goal_for(fs, inode);
    let before = u64::from(lblk.get());
    if before == 0 || before > max_gap(fs) || inode.kind != FileKind::Regular {
        return goal;
    }
    // The blocks before these come later, and belong in front of them.
    let room = alloc::room_for(fs, goal, before + u64::from(want));
    room.map_or(goal, |start| start.plus(before))
}

/// The goal for `lblk` beside the extents before and after it. A gap of up to `max_gap` blocks
/// stays open.
fn goal_beside(
    (before, after): (Option<Extent>, Option<Extent>),
    lblk: Lblk,
    max_gap: u64,
) -> Option<Pblk> {
    let at = u64::from(lblk.get());
    // Saturates, as on a hostile image another file may have changed the node since the lookup.
    if let Some(before) = before {
        let gap = at.saturating_sub(before.end());
        let gap = if gap > max_gap { 0 } else { gap };
        return before
            .pblk
            .checked_add(u64::from(before.len))?
            .checked_add(gap);
    }
    let after = after?;
    let gap = u64::from(after.lblk.get()).saturating_sub(at);
    after.pblk.checked_sub(gap).filter(|_| gap <= max_gap)
}

/// Converts the unwritten parts of `len` blocks from `lblk` on to written, exactly. Holes, delayed
/// and written parts stay. Needs [`credits::convert`] credits. Where the range is in many extents,
/// the handle is extended or restarted between them (each part is a valid state). At least one
/// credit is left afterwards.
///
/// # Errors
/// Damage, a stopped journal, or [`crate::Error::NoSpace`] if a split needs a node and not even the
/// pool has a block. What was converted before stays.
pub(crate) fn convert_to_written(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    lblk: Lblk,
    len: u32,
) -> Result<()> {
    convert(fs, h, inode, (lblk, len), false)
}

/// Converts the written parts of `len` blocks from `lblk` on to unwritten: they read as zeros and
/// stay allocated. The rest as [`convert_to_written`]. The caller has dropped the page cache over
/// the range and prevents its refill.
///
/// # Errors
/// As [`convert_to_written`].
pub(crate) fn convert_to_unwritten(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    lblk: Lblk,
    len: u32,
) -> Result<()> {
    convert(fs, h, inode, (lblk, len), true)
}

fn convert(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    (lblk, len): (Lblk, u32),
    unwritten: bool,
) -> Result<()> {
    debug_assert!(len > 0, "no block is converted");
    let end = (u64::from(lblk.get()) + u64::from(len)).min(MAX_END);
    let mut at = lblk;
    let step = credits::convert(fs);
    loop {
        {
            let map = ExclusiveMap::lock(inode);
            if !has_extents(inode) {
                return Ok(());
            }
            while u64::from(at.get()) < end && h.ensure(step)? {
                let change = ToldChange {
                    map: &map,
                    pool: true,
                    blocks: u64::from(at.get())..end,
                };
                let done = with_told_nodes(fs, h, change, |nodes| {
                    extent_tree::convert_one(nodes, at, end, unwritten)
                })?;
                let Some(part) = done else { return Ok(()) };
                debug_assert!(at <= part.lblk && part.end() <= end, "{part:?} from {at}");
                fs.stats.extents_converted.bump();
                let status = Status::of(&Extent { unwritten, ..part });
                MapView::lock(&fs.maps, &inode.known).convert(status);
                at = u32::try_from(part.end()).map_or(Lblk::MAX, Lblk::new);
            }
        }
        if u64::from(at.get()) >= end {
            fs.maps.status.shrink();
            return Ok(());
        }
        h.restart(step)?;
    }
}

/// Before a reservation of `len` blocks from `lblk` on: allocates the indirect blocks that their
/// pointers need, so that their own allocation needs no more space than was reserved. In an extent
/// tree the pool stands for that room. Starts handles.
///
/// # Errors
/// [`crate::Error::NoSpace`], with room for the first blocks made; [`crate::Error::FileTooBig`];
/// damage; a stopped journal.
pub(crate) fn reserve_indirect_blocks(
    fs: &Fs,
    inode: &Inode,
    lblk: Lblk,
    len: u32,
    privileged: bool,
) -> Result<()> {
    let end = u64::from(lblk.get()) + u64::from(len);
    let mut at = lblk;
    while u64::from(at.get()) < end && !has_extents(inode) {
        let known = {
            let map = SharedMap::lock(inode);
            let root = inode.core.read().i_block;
            indirect::room(&DiskNodes::of(fs, &map, root), at)
                .inspect_err(|error| fs.fault.report(fs, error))?
        };
        let next = match known {
            Some(next) => next,
            None => {
                let mut h = fs.start(credits::allocate(fs))?;
                let map = ExclusiveMap::lock(inode);
                let made = with_nodes(fs, &mut h, &map, false, |nodes| {
                    nodes.allow_reserve(privileged);
                    indirect::prepare(nodes, at)
                })?;
                made.end
            }
        };
        let Ok(next) = u32::try_from(next) else { break };
        at = Lblk::new(next);
    }
    Ok(())
}
