//! Block maps of ext2 and ext3: twelve direct block pointers in the inode, and trees of indirect
//! blocks with one, two and three levels.
//!
//! This part reads and removes; [`grow`] adds. All blocks of such a map are written ones: it has no
//! unwritten state.
//!
//! An indirect block has neither magic nor checksum: every pointer in it must be to a block that
//! the file may own. The depth comes from the pointer's index in the inode, never from the disk, so
//! a cycle ends after three levels. A removal first reads and plans, then changes, so damage that
//! it meets leaves the map as it was.

mod grow;

use extant_disk::extent::{MAX_END, ROOT_BYTES};
use extant_jbd2::{Block, Handle};
use extant_units::{Blocks, Lblk, Pblk};

pub(super) use self::grow::{enter, prepare, room};
use super::MapState;
use super::disk_nodes::DiskNodes;
use super::extent_status::Status;
use super::extent_tree::{Limit, Nodes};
use super::map_lock::ExclusiveMap;
use crate::alloc::{self, Run};
use crate::inode::Inode;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;
use crate::volume::metadata_kind::CheckKind;

/// Direct pointers in the inode.
const DIRECT: usize = 12;
/// Pointers in the inode.
const SLOTS: usize = ROOT_BYTES / 4;

/// The tree below one of the inode's pointers.
#[derive(Clone, Copy)]
struct Tree {
    /// Index of the pointer in the inode.
    slot: usize,
    /// Levels of indirect blocks: 0 for a data block.
    levels: u32,
    /// First file block below it.
    base: u64,
    /// File blocks below it.
    span: u64,
}

