//! Two files exchange the locations of some of their blocks.
//!
//! Both maps change under one handle: a crash shows both maps as before or both as after. The
//! contents of the blocks are the callers' concern. Where space is in clusters, a cluster changes
//! its file with all of its blocks or not at all ([`part_in_clusters`]).
//!
//! # Locks
//! `map_lock` exclusively, one file's after the other's. In between, both maps name the same
//! blocks. So the callers exclude every use of mappings of the ranges: they hold the `lock` and,
//! where other threads can reach the file, the invalidate lock of both exclusively, and the first
//! file's writeback pass.

use std::sync::Arc;

use extant_disk::damage::MapDamage;
use extant_disk::extent::Extent;
use extant_jbd2::Handle;
use extant_units::Lblk;

use super::clusters::{ClusterMap, ClusterPart};
use super::disk_nodes::{DiskNodes, has_extents, with_nodes};
use super::extent_tree::{self, Found};
use super::locked_map::{ExclusiveMap, SharedMap};
use crate::state::inode::Inode;
use crate::state::map::{MapView, ReservationFate, Status};
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, stop};

/// Exchanges the locations of up to `len` blocks from `at_a` of `a` and from `at_b` of `b` on, as
/// many as lie in one extent in both. Returns how many. The state of `a`'s blocks stays with them,
/// and becomes that of `b`'s. Needs [`crate::volume::credits::exchange`] credits.
///
/// # Errors
/// [`Error::NoSpace`] for a node; damage, or a hole in one of the ranges: nothing has changed then.
/// A stopped journal.
pub(crate) fn exchange(
    fs: &Fs,
    h: &mut Handle,
    (a, at_a): (&Inode, Lblk),
    (b, at_b): (&Inode, Lblk),
    len: u32,
) -> Result<u32> {
    debug_assert_ne!(a.ino, b.ino, "two files");
    let ours = extent_at(fs, a, at_a, len)?;
    let theirs = extent_at(fs, b, at_b, ours.len)?;
    debug_assert!(0 < theirs.len && theirs.len <= ours.len && ours.len <= len);
    let len = ours.len.min(theirs.len);
    let moved = |at: Lblk, to: &Extent| Extent {
        lblk: at,
        len,
        pblk: to.pblk,
        unwritten: ours.unwritten,
    };
    put(fs, h, a, moved(at_a, &theirs))?;
    if let Err(error) = put(fs, h, b, moved(at_b, &ours)) {
        // Joined again with the extent that it was cut from: that needs no space.
        let back = Extent { len, ..ours };
        put(fs, h, a, back).inspect_err(|error| stop(h, error))?;
        return Err(error);
    }
    Ok(len)
}

/// The first of `len` blocks, mapped in both of `files`, which can move in one exchange.
///
/// # Errors
/// Damage, or a failed read.
pub(crate) fn part_in_clusters(
    fs: &Fs,
    files: [(&Arc<Inode>, Lblk); 2],
    len: u32,
) -> Result<ClusterPart> {
    if !fs.layout.has_clusters() {
        return Ok(ClusterPart::Whole(len));
    }
    let (mut len, mut agreed) = (len, 0);
    // Each round has fewer blocks, or is one file's that agrees.
    for (inode, at) in files.iter().cycle() {
        let part = part_of(fs, inode, *at, len)?;
        match part {
            ClusterPart::Whole(whole) if whole == len => agreed += 1,
            ClusterPart::Whole(whole) => (len, agreed) = (whole, 1),
            ClusterPart::Torn(_) => return Ok(part),
        }
        if agreed == files.len() {
            break;
        }
    }
    Ok(ClusterPart::Whole(len))
}

/// The same of one file.
fn part_of(fs: &Fs, inode: &Inode, at: Lblk, len: u32) -> Result<ClusterPart> {
    let extent = extent_at(fs, inode, at, len)?;
    let map = SharedMap::lock(inode);
    let nodes = DiskNodes::of(fs, &map, inode.core.read().i_block);
    let clusters = ClusterMap {
        layout: &fs.layout,
        ino: inode.ino,
        nodes: &nodes,
    };
    let part = clusters.closed_part(at, extent.len);
    part.inspect_err(|error| fs.fault.report(fs, error))
}

/// The extent from `at` on, at most `len` blocks of it.
fn extent_at(fs: &Fs, inode: &Inode, at: Lblk, len: u32) -> Result<Extent> {
    let map = SharedMap::lock(inode);
    if !has_extents(inode) {
        return Err(Error::NotSupported(
            "moving blocks of a file without extents",
        ));
    }
    let nodes = DiskNodes::of(fs, &map, inode.core.read().i_block);
    let found = extent_tree::find(&nodes, at).inspect_err(|error| fs.fault.report(fs, error))?;
    let part = match found {
        Found::Extent(extent) => extent.slice(at, len),
        Found::Hole { .. } => None,
    };
    part.ok_or_else(|| Error::corrupt(Location::Inode(inode.ino), MapDamage::NothingToExchange))
}

/// Replaces what the map and the status tree say of the blocks of `part`.
fn put(fs: &Fs, h: &mut Handle, inode: &Inode, part: Extent) -> Result<()> {
    let map = ExclusiveMap::lock(inode);
    with_nodes(fs, h, &map, true, |nodes| extent_tree::put_one(nodes, part))?;
    let status = Status::of(&part);
    MapView::lock(&fs.maps, &inode.known).set(status, ReservationFate::GiveBack);
    Ok(())
}
