//! Adding blocks to a block map.
//!
//! First room: the indirect blocks on the path to the file block's pointer. Then the pointer
//! itself, and those of the blocks after it as far as one indirect block goes. Room that
//! stays unused is an empty indirect block: a valid map.
//!
//! # Errors
//! All that can run out is allocated before anything changes. After that only a stopped journal can
//! fail.

use extant_disk::damage::MapDamage;
use extant_disk::extent::Extent;
use extant_jbd2::Block;
use extant_units::{Lblk, Pblk};

use super::pointers::{
    DIRECT, Tree, checked_root, find, number, per_block, read, set_number, tree_of,
};
use crate::map::disk_nodes::{DiskNodes, HandleNodes};
use crate::map::extent_tree::NodesMut;
use crate::state::map::MapState;
use crate::types::error::{Error, Location, Result};

/// The path from the inode to a file block's pointer, as far as it exists.
struct PointerPath {
    tree: Tree,
    /// Indirect blocks from the top down, each with the index that the path follows.
    blocks: Vec<(Block, usize)>,
    /// Indices in the missing blocks, from the top down.
    missing: Vec<usize>,
    /// The file block after the last whose pointer lies in the same block.
    end: u64,
}

/// The room for a file block's pointer.
pub(in crate::map) struct PointerRoom {
    /// The file block after the last whose pointer lies in the same block.
    pub(in crate::map) end: u64,
    /// The goal for its data block.
    pub(in crate::map) goal: Option<Pblk>,
}

fn path(nodes: &DiskNodes<'_>, lblk: Lblk) -> Result<PointerPath> {
    let per_block = per_block(nodes);
    let at = u64::from(lblk.get());
    let tree = tree_of(per_block, at).ok_or(Error::FileTooBig)?;
    let mut path = PointerPath {
        tree,
        blocks: Vec::new(),
        missing: Vec::new(),
        end: if tree.levels == 0 {
            DIRECT as u64
        } else {
            at - (at - tree.base) % per_block + per_block
        },
    };
    let mut next = number(&checked_root(nodes)?, tree.slot);
    let mut span = tree.span;
    let mut inside = at - tree.base;
    for _ in 0..tree.levels {
        span = (span / per_block).max(1);
        let index = extant_units::index(inside / span);
        inside %= span;
        if next == 0 {
            path.missing.push(index);
            continue;
        }
        let block = read(nodes, next)?;
        next = number(&block.data(), index);
        path.blocks.push((block, index));
    }
    debug_assert!(at < path.end, "room for the block itself");
    Ok(path)
}

/// The file block after the last whose pointer lies in the same block as that of `lblk`, if there
/// is room for them.
pub(in crate::map) fn room(nodes: &DiskNodes<'_>, lblk: Lblk) -> Result<Option<u64>> {
    let path = path(nodes, lblk)?;
    Ok(path.missing.is_empty().then_some(path.end))
}

/// Makes room for the pointer of `lblk`.
///
/// # Errors
/// No space, [`Error::FileTooBig`] past the last block that a block map holds, damage: with nothing
/// changed.
pub(in crate::map) fn prepare(nodes: &mut HandleNodes<'_>, lblk: Lblk) -> Result<PointerRoom> {
    let path = path(nodes.disk(), lblk)?;
    let goal = goal(nodes.disk(), &path, lblk)?;
    let room = PointerRoom {
        end: path.end,
        goal,
    };
    let made = nodes.allocate(goal, path.missing.len())?;
    debug_assert_eq!(
        made.len(),
        path.missing.len(),
        "a block for each missing one"
    );
    // From the bottom up: an indirect block is complete before a pointer leads to it.
    let mut below = 0;
    for (&at, &index) in made.iter().zip(&path.missing).rev() {
        nodes.create_numbers(at, |bytes| set_number(bytes, index, below))?;
        below = narrow(nodes, at)?;
    }
    if !made.is_empty() {
        put(nodes, &path, &[below])?;
    }
    Ok(room)
}

/// Enters `extent`, which lies in what [`prepare`] made room for.
pub(in crate::map) fn enter(nodes: &mut HandleNodes<'_>, extent: Extent) -> Result<()> {
    let path = path(nodes.disk(), extent.lblk)?;
    if !path.missing.is_empty() || extent.end() > path.end {
        let ino = nodes.disk().ino;
        return Err(Error::corrupt(Location::Inode(ino), MapDamage::LostRoom));
    }
    let first = narrow(nodes, extent.pblk)?;
    let numbers: Vec<u32> = (first..).take(extent.len as usize).collect();
    put(nodes, &path, &numbers)
}

/// Writes `numbers` where `path` ends.
fn put(nodes: &mut HandleNodes<'_>, path: &PointerPath, numbers: &[u32]) -> Result<()> {
    let Some((block, index)) = path.blocks.last() else {
        let mut root = checked_root(nodes.disk())?;
        for (at, &value) in (path.tree.slot..).zip(numbers) {
            set_number(&mut root, at, value);
        }
        return nodes.set_root(&root);
    };
    nodes.edit_numbers(block, |bytes| {
        for (at, &value) in (*index..).zip(numbers) {
            set_number(bytes, at, value);
        }
    })
}

/// Right behind the file block before; else with a gap of as many blocks as pointers before it are
/// missing; else near the indirect block.
fn goal(nodes: &DiskNodes<'_>, path: &PointerPath, lblk: Lblk) -> Result<Option<Pblk>> {
    if let Some(before) = lblk.get().checked_sub(1)
        && let MapState::Written(at) = find(nodes, Lblk::new(before))?.state
    {
        return Ok(at.checked_add(1));
    }
    let Some((block, index)) = path.blocks.last().filter(|_| path.missing.is_empty()) else {
        return Ok(path.blocks.last().map(|(block, _)| block.pblk()));
    };
    let data = block.data();
    let before = (1..=*index).find(|&gap| number(&data, index - gap) != 0);
    Ok(before.map_or(Some(block.pblk()), |gap| {
        Pblk::new(number(&data, index - gap).into()).checked_add(gap as u64)
    }))
}

fn narrow(nodes: &HandleNodes<'_>, at: Pblk) -> Result<u32> {
    let ino = Location::Inode(nodes.disk().ino);
    u32::try_from(at.get()).map_err(|_| Error::corrupt(ino, MapDamage::WidePointer))
}
