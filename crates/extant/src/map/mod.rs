//! From file blocks to disk blocks.
//!
//! Answers where a file's block lies ([`lookup`]), gives it a place ([`allocate`]), and takes places away
//! ([`remove`]). The parts:
//!
//! * `extent_tree`: the map on disk, pure over a store of nodes;
//! * `extent_status`: what is known of the map in memory, delayed ranges included, and the sequence number
//!   by which a mapping that was handed out is recognised as stale;
//! * `indirect`: the older map of ext2 and ext3, read-only;
//! * this module: the two together, with the allocator and the journal.
//!
//! Invariants: the status tree never contradicts the tree on disk (J14); a range is DELAYED only with
//! nothing below it on disk and one reserved block per block (J9); every change of a mapping grows the
//! sequence (J16).
//!
//! Locks: `map_lock` is taken here and nowhere else, read to walk the tree, write to change it together with
//! the status tree. Status hits take no `map_lock`: the status tree is truthful whenever its own lock is free.

mod extent_status;
mod extent_tree;
#[cfg(test)]
pub(crate) mod test_rng;

use extant_jbd2::Handle;
use extant_units::{Lblk, Pblk};

pub(crate) use extent_status::{ExtentStatus, StatusCache};

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;

/// What a range of a file's blocks is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MapState {
    /// Nothing: reads as zeros.
    Hole,
    /// Space is reserved, no place chosen yet: the page cache alone has the data.
    Delayed,
    /// Data, from this block on.
    Written(Pblk),
    /// Allocated from this block on, reads as zeros.
    Unwritten(Pblk),
}

/// A range of a file's blocks in one state and, if it has a place, in one run on the device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mapping {
    /// First file block: the one asked for.
    pub(crate) lblk: Lblk,
    /// Blocks, at least one.
    pub(crate) len: u32,
    /// State of all of them.
    pub(crate) state: MapState,
    /// The call made this range: [`allocate`] or [`reserve_delayed`] found a hole or a delayed range.
    pub(crate) new: bool,
    /// The inode's sequence when the mapping was true. It may be acted on as long as [`sequence`] is the same.
    pub(crate) seq: u64,
}

/// How [`allocate`] shall allocate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct How {
    /// Enter the blocks as unwritten (file data before its I/O) rather than written (directories).
    pub(crate) unwritten: bool,
    /// Only where the range is delayed (writeback): a hole is answered as a hole, since a truncation won.
    pub(crate) only_delayed: bool,
    /// The blocks hold metadata: directory blocks, symlink targets.
    pub(crate) metadata: bool,
    /// May use the space reserved for root.
    pub(crate) privileged: bool,
}

/// Where `lblk` is: a range of 1 to `max` blocks from it on. The status tree answers if it can, else the
/// tree on disk, whose answer is remembered. Never a past-the-end error: blocks behind the last one are holes.
///
/// # Errors
/// Damage or a failed read in the tree; [`crate::Error::FileTooBig`] past the last possible file block.
pub(crate) fn lookup(fs: &Fs, inode: &Inode, lblk: Lblk, max: u32) -> Result<Mapping> {
    let _ = (fs, inode, lblk, max);
    todo!()
}

/// Gives `lblk` a place and answers where: 1 to `len` blocks from it on. What has a place already is answered
/// as it is. Needs [`crate::credits::allocate`] credits. Consumes the reservations of delayed blocks.
///
/// # Errors
/// [`crate::Error::NoSpace`], with nothing changed; damage; a stopped journal.
pub(crate) fn allocate(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    lblk: Lblk,
    len: u32,
    how: How,
) -> Result<Mapping> {
    let _ = (fs, h, inode, lblk, len, how);
    todo!()
}

/// Turns the unwritten parts of `len` blocks from `lblk` on into written ones, exactly. Holes, delayed and
/// written parts stay. Needs [`crate::credits::convert`] credits; where the range is in many extents the handle is
/// extended or restarted between them (each part is a valid state).
pub(crate) fn convert_to_written(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    lblk: Lblk,
    len: u32,
) -> Result<()> {
    let _ = (fs, h, inode, lblk, len);
    todo!()
}

/// Makes `from..to` a hole: frees blocks and reservations, right to left. Needs [`crate::credits::remove`] credits;
/// may restart the handle, so the inode must be an orphan or the operation redoable. The caller has
/// dropped the page cache over the range and excludes its refill.
pub(crate) fn remove(fs: &Fs, h: &mut Handle, inode: &Inode, from: Lblk, to: u64) -> Result<()> {
    let _ = (fs, h, inode, from, to);
    todo!()
}

/// For a buffered write at `lblk`: reserves space for the hole there, 1 to `len` blocks, which becomes delayed
/// (`new`); anything but a hole is answered as it is. Fewer blocks than asked for when space is short.
///
/// # Errors
/// [`crate::Error::NoSpace`] if not one block can be reserved.
pub(crate) fn reserve_delayed(
    fs: &Fs,
    inode: &Inode,
    lblk: Lblk,
    len: u32,
    privileged: bool,
) -> Result<Mapping> {
    let _ = (fs, inode, lblk, len, privileged);
    todo!()
}

/// Makes the delayed parts of `from..to` holes and gives their reservations back: a write came out short, or its
/// data could not be written.
pub(crate) fn drop_delayed(fs: &Fs, inode: &Inode, from: Lblk, to: u64) {
    let _ = (fs, inode, from, to);
}

/// The inode's sequence now; see [`Mapping::seq`].
pub(crate) fn sequence(inode: &Inode) -> u64 {
    inode.extents.sequence()
}

/// Blocks that are delayed: `st_blocks` counts them.
pub(crate) fn delayed_blocks(inode: &Inode) -> u64 {
    inode.extents.delayed_blocks()
}
