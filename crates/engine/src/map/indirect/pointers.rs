//! The pointers of a block map: where they stand, and reading them.

use extant_disk::damage::MapDamage;
use extant_disk::extent::{MAX_END, ROOT_BYTES};
use extant_jbd2::Block;
use extant_units::{Lblk, Pblk, exact_u32};

use crate::map::disk_nodes::DiskNodes;
use crate::map::extent_tree::Nodes;
use crate::state::map::{MapState, Status};
use crate::state::volume::CheckKind;
use crate::types::error::{Error, Location, Result};

/// Direct pointers in the inode.
pub(super) const DIRECT: usize = 12;
/// Pointers in the inode.
const SLOTS: usize = ROOT_BYTES / 4;

/// Behind the direct pointers, one for each level.
const _: () = assert!(SLOTS == DIRECT + 3);

/// The tree below one of the inode's pointers.
#[derive(Clone, Copy)]
pub(super) struct Tree {
    /// Index of the pointer in the inode.
    pub(super) slot: usize,
    /// Levels of indirect blocks: 0 for a data block.
    pub(super) levels: u32,
    /// First file block below it.
    pub(super) base: u64,
    /// File blocks below it.
    pub(super) span: u64,
}

/// The trees of an inode, left to right, with `per_block` pointers in a block.
pub(super) fn trees(per_block: u64) -> [Tree; SLOTS] {
    let mut base = 0;
    core::array::from_fn(|slot| {
        // A direct block has no level above it.
        let levels = exact_u32(slot.saturating_sub(DIRECT - 1) as u64);
        let span = per_block.pow(levels);
        let tree = Tree {
            slot,
            levels,
            base,
            span,
        };
        base += span;
        tree
    })
}

/// The tree that holds file block `at`.
pub(super) fn tree_of(per_block: u64, at: u64) -> Option<Tree> {
    let holds = |tree: &Tree| at < tree.base + tree.span;
    trees(per_block).into_iter().find(holds)
}

/// File blocks that a block map with `per_block` pointers in a block can hold, if the inode can
/// count `countable` blocks in all, indirect ones included.
pub(in crate::map) fn reach(per_block: u64, countable: u64) -> u64 {
    let [.., last] = trees(per_block);
    let all = last.base + last.span;
    // The indirect blocks of so many data blocks, level by level.
    let mut numbers = 0;
    for tree in trees(per_block) {
        let below = countable.saturating_sub(tree.base).min(tree.span);
        let mut named = below;
        for _ in 0..tree.levels {
            named = named.div_ceil(per_block);
            numbers += named;
        }
    }
    all.min(countable.saturating_sub(numbers))
}

pub(super) fn per_block(nodes: &DiskNodes<'_>) -> u64 {
    nodes.block_size().bytes_u64() / 4
}

/// Pointer `at` of an indirect block, or of the inode.
pub(super) fn number(bytes: &[u8], at: usize) -> u32 {
    let (numbers, _) = bytes.as_chunks::<4>();
    debug_assert!(at < numbers.len(), "pointer {at} of {}", numbers.len());
    numbers.get(at).map_or(0, |raw| u32::from_le_bytes(*raw))
}

pub(super) fn set_number(bytes: &mut [u8], at: usize, value: u32) {
    let (numbers, _) = bytes.as_chunks_mut::<4>();
    debug_assert!(at < numbers.len(), "pointer {at} of {}", numbers.len());
    if let Some(number) = numbers.get_mut(at) {
        *number = value.to_le_bytes();
    }
}

/// The `i_block` of `nodes`, with all pointers checked.
pub(super) fn checked_root(nodes: &DiskNodes<'_>) -> Result<[u8; ROOT_BYTES]> {
    let root = nodes.root();
    match unusable(nodes, &root) {
        Some(pointer) => Err(damaged(nodes, MapDamage::RootPointer { pointer })),
        None => Ok(root),
    }
}

/// The first pointer that leads out of what files may use.
fn unusable(nodes: &DiskNodes<'_>, bytes: &[u8]) -> Option<u32> {
    let (numbers, _) = bytes.as_chunks::<4>();
    let mut pointers = numbers.iter().map(|raw| u32::from_le_bytes(*raw));
    pointers.find(|&p| p != 0 && !nodes.usable(Pblk::new(p.into()), 1))
}

