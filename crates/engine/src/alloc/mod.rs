//! Allocation of blocks and inodes: free space, reservations, and the choice of a location.
//!
//! # Credits
//! | function | metadata blocks it may modify |
//! |---|---|
//! | [`allocate_blocks`] | 2: the group's bitmap and its descriptor's block |
//! | [`free_blocks`] | bitmap and descriptor block of each group of the run; revokes for metadata |
//! | [`allocate_inode`] | [`crate::volume::credits::INODE_ALLOC`] |
//! | [`free_inode`] | 2: inode bitmap, descriptor block |
//!
//! # Invariants
//! - Blocks are claimed from the counters first ([`SpaceCounts`](crate::state::alloc::SpaceCounts))
//!   and found in the groups afterwards. A reservation therefore always finds its blocks (J12).
//! - Claims leave free what a cache above the engine may hold dirty
//!   ([`DirtyBound`](crate::state::alloc::DirtyBound)).
//! - Freed blocks count as free at once, but are handed out only after the freeing transaction is
//!   durable. In between an allocation may fail although the counters show free space;
//!   [`retry`] then helps.
//!
//! # Locks
//! One group lock at a time, below every inode lock except `core`. The tables of pending frees and
//! of windows have short locks of their own, never held together with a group lock. A request that
//! found no space waits, without a handle, until windows that are checked out are back
//! (`windows`). There is no global lock; the counters are atomics.

mod added_blocks;
mod block_alloc;
mod free_runs;
mod held_blocks;
mod held_runs;
mod inode_alloc;
mod logged_space;
mod orlov;
mod retries;
#[cfg(test)]
mod tests;
mod trim;

use extant_jbd2::{Block, Handle};
use extant_units::{Blocks, Ino, Pblk};

pub(crate) use self::added_blocks::{add_to_last_group, publish_added};
pub(crate) use self::free_runs::free_runs;
pub(crate) use self::held_blocks::{HeldBlocks, MarkedBlocks};
pub(crate) use self::logged_space::{is_inode_used, take_free, take_inode};
pub(crate) use self::retries::{
    Retries, retry, retry_reserved, retry_unlocked, retry_unlocked_while,
};
pub(crate) use self::trim::trim;
use crate::state::alloc::Reservation;
use crate::state::alloc::{AllocRequest, InodeRequest, Run};
use crate::state::inode::Inode;
use crate::types::Cred;
use crate::types::FileKind;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, all_or_abort, stop};

/// Returns whether `cred` may use the blocks that are reserved for root.
pub(crate) fn may_use_reserve(fs: &Fs, cred: &Cred) -> bool {
    let gid = fs.options.resgid();
    cred.privileged || cred.uid == fs.options.resuid() || (gid != 0 && cred.in_group(gid))
}

/// Runs `change` of bitmaps and counts, all or nothing of it. They follow from the inodes and from
/// the blocks that these have, so a replay of fast commits makes such a change by itself.
fn told<R>(h: &mut Handle, change: impl FnOnce(&mut Handle) -> Result<R>) -> Result<R> {
    h.telling(|h| all_or_abort(h, change))
}

/// Allocates up to `request.want` contiguous blocks near `request.goal`, at least `request.min`,
/// all in one group, and the rest of their clusters. Marks them in the bitmap under `h`. For data
/// that is all; for metadata the caller goes on with [`Handle::create`].
///
/// # Errors
/// [`Error::NoSpace`]: no block is left for this caller, or the free ones were freed by a
/// transaction that is not durable yet (see [`retry`]). [`Error::Corrupt`]: a bitmap
/// is damaged; its group is not used again.
pub(crate) fn allocate_blocks(fs: &Fs, h: &mut Handle, request: &AllocRequest) -> Result<Run> {
    let run = fs
        .alloc
        .core
        .counted(told(h, |h| fs.alloc.core.allocate(h, request)))?;
    debug_assert!(
        fs.layout.contains(run.start, run.len) && fs.zones.may_map(None, run.start, run.len),
        "allocated blocks lie in the volume, and in no system zone"
    );
    Ok(run)
}

