//! Data inside of an inode (feature `inline_data`): the bytes of `i_block`, and behind them the
//! value of the attribute `system.data`, which is there even if it is empty.
//!
//! New regular files and directories have their data inside. When it gets too long, or an operation
//! needs blocks, it moves to a block ([`move_to_block`] for files, `dir/inline_entries.rs` for
//! directories), and never comes back, as on Linux. Symbolic links that have it inside are only
//! read.
//!
//! # Invariants
//! * The size is that of the data: `i_block` and the value hold no less. Both change in one step.
//! * A file's block is on the device before the transaction that leads to it can commit, so a crash
//!   shows the data inside, or all of it in the block (J18).
//!
//! # Locks
//! To read, none: all parts are under `core`. To change the data, the caller holds the inode's
//! `lock` exclusively; inside of it comes `xattr_lock`.

use extant_sync::atomic::Ordering;

use extant_disk::damage::InodeDamage;
use extant_disk::features::Incompat;
use extant_disk::inline_data::bytes_inside;
use extant_disk::inode::BLOCK_AREA;
use extant_iomap::{DeviceFault, DeviceRequest};
use extant_jbd2::Handle;
use extant_units::{Pblk, index};

use crate::inode::{InodeCore, InodeFlags};
use crate::state::inode::Inode;
use crate::state::quota::SpaceClaim;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, all_or_abort, credits};
use crate::{alloc, map, xattr};

/// Returns whether an inode's data is inside of it.
pub(crate) fn is_inline(inode: &Inode) -> bool {
    inode.flags().contains(InodeFlags::INLINE_DATA)
}

/// The data of an inode that has it inside, as long as the inode is; `None` if it has moved to a
/// block.
///
/// # Errors
/// Damage: it is longer than what is inside.
pub(crate) fn read(fs: &Fs, inode: &Inode) -> Result<Option<Vec<u8>>> {
    let data = {
        let core = inode.core.read();
        if !core.flags.contains(InodeFlags::INLINE_DATA) {
            return Ok(None);
        }
        data_of(inode, &core)
    };
    data.map(Some)
        .inspect_err(|error| fs.fault.report(fs, error))
}

fn data_of(inode: &Inode, core: &InodeCore) -> Result<Vec<u8>> {
    let place = Location::Inode(inode.ino);
    let bytes = bytes_inside(core).map_err(|error| Error::corrupt(place, error))?;
    let mut bytes = bytes.unwrap_or_else(|| core.i_block.to_vec());
    if core.disk_size > bytes.len() as u64 {
        return Err(Error::corrupt(place, InodeDamage::PastInlineData));
    }
    bytes.truncate(index(core.disk_size));
    Ok(bytes)
}

/// Stores `data` inside of `inode`, which has no blocks, and whose size it becomes. Returns false,
/// with nothing changed, if there is no room. [`credits::INODE_UPDATE`].
///
/// # Errors
/// Damage of the attributes; a stopped journal.
pub(crate) fn store(fs: &Fs, h: &mut Handle, inode: &Inode, data: &[u8]) -> Result<bool> {
    let (front, rest) = data.split_at(data.len().min(BLOCK_AREA));
    xattr::set_data(fs, h, inode, Some(rest), |core| {
        core.flags.remove(InodeFlags::EXTENTS);
        core.flags.insert(InodeFlags::INLINE_DATA);
        core.i_block = [0; BLOCK_AREA];
        core.i_block[..front.len()].copy_from_slice(front);
        set_size(inode, core, data.len() as u64);
    })
}

/// Stores `data` inside of a new inode where the volume has such inodes. Returns whether it is
/// there.
///
/// # Errors
/// As [`store`].
pub(crate) fn begin(fs: &Fs, h: &mut Handle, inode: &Inode, data: &[u8]) -> Result<bool> {
    match fs.layout.features.has_incompat(Incompat::INLINE_DATA) {
        true => store(fs, h, inode, data),
        false => Ok(false),
    }
}

/// Bytes of data that `inode` may have inside, beside its other attributes.
///
/// # Errors
/// Damage of the attributes.
pub(crate) fn room(fs: &Fs, inode: &Inode) -> Result<usize> {
    let rest = xattr::longest_data(fs, inode)?;
    Ok(rest.map_or(0, |rest| rest + BLOCK_AREA))
}

