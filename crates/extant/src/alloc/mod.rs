//! Blocks and inodes: free space, reservations, placement.
//!
//! # Credits
//! | function | metadata blocks it may modify |
//! |---|---|
//! | [`blocks`] | [`BLOCKS_CREDITS`]: the group's bitmap and its descriptor's block |
//! | [`free_blocks`] | [`free_credits`]: bitmap and descriptor block of each group that the run touches; plus one revoke per block of metadata |
//! | [`inode`] | [`INODE_CREDITS`] |
//! | [`free_inode`] | [`FREE_INODE_CREDITS`] |
//!
//! # Locks
//! One group's lock at a time, below everything an inode has except `core`; no global lock. Counters are atomics.

mod request;
mod reservation;

use extant_jbd2::Handle;
use extant_units::{Blocks, Ino, Lblk, Pblk};

pub(crate) use self::request::{AllocRequest, InodeRequest, Run};
pub(crate) use self::reservation::{Counts, Reservation};
use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;

/// Credits of [`blocks`].
pub(crate) const BLOCKS_CREDITS: u32 = 2;
/// Credits of [`inode`]: inode bitmap, block bitmap (of a group that was uninitialised), descriptor block, block of the inode table.
pub(crate) const INODE_CREDITS: u32 = 4;
/// Credits of [`free_inode`]: inode bitmap, descriptor block.
pub(crate) const FREE_INODE_CREDITS: u32 = 2;

/// Free space and placement: see the module.
#[derive(Default)]
pub(crate) struct Allocator {
    /// The counters that reservations stand on.
    pub(crate) counts: std::sync::Arc<Counts>,
}

/// Credits of [`free_blocks`] for a run of `len` blocks.
pub(crate) fn free_credits(fs: &Fs, len: Blocks) -> u32 {
    let groups = len.get() / u64::from(fs.layout.blocks_per_group) + 2;
    u32::try_from(groups)
        .unwrap_or(u32::MAX)
        .min(fs.layout.groups)
        .saturating_mul(2)
}

/// Allocates up to `request.want` contiguous blocks near `request.goal`, at least `request.min`, all in one
/// group. The blocks are marked in the bitmap under `h`; what they become is the caller's: data needs no more,
/// metadata goes on with [`Handle::create`].
///
/// # Errors
/// [`crate::Error::NoSpace`]: nothing is left for this caller, or what is left was freed by a transaction that is
/// not durable yet (see [`commit_frees_space`]).
pub(crate) fn blocks(fs: &Fs, h: &mut Handle, request: &AllocRequest) -> Result<Run> {
    let _ = (fs, h, request);
    todo!()
}

/// Frees `run` under `h`. The blocks are handed out again only once the transaction is durable. With
/// `metadata` each is forgotten by the journal first (revoked: the handle needs revoke credits, one per block).
///
/// # Errors
/// [`crate::Error::Corrupt`] if a block lies outside of the volume, in a system zone, or is free already.
pub(crate) fn free_blocks(fs: &Fs, h: &mut Handle, run: Run, metadata: bool) -> Result<()> {
    let _ = (fs, h, run, metadata);
    todo!()
}

/// Promises `n` blocks to delayed allocation. `privileged` callers may use root's reserve.
///
/// # Errors
/// [`crate::Error::NoSpace`]; with no handle held, [`commit_frees_space`] may make room.
pub(crate) fn reserve(fs: &Fs, n: Blocks, privileged: bool) -> Result<Reservation> {
    let _ = (fs, n, privileged);
    todo!()
}

/// After [`crate::Error::NoSpace`], with no handle held: commits if that returns freed blocks, so that a retry makes
/// sense. `attempt` counts from zero; gives up at three.
pub(crate) fn commit_frees_space(fs: &Fs, attempt: u32) -> bool {
    let _ = (fs, attempt);
    todo!()
}

/// Where the block `lblk` of `inode` should go when nothing better (the end of the extent before it) is known.
pub(crate) fn goal_for(fs: &Fs, inode: &Inode, lblk: Lblk) -> Pblk {
    let _ = (fs, inode, lblk);
    todo!()
}

/// Gives up the window of blocks kept for `ino`'s next allocation: at truncation, last close, eviction.
pub(crate) fn release_window(fs: &Fs, ino: Ino) {
    let _ = (fs, ino);
    todo!()
}

/// Allocates an inode near its parent (directories are spread): sets its bit and counts it. Its block in the
/// inode table is readable afterwards; the caller fills the inode in. Returns number and a fresh generation.
///
/// # Errors
/// [`crate::Error::NoSpace`] if no inode is left.
pub(crate) fn inode(fs: &Fs, h: &mut Handle, request: &InodeRequest) -> Result<(Ino, u32)> {
    let _ = (fs, h, request);
    todo!()
}

/// Frees inode `ino` under `h`; `is_dir` tells whether it was counted as a directory.
///
/// # Errors
/// [`crate::Error::Corrupt`] if it is reserved, does not exist or is free already.
pub(crate) fn free_inode(fs: &Fs, h: &mut Handle, ino: Ino, is_dir: bool) -> Result<()> {
    let _ = (fs, h, ino, is_dir);
    todo!()
}
