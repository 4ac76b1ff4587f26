//! Changes of the map: the tree on disk and what is known of it together, under `map_lock` and a
//! handle.

use extant_disk::extent::{Extent, MAX_END};
use extant_jbd2::Handle;
use extant_units::{Blocks, Lblk, Pblk, at_most_u32, exact_u32};

use super::disk_nodes::{DiskNodes, has_extents, with_nodes};
use super::extent_tree::{self, Limit};
use super::indirect;
use super::locked_map::{ExclusiveMap, SharedMap};
use super::lookup::{learn, mapping};
use crate::alloc;
use crate::inode::path_choice;
use crate::state::alloc::{AllocRequest, Run};
use crate::state::inode::Inode;
use crate::state::map::{AllocateMode, BlockMapping, MapState, MapView, ReservationFate, Status};
use crate::state::quota::SpaceClaim;
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::{Fs, credits};

/// A goal keeps a gap of up to this many bytes open, for the blocks in between; beyond that, a file
/// is sparse. A kernel above has some ten requests of 1 MiB in flight, and they arrive in any
/// order.
const MAX_GAP: u64 = 16 << 20;
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
    let extents = has_extents(inode);
    let unwritten = how.unwritten && extents;
    // Room for the entry first: after the data blocks are allocated nothing can run out of space
    // any more.
    let (goal, most) = make_room_for_entry(fs, h, &map, lblk, delayed, how)?;
    let want = found.len.min(most);
    let (_claim, want) = claim_space(fs, inode, want, delayed, how.privileged)?;
    let goal = how
        .goal
        .or(goal)
        .filter(|&goal| goal < fs.layout.end())
        .unwrap_or_else(|| goal_without_neighbours(fs, inode, lblk, want));
    let run = alloc::allocate_blocks(
        fs,
        h,
        &AllocRequest {
            metadata: how.metadata,
            privileged: how.privileged,
            reserved: delayed,
            pool: delayed,
            narrow: !extents,
            stream: (inode.kind == FileKind::Regular && how.goal.is_none()).then_some(inode.ino),
            ..AllocRequest::new(goal, Blocks::new(u64::from(want)))
        },
    )
    .inspect_err(|error| fs.fault.report(fs, error))?;
    debug_assert!(
        (1..=u64::from(want)).contains(&run.len.get()),
        "what was asked for"
    );
    let extent = Extent {
        lblk,
        len: exact_u32(run.len.get()).min(want),
        pblk: run.start,
        unwritten,
    };
    debug_assert_eq!(u64::from(extent.len), run.len.get(), "all of the run");
    let seq = enter(fs, h, &map, extent, delayed)?;
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

/// Claims up to `want` blocks from the quotas of `inode`, until they are counted. Returns how many.
fn claim_space(
    fs: &Fs,
    inode: &Inode,
    want: u32,
    delayed: bool,
    privileged: bool,
) -> Result<(Option<SpaceClaim>, u32)> {
    if delayed {
        return Ok((None, want)); // the reservation is in the quotas, and `enter` claims from it
    }
    let unit = fs.layout.block_size.bytes_u64();
    let (claim, want) = SpaceClaim::take_some(inode.quota.as_ref(), want, unit, privileged)?;
    Ok((Some(claim), want))
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
    with_nodes(fs, h, map, delayed, |nodes| {
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

/// Enters `extent` in the map and in memory. Room for it was made before; its blocks were `delayed`
/// or a hole. Returns the cookie afterwards. On failure the blocks are free again.
pub(super) fn enter(
    fs: &Fs,
    h: &mut Handle,
    map: &ExclusiveMap<'_>,
    extent: Extent,
    delayed: bool,
) -> Result<u64> {
    let inode = map.inode();
    let bytes = fs.layout.block_size.bytes_u64() * u64::from(extent.len);
    let reserved = inode.quota.as_ref().filter(|_| delayed);
    let claim = SpaceClaim::of_reserved(reserved, bytes);
    let entered = with_nodes(fs, h, map, delayed, |nodes| {
        if has_extents(inode) {
            extent_tree::insert(nodes, extent)?;
        } else {
            indirect::enter(nodes, extent)?;
        }
        nodes.add_blocks(extent.len);
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
        claim.give_up();
        let run = Run {
            start: extent.pblk,
            len: Blocks::new(u64::from(extent.len)),
        };
        let freed = alloc::free_blocks(fs, h, run, false);
        freed.unwrap_or_else(|error| fs.fault.report(fs, &error));
        return Err(error);
    }
    fs.stats.extents_inserted.bump();
    let status = Status::of(&extent);
    view.set(status, fate);
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
                let done = with_nodes(fs, h, &map, true, |nodes| {
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
    let (runs, clear_from, mut result) = if has_extents(inode) {
        let removed = with_nodes(fs, h, map, true, |nodes| {
            let removed = extent_tree::remove_some(nodes, from, end, limit)?;
            removed
                .parts
                .iter()
                .for_each(|part| nodes.sub_blocks(part.len));
            Ok(removed)
        })?;
        let run = |part: &Extent| Run {
            start: part.pblk,
            len: Blocks::new(u64::from(part.len)),
        };
        let runs = removed.parts.iter().map(run).collect();
        (runs, removed.clear_from, Ok(()))
    } else {
        indirect::remove_some(fs, h, map, (from, end), limit)
            .inspect_err(|error| fs.fault.report(fs, error))?
    };
    let hole = Status::hole(Lblk::new(at_most_u32(clear_from)), end);
    if hole.len > 0 {
        MapView::lock(&fs.maps, &inode.known).set(hole, ReservationFate::GiveBack);
    }
    fs.stats.extents_removed.add(runs.len() as u64);
    let mut freed = 0;
    for run in runs {
        freed += run.len.get();
        // The map is right already: go on, and report the first failure.
        result = result.and(alloc::free_blocks(fs, h, run, is_metadata(fs, inode)));
    }
    result.inspect_err(|error| fs.fault.report(fs, error))?;
    Ok((clear_from, freed))
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
