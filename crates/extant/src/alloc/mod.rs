//! Blocks and inodes: free space, reservations, placement.
//!
//! # Credits
//! | function | metadata blocks it may modify |
//! |---|---|
//! | [`fn@blocks`] | 2: the group's bitmap and its descriptor's block |
//! | [`free_blocks`] | bitmap and descriptor block of each group that the run touches; plus one revoke per block of metadata |
//! | [`inode`] | [`crate::credits::INODE_ALLOC`] |
//! | [`free_inode`] | 2: inode bitmap, descriptor block |
//!
//! # Space
//! A caller's blocks are claimed from the counters first ([`Counts`]) and found in the groups afterwards, so that
//! promises to delayed allocation always hold. Blocks that were freed count as free at once, but are handed out
//! only when the freeing transaction is durable: between the two an allocation may fail although the counters
//! say otherwise, and [`commit_frees_space`] is what helps.
//!
//! # Locks
//! One group's lock at a time, below everything an inode has except `core`. The tables of pending and of kept
//! blocks have short locks of their own, never held together with a group's. No global lock; counters are atomics.

mod blocks;
mod counts;
mod inodes;
mod orlov;
mod pending;
mod request;
mod reservation;
mod runs;
#[cfg(test)]
mod tests;
mod trim;
mod windows;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::time::Duration;

use extant_blockdev::BlockDevice;
use extant_failpoint::ActiveFailpoint;
use extant_jbd2::{BlockCache, Handle};
use extant_units::{Blocks, Ino, Pblk};

pub(crate) use self::counts::Counts;
use self::pending::Pending;
pub(crate) use self::request::{AllocRequest, InodeRequest, Run};
pub(crate) use self::reservation::Reservation;
pub(crate) use self::runs::free_runs;
use self::trim::Trimming;
pub(crate) use self::trim::trim;
use self::windows::Windows;
use crate::cred::Cred;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::group::{Bitmaps, GroupTable};
use crate::inode::Inode;
use crate::layout::Layout;
use crate::stats::Stats;
use crate::types::FileKind;
use crate::zones::SystemZones;

/// The allocators' state: everything that the journal's callbacks need as well.
pub(crate) struct Allocator {
    core: Arc<Core>,
    /// The counters that reservations stand on.
    pub(crate) counts: Arc<Counts>,
}

/// What both allocators work on.
pub(crate) struct Core {
    /// Geometry.
    pub(crate) layout: Layout,
    /// Metadata blocks.
    pub(crate) cache: Arc<BlockCache>,
    /// The device, to be told of freed blocks with `discard`.
    pub(crate) discard: Option<Arc<dyn BlockDevice>>,
    /// Groups.
    pub(crate) groups: Arc<GroupTable>,
    /// The format's own blocks.
    pub(crate) zones: Arc<SystemZones>,
    /// Free and promised space.
    pub(crate) counts: Arc<Counts>,
    /// Counters.
    pub(crate) stats: Arc<Stats>,
    failpoint: ActiveFailpoint,
    pending: Pending,
    trimming: Trimming,
    windows: Windows,
    /// Mixed into the generations of new inodes.
    generation: AtomicU32,
}

impl Core {
    /// The bitmaps of all groups.
    fn disk(&self) -> Bitmaps<'_> {
        Bitmaps {
            layout: &self.layout,
            cache: &self.cache,
            zones: &self.zones,
            stats: &self.stats,
            failpoint: self.failpoint,
        }
    }
}

/// The parts of the file system that an [`Allocator`] shares.
pub(crate) struct Parts {
    /// See [`Core`].
    pub(crate) layout: Layout,
    /// See [`Core`].
    pub(crate) cache: Arc<BlockCache>,
    /// See [`Core`].
    pub(crate) discard: Option<Arc<dyn BlockDevice>>,
    /// See [`Core`].
    pub(crate) groups: Arc<GroupTable>,
    /// See [`Core`].
    pub(crate) zones: Arc<SystemZones>,
    /// See [`Core`].
    pub(crate) counts: Arc<Counts>,
    /// See [`Core`].
    pub(crate) stats: Arc<Stats>,
    /// The failpoint that a test switches on.
    pub(crate) failpoint: ActiveFailpoint,
}

impl Allocator {
    /// The allocators over `parts`.
    pub(crate) fn new(parts: Parts) -> Self {
        let counts = Arc::clone(&parts.counts);
        let core = Core {
            layout: parts.layout,
            cache: parts.cache,
            discard: parts.discard,
            groups: parts.groups,
            zones: parts.zones,
            counts: parts.counts,
            stats: parts.stats,
            failpoint: parts.failpoint,
            pending: Pending::default(),
            trimming: Trimming::default(),
            windows: Windows::default(),
            generation: AtomicU32::new(inodes::generation_seed()),
        };
        Self {
            core: Arc::new(core),
            counts,
        }
    }
}

/// Whether `cred` may use the blocks that are reserved for root.
pub(crate) fn may_use_reserve(fs: &Fs, cred: &Cred) -> bool {
    let gid = fs.options.resgid();
    cred.privileged || cred.uid == fs.options.resuid() || (gid != 0 && cred.in_group(gid))
}

/// Allocates up to `request.want` contiguous blocks near `request.goal`, at least `request.min`, all in one
/// group. The blocks are marked in the bitmap under `h`; what they become is the caller's: data needs no more,
/// metadata goes on with [`Handle::create`].
///
/// # Errors
/// [`Error::NoSpace`]: nothing is left for this caller, or what is left was freed by a transaction that is
/// not durable yet (see [`commit_frees_space`]). [`Error::Corrupt`]: a bitmap is damaged; its group is not used again.
pub(crate) fn blocks(fs: &Fs, h: &mut Handle, request: &AllocRequest) -> Result<Run> {
    fs.alloc.core.allocate(h, request)
}