fn damaged(nodes: &DiskNodes<'_>, damage: MapDamage) -> Error {
    Error::corrupt(Location::Inode(nodes.ino), damage)
}

/// The indirect block at `at`.
pub(super) fn read(nodes: &DiskNodes<'_>, at: u32) -> Result<Block> {
    let at = Pblk::new(at.into());
    let key = CheckKind::Indirect.of_inode(nodes.ino);
    nodes
        .cache
        .read(at, key, |bytes| match unusable(nodes, bytes) {
            Some(pointer) => Err(damaged(nodes, MapDamage::Pointer { at, pointer })),
            None => Ok(()),
        })
}

/// The range from `lblk` on. For a hole, all of it that one indirect block shows.
pub(in crate::map) fn find(nodes: &DiskNodes<'_>, lblk: Lblk) -> Result<Status> {
    let root = checked_root(nodes)?;
    let at = u64::from(lblk.get());
    let per_block = per_block(nodes);
    let Some(tree) = tree_of(per_block, at) else {
        return Ok(Status::hole(lblk, MAX_END));
    };
    if tree.levels == 0 {
        return Ok(run(&root, tree.slot, DIRECT, lblk));
    }
    let (mut base, mut span) = (tree.base, tree.span);
    let mut next = number(&root, tree.slot);
    let hole_from = |base: u64, end: u64| {
        let start = u32::try_from(base).map_or(lblk, Lblk::new);
        Ok(Status::hole(start, end))
    };
    for _ in 0..tree.levels {
        if next == 0 {
            return hole_from(base, base + span);
        }
        let data = read(nodes, next)?.data();
        span = (span / per_block).max(1);
        let index = (at - base) / span;
        base += index * span;
        let index = extant_units::index(index);
        let count = data.len() / 4;
        if span == 1 {
            return Ok(run(&data, index, count, lblk));
        }
        next = number(&data, index);
        if next == 0 {
            let zeros = (index..count)
                .take_while(|&at| number(&data, at) == 0)
                .count() as u64;
            return hole_from(base, base + zeros * span);
        }
    }
    Ok(Status::hole(lblk, at + 1))
}

/// The run of data blocks, or of holes, that starts at pointer `at` of `bytes`, which maps `lblk`.
fn run(bytes: &[u8], at: usize, end: usize, lblk: Lblk) -> Status {
    let first = number(bytes, at);
    let follows = |(skip, index): (u32, usize)| {
        let expected = if first == 0 {
            Some(0)
        } else {
            first.checked_add(skip)
        };
        Some(number(bytes, index)) == expected
    };
    let len = (0u32..)
        .zip(at..end)
        .take_while(|&next| follows(next))
        .count();
    let len = len.max(1) as u64;
    if first == 0 {
        return Status::hole(lblk, u64::from(lblk.get()) + len);
    }
    debug_assert!(u64::from(lblk.get()) < MAX_END, "a file block");
    let room = MAX_END - u64::from(lblk.get());
    let len = exact_u32(len.min(room));
    Status {
        lblk,
        len,
        state: MapState::Written(Pblk::new(first.into())),
    }
}

/// All indirect blocks, at most `limit` of them; `None` if there are more.
///
/// # Errors
/// Damage or a failed read.
pub(in crate::map) fn numbers(nodes: &DiskNodes<'_>, limit: u64) -> Result<Option<Vec<Pblk>>> {
    let root = checked_root(nodes)?;
    let mut pending: Vec<(u32, u32)> = trees(per_block(nodes))
        .iter()
        .map(|tree| (number(&root, tree.slot), tree.levels))
        .filter(|&(at, levels)| at != 0 && levels > 0)
        .collect();
    let mut found = Vec::new();
    // A block is read once for each pointer to it, and no more often than the limit says.
    while let Some((at, levels)) = pending.pop() {
        if found.len() as u64 >= limit {
            return Ok(None);
        }
        found.push(Pblk::new(at.into()));
        if levels > 1 {
            let data = read(nodes, at)?.data();
            let (below, _) = data.as_chunks::<4>();
            let below = below.iter().map(|raw| u32::from_le_bytes(*raw));
            pending.extend(below.filter(|&at| at != 0).map(|at| (at, levels - 1)));
        }
    }
    Ok(Some(found))
}