/// Holds `min` to `want` reserved blocks, in whole clusters, in one run near `goal`, for data that
/// is written before the blocks are marked; `None` if there is no such run. See [`HeldBlocks`].
///
/// # Errors
/// A bitmap cannot be read, or is damaged: reported.
pub(crate) fn hold_blocks(
    fs: &Fs,
    goal: Pblk,
    (min, want): (u64, u64),
) -> Result<Option<HeldBlocks>> {
    let held = HeldBlocks::find(&fs.alloc.core, goal, (min, want));
    let held = fs.alloc.core.counted(held);
    held.inspect_err(|error| fs.fault.report(fs, error))
}

/// Frees the clusters of `run` under `h`. They are handed out again only once the transaction is
/// durable. With `metadata` the journal forgets each block of `run` first (a revoke; the handle
/// needs one revoke credit per block).
///
/// # Errors
/// [`Error::Corrupt`] if a block lies outside of the volume, in a system zone, or is free already:
/// then blocks are lost that are not, as the caller has given up its reference. If the bitmap
/// cannot be read, the journal stops.
pub(crate) fn free_blocks(fs: &Fs, h: &mut Handle, run: Run, metadata: bool) -> Result<()> {
    let freed = h.telling(|h| fs.alloc.core.free(h, run, metadata));
    let result = fs.alloc.core.counted(freed);
    result.inspect_err(|error| stop_if_unread(h, error))
}

fn stop_if_unread(h: &Handle, error: &Error) {
    if matches!(error, Error::Io(_)) {
        stop(h, error);
    }
}

/// Frees `run`, a cluster of `inode`, and reserves it for delayed blocks of the same inode: no
/// request comes in between. What could not be freed is reserved all the same.
pub(crate) fn free_reserved(
    fs: &Fs,
    h: &mut Handle,
    run: Run,
    inode: &Inode,
) -> (Reservation, Result<()>) {
    let core = &fs.alloc.core;
    let freed = core.counted(h.telling(|h| core.free_uncounted(h, run)));
    let mut reservation = Reservation::of_freed(&fs.alloc.counts, run.len);
    if !matches!(freed, Ok(true)) {
        fs.alloc.counts.lost(run.len.get());
    }
    if let Some(quota) = &inode.quota {
        let joined = reservation.join_quota(quota, fs.layout.block_size.bytes_u64(), true);
        debug_assert!(joined, "limits do not stand in the way of what was there");
    }
    let result = freed.map(drop);
    (
        reservation,
        result.inspect_err(|error| stop_if_unread(h, error)),
    )
}

/// Has the journal forget the blocks of `run`, which their file gives up, each with a revoke.
///
/// # Errors
/// A stopped journal.
pub(crate) fn forget_blocks(h: &mut Handle, run: Run) -> Result<()> {
    block_alloc::forget(h, run)
}

/// The bitmaps that [`free_blocks`] changes for `run`: while they are held, it reads nothing.
///
/// # Errors
/// A failed read; damage; a run outside of the volume.
pub(crate) fn hold_block_bitmaps(fs: &Fs, run: Run) -> Result<Vec<Block>> {
    fs.alloc.core.hold_block_bitmaps(run)
}

/// Reserves `n` blocks of `inode` for delayed allocation. `privileged` callers may use root's
/// reserve, and pass the limits of quotas.
///
/// # Errors
/// [`Error::NoSpace`]. A caller without a handle then uses [`retry`]. [`Error::OverQuota`].
pub(crate) fn reserve(fs: &Fs, inode: &Inode, n: Blocks, privileged: bool) -> Result<Reservation> {
    let taken = Reservation::take(&fs.alloc.counts, n, privileged);
    let mut reservation = taken.ok_or(Error::NoSpace)?;
    let bytes = fs.layout.block_size.bytes_u64();
    if let Some(quota) = &inode.quota
        && !reservation.join_quota(quota, bytes, privileged)
    {
        reservation.give_back(n);
        return Err(Error::OverQuota);
    }
    Ok(reservation)
}