/// Frees `run` under `h`. The blocks are handed out again only once the transaction is durable. With
/// `metadata` each is forgotten by the journal first (revoked: the handle needs revoke credits, one per block).
///
/// # Errors
/// [`Error::Corrupt`] if a block lies outside of the volume, in a system zone, or is free already.
pub(crate) fn free_blocks(fs: &Fs, h: &mut Handle, run: Run, metadata: bool) -> Result<()> {
    fs.alloc.core.free(h, run, metadata)
}

/// Promises `n` blocks to delayed allocation. `privileged` callers may use root's reserve.
///
/// # Errors
/// [`Error::NoSpace`]; with no handle held, [`commit_frees_space`] may make room.
pub(crate) fn reserve(fs: &Fs, n: Blocks, privileged: bool) -> Result<Reservation> {
    Reservation::take(&fs.alloc.counts, n, privileged).ok_or(Error::NoSpace)
}

/// Retries of a claim that failed.
const RETRIES: u32 = 3;
/// Retries of an allocation of promised blocks, which are free: commits bring them back, but others free and take blocks
/// meanwhile.
const PROMISED_RETRIES: u32 = 100;
/// Of these, how many where no commit can help; and how long each waits after the first few.
const PAUSES: u32 = 25;
const PAUSE: Duration = Duration::from_millis(1);

/// After [`Error::NoSpace`], with no handle held: whether a retry makes sense. Commits if that returns freed blocks; otherwise
/// looks whether there is space by now. `attempt` counts from zero; gives up at three.
pub(crate) fn commit_frees_space(fs: &Fs, attempt: u32) -> bool {
    attempt < RETRIES
        && free_by_commit(fs).unwrap_or_else(|| !fs.alloc.counts.available_to_users().is_zero())
}

/// The same for blocks that were promised: they exist, so this gives up only when no commit brings any back, and others that hold
/// blocks between two of their steps (a window that is being moved, a commit that is giving blocks back) have had time to go on.
pub(crate) fn commit_frees_promised(fs: &Fs, attempt: u32) -> bool {
    attempt < PROMISED_RETRIES
        && free_by_commit(fs).unwrap_or_else(|| {
            std::thread::sleep(PAUSE * attempt.saturating_sub(RETRIES).min(1));
            attempt < PAUSES
        })
}

/// Gives up the windows kept for files that grow, waits for a run that is being trimmed, and commits if blocks wait for that; `None` if
/// there was nothing to wait for.
fn free_by_commit(fs: &Fs) -> Option<bool> {
    let core = &fs.alloc.core;
    core.release_all_windows();
    let trimmed = core.trimming.wait();
    if core.pending.is_empty() {
        return trimmed.then_some(true);
    }
    fs.stats.space_commits.bump();
    Some(fs.journal.force_commit().is_ok())
}

/// Where the first blocks of `inode` should go when nothing better (the end of the extent before them) is known:
/// the start of its group.
pub(crate) fn goal_for(fs: &Fs, inode: &Inode) -> Pblk {
    let layout = &fs.layout;
    let Some((group, _)) = layout.group_of_inode(inode.ino) else {
        return layout.first_data_block;
    };
    // Directories stay in front, near the tables; files leave the first group of a flex group to them.
    let flex_start = layout.flex_of(group) << layout.flex_bits;
    let last = layout.groups.saturating_sub(1);
    let goal = if inode.kind == FileKind::Regular && layout.flex_bits >= 2 {
        group.get().max(flex_start + 1).min(last)
    } else {
        group.get()
    };
    layout.group_start(extant_units::Group::new(goal))
}

/// Where the nodes of `inode`'s map go: to the front of its flex group, out of the way of data that
/// grows together.
pub(crate) fn goal_for_nodes(fs: &Fs, inode: &Inode) -> Pblk {
    let layout = &fs.layout;
    let Some((group, _)) = layout.group_of_inode(inode.ino) else {
        return layout.first_data_block;
    };
    layout.group_start(extant_units::Group::new(
        layout.flex_of(group) << layout.flex_bits,
    ))
}

/// Where `len` blocks are free in a row, near `goal`. A hint: nothing is taken.
pub(crate) fn room_for(fs: &Fs, goal: Pblk, len: u64) -> Option<Pblk> {
    fs.alloc.core.room_for(goal, len)
}

/// Gives up the window of blocks kept for `ino`'s next allocation: at truncation, last close, eviction.
pub(crate) fn release_window(fs: &Fs, ino: Ino) {
    fs.alloc.core.release_window(ino);
}

/// Allocates an inode near its parent (directories are spread): sets its bit and counts it. Its block in the
/// inode table is readable afterwards; the caller fills the inode in. Returns number and a fresh generation.
///
/// # Errors
/// [`Error::NoSpace`] if no inode is left. [`Error::Corrupt`]: a bitmap is damaged; its group is not used again.
pub(crate) fn inode(fs: &Fs, h: &mut Handle, request: &InodeRequest) -> Result<(Ino, u32)> {
    let result = fs.alloc.core.allocate_inode(h, request);
    result.inspect_err(|error| fs.fault.report(fs, error))
}

/// Frees inode `ino` under `h`; `is_dir` tells whether it was counted as a directory.
///
/// # Errors
/// [`Error::Corrupt`] if it is reserved, does not exist or is free already.
pub(crate) fn free_inode(fs: &Fs, h: &mut Handle, ino: Ino, is_dir: bool) -> Result<()> {
    let result = fs.alloc.core.free_inode(h, ino, is_dir);
    result.inspect_err(|error| fs.fault.report(fs, error))
}