/// The flags of `inode` once its data is in blocks.
pub(crate) fn flags_outside(fs: &Fs, inode: &Inode) -> InodeFlags {
    let mut flags = inode.flags() - InodeFlags::INLINE_DATA - InodeFlags::INDEX;
    let extents = fs.layout.features.has_incompat(Incompat::EXTENTS);
    flags.set(InodeFlags::EXTENTS, extents);
    flags
}

/// Makes `inode`, whose data was inside, one with the block `pblk`, or none, and the size `size`.
/// [`credits::INODE_UPDATE`].
///
/// # Errors
/// [`Error::NoSpace`] for a block that its map cannot hold; damage of the attributes; a stopped
/// journal.
pub(crate) fn leave(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    pblk: Option<Pblk>,
    size: u64,
) -> Result<()> {
    let flags = flags_outside(fs, inode);
    let root = map::root_with(flags, pblk).ok_or(Error::NoSpace)?;
    let sectors = fs.layout.cluster_sectors();
    let done = xattr::set_data(fs, h, inode, None, |core| {
        core.flags = flags;
        core.i_block = root;
        if pblk.is_some() {
            // Saturates, as the count of a damaged inode may be anything.
            core.sectors = core.sectors.saturating_add(sectors);
        }
        set_size(inode, core, size);
    })?;
    debug_assert!(done, "without an attribute there is more room");
    if let Some(pblk) = pblk {
        map::note_first_block(fs, inode, pblk);
    }
    fs.stats.inline_left.bump();
    Ok(())
}

fn set_size(inode: &Inode, core: &mut InodeCore, size: u64) {
    core.disk_size = size;
    inode.size.store(size, Ordering::Release);
}

/// Moves the data of `inode`, a regular file that no other thread uses, to a block. Starts a
/// handle. With `privileged` the block may come from root's reserve.
///
/// # Errors
/// [`Error::NoSpace`]; damage; a failure of the device. Nothing has changed then.
pub(crate) fn move_to_block(fs: &Fs, inode: &Inode, privileged: bool) -> Result<()> {
    let Some(mut data) = read(fs, inode)? else {
        return Ok(());
    };
    let size = data.len() as u64;
    if data.is_empty() {
        let mut h = fs.start(credits::INODE_UPDATE)?;
        return leave(fs, &mut h, inode, None, size);
    }
    let bs = fs.layout.block_size;
    debug_assert!(data.len() <= bs.bytes(), "a block holds an inode");
    data.resize(bs.bytes(), 0);
    let space = fs.layout.cluster_blocks();
    let mut reservation = alloc::retry(fs, || alloc::reserve(fs, inode, space, privileged))?;
    let goal = alloc::goal_for(fs, inode);
    let held = alloc::retry_reserved(fs, || {
        alloc::hold_blocks(fs, goal, (space.get(), space.get()))?.ok_or(Error::NoSpace)
    })?;
    let run = held.run();
    let at = bs.dev_off(run.start).ok_or(Error::NoSpace)?;
    // Before anything changes: a block map holds 32 bits.
    map::root_with(flags_outside(fs, inode), Some(run.start)).ok_or(Error::NoSpace)?;
    fs.dev.write_at(at, &data).map_err(|source| DeviceFault {
        request: DeviceRequest::Write,
        at,
        len: bs.bytes_u64(),
        source,
    })?;
    if !fs.journal.has_log() {
        // No commit orders the inode after it.
        fs.dev.flush()?;
    }
    // The bitmap, its descriptor, and the inode.
    let mut h = fs.start(credits::sum([2, credits::INODE_UPDATE]))?;
    all_or_abort(&mut h, |h| {
        let marked = held.mark(h)?;
        let claim = SpaceClaim::of_reserved(inode.quota.as_ref(), fs.layout.cluster_bytes());
        leave(fs, h, inode, Some(run.start), size)?;
        marked.use_for(space);
        reservation.consume(space);
        claim.consume();
        Ok(())
    })
}