/// Goal of `inode`'s first block when no neighbouring extent is known: the start of its group.
pub(crate) fn goal_for(fs: &Fs, inode: &Inode) -> Pblk {
    let layout = &fs.layout;
    let Some((group, _)) = layout.group_of_inode(inode.ino) else {
        return layout.first_data_block;
    };
    // Directories stay near the tables; files leave the first group of a flex group to them.
    let flex_start = layout.flex_of(group) << layout.flex_bits;
    let last = layout.groups() - 1;
    debug_assert!(
        flex_start <= group.get() && group.get() <= last,
        "{group:?}"
    );
    let goal = if inode.kind == FileKind::Regular && layout.flex_bits >= 2 {
        group.get().max(flex_start + 1).min(last)
    } else {
        group.get()
    };
    layout.group_start(extant_units::Group::new(goal))
}

/// Goal of `inode`'s map nodes: the front of its flex group, away from data that grows.
pub(crate) fn goal_for_nodes(fs: &Fs, inode: &Inode) -> Pblk {
    let layout = &fs.layout;
    let Some((group, _)) = layout.group_of_inode(inode.ino) else {
        return layout.first_data_block;
    };
    layout.group_start(extant_units::Group::new(
        layout.flex_of(group) << layout.flex_bits,
    ))
}

/// Returns where `len` contiguous blocks are free near `goal`. A hint: nothing is taken, and damage
/// that is met is reported here.
pub(crate) fn room_for(fs: &Fs, goal: Pblk, len: u64) -> Option<Pblk> {
    let room = fs.alloc.core.counted(fs.alloc.core.room_for(goal, len));
    room.unwrap_or_else(|error| {
        fs.fault.report(fs, &error);
        None
    })
}

/// Gives up the window of `ino`'s next allocation: at truncation, last close and eviction.
pub(crate) fn release_window(fs: &Fs, ino: Ino) {
    fs.alloc.core.release_window(ino);
}

/// Allocates an inode near its parent (directories are spread out): sets its bit and counts it. Its
/// block of the inode table is readable afterwards; the caller fills the inode in. Returns the
/// number and a fresh generation.
///
/// # Errors
/// [`Error::NoSpace`] if no inode is left. [`Error::Corrupt`]: a bitmap is damaged; its group is
/// not used again.
pub(crate) fn allocate_inode(
    fs: &Fs,
    h: &mut Handle,
    request: &InodeRequest,
) -> Result<(Ino, u32)> {
    let result = fs
        .alloc
        .core
        .counted(told(h, |h| fs.alloc.core.allocate_inode(h, request)));
    if let (Some(operations), Ok((ino, _))) = (&fs.operations, &result) {
        operations.take_number(h, *ino);
    }
    debug_assert!(
        result
            .as_ref()
            .map_or(true, |(ino, _)| ino.get() >= fs.layout.first_inode),
        "reserved inodes are not allocated"
    );
    result.inspect_err(|error| fs.fault.report(fs, error))
}

/// The bitmap that [`free_inode`] changes for `ino`, read and checked; `None` if there is none. For
/// callers that change something else before: while it is held, only an inode that is free already
/// is refused.
///
/// # Errors
/// A failed read; damage.
pub(crate) fn hold_inode_bitmap(fs: &Fs, h: &mut Handle, ino: Ino) -> Result<Option<Block>> {
    h.telling(|h| fs.alloc.core.hold_inode_bitmap(h, ino))
}

/// Frees inode `ino` under `h`. `is_dir` says whether it was counted as a directory.
///
/// # Errors
/// [`Error::Corrupt`] if it is reserved, does not exist or is free already.
pub(crate) fn free_inode(fs: &Fs, h: &mut Handle, ino: Ino, is_dir: bool) -> Result<()> {
    if let Some(operations) = &fs.operations {
        operations.free_number(h, ino);
    }
    let result = fs
        .alloc
        .core
        .counted(told(h, |h| fs.alloc.core.free_inode(h, ino, is_dir)));
    result.inspect_err(|error| fs.fault.report(fs, error))
}