/// The trees of an inode, left to right, with `per_block` pointers in a block.
fn trees(per_block: u64) -> [Tree; SLOTS] {
    let mut base = 0;
    core::array::from_fn(|slot| {
        let levels = u32::try_from(slot.saturating_sub(DIRECT - 1)).unwrap_or(0);
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
fn tree_of(per_block: u64, at: u64) -> Option<Tree> {
    let holds = |tree: &Tree| at < tree.base + tree.span;
    trees(per_block).into_iter().find(holds)
}

/// File blocks that a block map with `per_block` pointers in a block can hold, if the inode can
/// count `countable` blocks in all, indirect ones included.
pub(super) fn reach(per_block: u64, countable: u64) -> u64 {
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

fn per_block(nodes: &DiskNodes<'_>) -> u64 {
    nodes.block_size().bytes_u64() / 4
}

/// Pointer `at` of an indirect block, or of the inode.
fn number(bytes: &[u8], at: usize) -> u32 {
    let (numbers, _) = bytes.as_chunks::<4>();
    numbers.get(at).map_or(0, |raw| u32::from_le_bytes(*raw))
}

fn set_number(bytes: &mut [u8], at: usize, value: u32) {
    let (numbers, _) = bytes.as_chunks_mut::<4>();
    if let Some(number) = numbers.get_mut(at) {
        *number = value.to_le_bytes();
    }
}

/// The `i_block` of `nodes`, with all pointers checked.
fn checked_root(nodes: &DiskNodes<'_>) -> Result<[u8; ROOT_BYTES]> {
    let root = nodes.root();
    check(nodes, &root).map_err(|what| Error::corrupt(Location::Inode(nodes.ino), what))?;
    Ok(root)
}

fn check(nodes: &DiskNodes<'_>, bytes: &[u8]) -> Result<(), String> {
    let (numbers, _) = bytes.as_chunks::<4>();
    let bad = numbers
        .iter()
        .map(|raw| u32::from_le_bytes(*raw))
        .find(|&p| p != 0 && !nodes.usable(Pblk::new(p.into()), 1));
    bad.map_or(Ok(()), |p| {
        Err(format!(
            "block map names block {p}, outside of what files may use"
        ))
    })
}

/// The indirect block at `at`.
fn read(nodes: &DiskNodes<'_>, at: u32) -> Result<Block> {
    let at = Pblk::new(at.into());
    let key = CheckKind::Indirect.of_inode(nodes.ino);
    nodes.cache.read(at, key, |bytes| {
        check(nodes, bytes).map_err(|what| {
            Error::corrupt(Location::Inode(nodes.ino), format!("at block {at}: {what}"))
        })
    })
}

/// The range from `lblk` on. For a hole, all of it that one indirect block shows.
pub(super) fn find(nodes: &DiskNodes<'_>, lblk: Lblk) -> Result<Status> {
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
        let index = usize::try_from(index).unwrap_or(usize::MAX);
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
    Ok(Status::hole(lblk, at.saturating_add(1)))
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
    let len = u64::try_from(len).unwrap_or(1).max(1);
    if first == 0 {
        return Status::hole(lblk, u64::from(lblk.get()).saturating_add(len));
    }
    let end = u64::from(lblk.get()).saturating_add(len).min(MAX_END);
    let len = end.saturating_sub(u64::from(lblk.get()));
    let len = u32::try_from(len).unwrap_or(1).max(1);
    Status {
        lblk,
        len,
        state: MapState::Written(Pblk::new(first.into())),
    }
}

/// The plan of a removal.
struct RemovalPlan<'a> {
    fs: &'a Fs,
    inode: &'a Inode,
    nodes: &'a DiskNodes<'a>,
    /// The range that becomes a hole.
    from: u64,
    end: u64,
    limit: Limit,
    /// Runs of data blocks to free, right to left.
    runs: Vec<Run>,
    /// Indirect blocks to free.
    emptied: Vec<Pblk>,
    /// Pointers to clear in blocks that stay.
    zeroed: Vec<(Block, Vec<usize>)>,
    /// Nothing is left from here on.
    clear_from: u64,
    /// The limit was reached.
    full: bool,
}

impl RemovalPlan<'_> {
    /// Plans the removal below `next`, the pointer to `tree`'s top. Returns true if nothing is left
    /// below it.
    fn prune(&mut self, next: u32, tree: Tree) -> Result<bool> {
        if tree.levels == 0 {
            return Ok(self.take(next, tree.base));
        }
        if self.runs.len() + self.emptied.len() >= self.limit.extents {
            self.full = true;
            return Ok(false);
        }
        let block = read(self.nodes, next)?;
        let data = block.data();
        let below = Tree {
            levels: tree.levels - 1,
            span: (tree.span / per_block(self.nodes)).max(1),
            ..tree
        };
        let count = data.len() / 4;
        let mut zeroed = Vec::new();
        let mut left = (0..count).filter(|&at| number(&data, at) != 0).count();
        let last = self.end.saturating_sub(1).saturating_sub(tree.base) / below.span;
        let last = usize::try_from(last)
            .unwrap_or(usize::MAX)
            .min(count.saturating_sub(1));
        for at in (0..=last).rev() {
            let base = tree.base + (at as u64) * below.span;
            if self.full || base + below.span <= self.from {
                break;
            }
            let next = number(&data, at);
            if next != 0 && self.prune(next, Tree { base, ..below })? {
                zeroed.push(at);
                left -= 1;
            }
        }
        if left == 0 && !has_delayed(self.fs, self.inode, tree.base, tree.base + tree.span) {
            self.emptied.push(Pblk::new(next.into()));
            return Ok(true);
        }
        if !zeroed.is_empty() {
            self.zeroed.push((block, zeroed));
        }
        Ok(false)
    }

    /// Takes one data block. Returns false if the limit is reached.
    fn take(&mut self, pblk: u32, lblk: u64) -> bool {
        let start = Pblk::new(pblk.into());
        let joins = self
            .runs
            .last()
            .is_some_and(|run| start.checked_add(1) == Some(run.start));
        let room = self.runs.len() + self.emptied.len() < self.limit.extents.max(1);
        if self.limit.blocks == 0 || !(joins || room) {
            self.full = true;
            return false;
        }
        self.limit.blocks -= 1;
        self.clear_from = lblk;
        match self.runs.last_mut().filter(|_| joins) {
            Some(run) => {
                run.start = start;
                run.len = run.len.saturating_add(Blocks::ONE);
            }
            None => self.runs.push(Run {
                start,
                len: Blocks::ONE,
            }),
        }
        true
    }
}

/// Whether a block in `from..to` is delayed: room was made for its pointer.
fn has_delayed(fs: &Fs, inode: &Inode, from: u64, to: u64) -> bool {
    let tree = inode.extents.lock(&fs.status);
    let mut at = from;
    while tree.delayed() > 0 && at < to {
        let Some(known) = tree
            .next_from(at)
            .filter(|known| known.cut(from, to).is_some())
        else {
            return false;
        };
        if known.state == MapState::Delayed {
            return true;
        }
        at = known.end();
    }
    false
}

/// Removes the rightmost blocks in `from..end`, within `limit`, from the map. Returns the data
/// blocks, which the caller frees, the block from which on nothing is left, and whether emptied
/// indirect blocks could be freed.
///
/// # Errors
/// Damage, with nothing changed, or a stopped journal.
pub(super) fn remove_some(
    fs: &Fs,
    h: &mut Handle,
    map: &ExclusiveMap<'_>,
    (from, end): (Lblk, u64),
    limit: Limit,
) -> Result<(Vec<Run>, u64, Result<()>)> {
    let inode = map.inode();
    let nodes = DiskNodes::of(fs, map, inode.core.read().i_block);
    let mut root = checked_root(&nodes)?;
    let from = u64::from(from.get());
    let mut plan = RemovalPlan {
        fs,
        inode,
        nodes: &nodes,
        from,
        end,
        limit,
        runs: Vec::new(),
        emptied: Vec::new(),
        zeroed: Vec::new(),
        clear_from: end,
        full: false,
    };
    let mut changed = false;
    for tree in trees(per_block(&nodes)).iter().rev() {
        let next = number(&root, tree.slot);
        let inside = tree.base < end && tree.base + tree.span > from;
        if next == 0 || !inside || plan.full {
            continue;
        }
        if plan.prune(next, *tree)? {
            set_number(&mut root, tree.slot, 0);
            changed = true;
        }
    }
    let RemovalPlan {
        runs,
        emptied,
        zeroed,
        clear_from,
        full,
        ..
    } = plan;

    // From here on only a stopped journal can fail.
    changed |= !zeroed.is_empty();
    clear_pointers(h, zeroed)?;
    if changed {
        let data: u64 = runs.iter().map(|run| run.len.get()).sum();
        store_root(fs, h, inode, &root, data + emptied.len() as u64)?;
    }
    let mut result = Ok(());
    for at in emptied {
        result = result.and(alloc::free_blocks(
            fs,
            h,
            Run {
                start: at,
                len: Blocks::ONE,
            },
            true,
        ));
    }
    // The map is right already: the caller frees the data, and ends with this failure. A map that
    // names its indirect blocks repeatedly is not followed to its end.
    Ok((runs, if full { clear_from } else { from }, result))
}

/// Clears pointers in indirect blocks that stay.
fn clear_pointers(h: &mut Handle, zeroed: Vec<(Block, Vec<usize>)>) -> Result<()> {
    for (block, indices) in zeroed {
        h.modify(&block, |bytes| {
            for at in indices {
                set_number(bytes, at, 0);
            }
        })?;
    }
    Ok(())
}

/// Stores the pointers of an inode that has lost `blocks` blocks. The indirect blocks have changed
/// already, so a failure stops the journal.
fn store_root(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    root: &[u8; ROOT_BYTES],
    blocks: u64,
) -> Result<()> {
    inode.note_change(h);
    let sectors = blocks << (fs.layout.block_size.log2() - 9);
    let stored = inode.update(fs, h, |core| {
        core.i_block = *root;
        // Saturates, as the count of a damaged inode may be anything.
        core.sectors = core.sectors.saturating_sub(sectors);
    });
    stored.inspect_err(|error| {
        fs.journal
            .abort(&format!("storing an inode's map: {error}"));
    })
}

/// All indirect blocks, at most `limit` of them; `None` if there are more.
///
/// # Errors
/// Damage or a failed read.
pub(super) fn numbers(nodes: &DiskNodes<'_>, limit: u64) -> Result<Option<Vec<Pblk>>> {
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
