//! Ranges of a file whose location another system chose: those of fast commits, which a replay
//! enters as they are.
//!
//! Blocks may have moved within the file, or between files, so all ranges that say something else
//! are removed ([`remove_unlike`]) before the first is entered ([`enter_logged`]).

use extant_disk::damage::MapDamage;
use extant_disk::extent::Extent;
use extant_jbd2::Handle;
use extant_units::{Blocks, Lblk, Pblk};

use super::change::{NewExtent, convert_to_unwritten, convert_to_written, enter, space_of_hole};
use super::disk_nodes::{has_extents, with_nodes};
use super::extent_tree;
use super::locked_map::ExclusiveMap;
use super::lookup::lookup;
use super::removal::remove;
use crate::state::alloc::Run;
use crate::state::inode::Inode;
use crate::state::map::{BlockMapping, MapState};
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, credits};

/// The location and state that `extent` has for the block `at` of it.
fn logged_at(extent: &Extent, at: Lblk) -> MapState {
    let inside = at.distance_from(extent.lblk).unwrap_or(0);
    let block = extent.pblk.plus(u64::from(inside));
    match extent.unwritten {
        true => MapState::Unwritten(block),
        false => MapState::Written(block),
    }
}

fn block_of(state: MapState) -> Option<Pblk> {
    match state {
        MapState::Written(block) | MapState::Unwritten(block) => Some(block),
        MapState::Hole | MapState::Delayed => None,
    }
}

/// The pieces of files that a replay may still look at. A record of a few bytes may range over tens
/// of thousands; those of a log that a system wrote come to few more than the files have.
#[derive(Debug)]
pub(crate) struct PieceBudget(u64);

impl Default for PieceBudget {
    fn default() -> Self {
        Self(1 << 24)
    }
}

impl PieceBudget {
    fn spend(&mut self) -> Result<()> {
        self.0 = self.0.checked_sub(1).ok_or(Error::NotSupported(
            "fast commits with ranges over so many extents",
        ))?;
        Ok(())
    }
}

/// Calls `each` with what `inode` has now in the range of `extent`, piece by piece.
fn for_each_piece(
    fs: &Fs,
    (inode, budget): (&Inode, &mut PieceBudget),
    extent: &Extent,
    mut each: impl FnMut(BlockMapping) -> Result<()>,
) -> Result<()> {
    if !has_extents(inode) {
        return Err(Error::NotSupported(
            "fast commits of a file without extents",
        ));
    }
    let mut at = u64::from(extent.lblk.get());
    while at < extent.end() {
        let Ok(lblk) = u32::try_from(at) else { break };
        let left = extant_units::at_most_u32(extent.end() - at);
        budget.spend()?;
        let found = lookup(fs, inode, Lblk::new(lblk), left)?;
        // Each piece has at least one block.
        at += u64::from(found.len.max(1));
        each(found)?;
    }
    Ok(())
}

/// Makes holes where `inode` has other blocks in the range of `extent` than that says. Starts
/// handles.
///
/// # Errors
/// [`Error::NotSupported`] for a file without extents, or if `budget` is spent; those of
/// [`remove`].
pub(crate) fn remove_unlike(
    fs: &Fs,
    (inode, budget): (&Inode, &mut PieceBudget),
    extent: &Extent,
) -> Result<()> {
    for_each_piece(fs, (inode, budget), extent, |piece| {
        let there = block_of(piece.state);
        if there.is_none() || there == block_of(logged_at(extent, piece.lblk)) {
            return Ok(());
        }
        let mut h = fs.start_with_revokes(credits::remove(fs), credits::REVOKES)?;
        let end = u64::from(piece.lblk.get()) + u64::from(piece.len);
        remove(fs, &mut h, inode, piece.lblk, end)
    })
}

/// Makes `inode` have the blocks of `extent` in its range, in that state. [`remove_unlike`] came
/// before. Calls `take` with the blocks that are new in the file, which marks them as in use.
/// Starts handles.
///
/// # Errors
/// Those of `take`; [`Error::NoSpace`] for a node; [`Error::NotSupported`] for a file without
/// extents, or if `budget` is spent; damage; a stopped journal.
pub(crate) fn enter_logged(
    fs: &Fs,
    (inode, budget): (&Inode, &mut PieceBudget),
    extent: &Extent,
    mut take: impl FnMut(&mut Handle, Run) -> Result<()>,
) -> Result<()> {
    for_each_piece(fs, (inode, budget), extent, |piece| {
        let logged = logged_at(extent, piece.lblk);
        let Some(block) = block_of(logged) else {
            return Ok(());
        };
        let (lblk, len) = (piece.lblk, piece.len);
        if block_of(piece.state).is_some() {
            if piece.state == logged {
                return Ok(());
            }
            let mut h = fs.start(credits::convert(fs))?;
            return match extent.unwritten {
                true => convert_to_unwritten(fs, &mut h, inode, lblk, len),
                false => convert_to_written(fs, &mut h, inode, lblk, len),
            };
        }
        let mut left = Some(Extent {
            lblk,
            len,
            pblk: block,
            unwritten: extent.unwritten,
        });
        while let Some(part) = left {
            let entered = enter_part(fs, inode, part, &mut take)?;
            left = part.slice(part.lblk.plus(entered), part.len - entered);
        }
        Ok(())
    })
}

/// Enters the first blocks of `part`, as many as have their space alike: in a cluster that is the
/// file's already, or in clusters that `take` takes. Returns how many.
fn enter_part(
    fs: &Fs,
    inode: &Inode,
    part: Extent,
    take: &mut impl FnMut(&mut Handle, Run) -> Result<()>,
) -> Result<u32> {
    let taking = credits::remove_extent(&fs.layout);
    let mut h = fs.start(credits::sum([credits::allocate(fs), taking]))?;
    let map = ExclusiveMap::lock(inode);
    let space = space_of_hole(fs, &map, part.lblk, part.len)?;
    let place = u64::from(fs.layout.place_in_cluster(part.lblk));
    let first = fs.layout.cluster_floor(part.pblk);
    let expected = space.shared.unwrap_or_else(|| first.plus(place));
    if part.pblk != expected {
        let (lblk, first) = (part.lblk, part.pblk);
        let damage = MapDamage::Cluster { lblk, first };
        return Err(Error::corrupt(Location::Inode(inode.ino), damage));
    }
    let part = Extent {
        len: space.len,
        ..part
    };
    let mut gained = Run::NONE;
    if space.shared.is_none() {
        let blocks = fs.layout.in_whole_clusters(place + u64::from(part.len));
        gained = Run {
            start: first,
            len: Blocks::new(blocks),
        };
        take(&mut h, gained)?;
    }
    with_nodes(fs, &mut h, &map, true, |nodes| {
        nodes.allow_reserve(true);
        extent_tree::prepare(nodes, part.lblk).map(drop)
    })?;
    let new = NewExtent {
        extent: part,
        gained,
        reserved: false,
    };
    enter(fs, &mut h, &map, new)?;
    Ok(part.len)
}
