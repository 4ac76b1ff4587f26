//! The first extent of a file, entered once its data is on the device.

use extant_disk::extent::{Extent, NodeMut, ROOT_BYTES, ROOT_CAPACITY};
use extant_disk::inode::{InodeCore, InodeFlags};
use extant_jbd2::Handle;
use extant_units::{Lblk, Pblk};

use super::disk_nodes::{has_extents, note_range};
use super::empty_root;
use super::locked_map::ExclusiveMap;
use crate::alloc::MarkedBlocks;
use crate::state::alloc::Run;
use crate::state::inode::Inode;
use crate::state::map::{MapState, MapView, ReservationFate, SharedMaps, Status};
use crate::state::quota::SpaceClaim;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Returns whether `inode` has an extent tree without an extent.
pub(crate) fn has_no_extent(inode: &Inode) -> bool {
    has_extents(inode) && inode.core.read().i_block == empty_root()
}

/// Enters `run`, a part of `marked` whose data is on the device, as the first blocks of `inode`,
/// and moves the size on disk to `end`, in one change of the inode
/// ([`crate::volume::credits::INODE_UPDATE`]). Consumes the reservation. Does nothing unless the
/// file has no extent, all of these blocks are delayed, and its size reaches the last of them;
/// returns whether that was so.
///
/// # Errors
/// The inode's record cannot be stored, which stops the journal.
pub(crate) fn link_first_extent(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    (marked, run): (&MarkedBlocks, Run),
    end: u64,
) -> Result<bool> {
    let map = ExclusiveMap::lock(inode);
    let Ok(len) = u32::try_from(run.len.get()) else {
        return Ok(false);
    };
    if !has_no_extent(map.inode()) || !is_delayed(&fs.maps, map.inode(), len) {
        return Ok(false);
    }
    let extent = Extent {
        lblk: Lblk::ZERO,
        len,
        pblk: run.start,
        unwritten: false,
    };
    debug_assert_eq!(
        fs.layout.block_size.blocks_for(end),
        run.len,
        "the size is in the run"
    );
    let root = root_of(&extent).map_err(|why| Error::corrupt(Location::Inode(inode.ino), why))?;
    let sectors = run.len.get() << (fs.layout.block_size.log2() - 9);
    let bytes = run.len.get() * fs.layout.block_size.bytes_u64();
    let claim = SpaceClaim::of_reserved(inode.quota.as_ref(), bytes);
    // One block may hold all of it.
    let last = end.saturating_sub(fs.layout.block_size.bytes_u64());
    note_range(fs, h, inode, 0..u64::from(len));
    let change = |core: &mut InodeCore| {
        // Under `core`, as a truncation changes both sizes under it.
        let size = inode.size();
        if size <= last {
            return false;
        }
        core.i_block = root;
        // Saturates, as the count of a damaged inode may be anything.
        core.sectors = core.sectors.saturating_add(sectors);
        core.disk_size = core.disk_size.max(end.min(size));
        true
    };
    let stored = h.telling(|h| inode.update(fs, h, change));
    let stored = stored.inspect_err(|error| {
        fs.journal
            .abort(&format!("storing a new file's map: {error}"));
    })?;
    if !stored {
        return Ok(false);
    }
    marked.use_for(run.len);
    let mut view = MapView::lock(&fs.maps, &inode.known);
    view.set(Status::of(&extent), ReservationFate::Consume);
    claim.consume();
    fs.stats.extents_inserted.bump();
    Ok(true)
}

/// Returns whether the first `len` blocks are delayed. They stay so while the map is locked and
/// their folios are under writeback.
fn is_delayed(maps: &SharedMaps, inode: &Inode, len: u32) -> bool {
    let found = MapView::lock(maps, &inode.known).find(Lblk::ZERO);
    found.is_some_and(|found| {
        found.state == MapState::Delayed && found.lblk == Lblk::ZERO && found.len >= len
    })
}

/// Notes that `pblk` has become the first block of `inode`, whose data was inside of it.
pub(crate) fn note_first_block(fs: &Fs, inode: &Inode, pblk: Pblk) {
    let map = ExclusiveMap::lock(inode);
    let mut view = MapView::lock(&fs.maps, &map.inode().known);
    let first = Status {
        lblk: Lblk::ZERO,
        len: 1,
        state: MapState::Written(pblk),
    };
    view.set(first, ReservationFate::Consume);
}

/// The `i_block` of an inode with `flags` whose first block is `pblk`, or that has none. `None` if
/// the map cannot hold the number.
pub(crate) fn root_with(flags: InodeFlags, pblk: Option<Pblk>) -> Option<[u8; ROOT_BYTES]> {
    let has_extents = flags.contains(InodeFlags::EXTENTS);
    match pblk {
        None if has_extents => Some(empty_root()),
        None => Some([0; ROOT_BYTES]),
        Some(pblk) if has_extents => root_of(&Extent {
            lblk: Lblk::ZERO,
            len: 1,
            pblk,
            unwritten: false,
        })
        .ok(),
        Some(pblk) => {
            // The first of the pointers.
            let mut root = [0; ROOT_BYTES];
            let pointer = u32::try_from(pblk.get()).ok()?;
            root[..4].copy_from_slice(&pointer.to_le_bytes());
            Some(root)
        }
    }
}

/// The root of a tree with one extent.
fn root_of(extent: &Extent) -> Result<[u8; ROOT_BYTES], extant_disk::extent::ExtentError> {
    let mut root = [0; ROOT_BYTES];
    NodeMut::init(&mut root, 0, ROOT_CAPACITY)?.insert(0, &[extent.encode()?])?;
    Ok(root)
}
