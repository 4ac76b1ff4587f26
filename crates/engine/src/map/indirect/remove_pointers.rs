//! Removing blocks from a block map: a plan, then the changes.

use extant_disk::extent::ROOT_BYTES;
use extant_jbd2::{Block, Handle};
use extant_units::{Blocks, Lblk, Pblk, at_most_usize};

use super::pointers::{Tree, checked_root, number, per_block, read, set_number, trees};
use crate::alloc;
use crate::map::disk_nodes::DiskNodes;
use crate::map::extent_tree::Limit;
use crate::map::locked_map::ExclusiveMap;
use crate::state::alloc::Run;
use crate::state::inode::Inode;
use crate::state::map::MapView;
use crate::types::error::Result;
use crate::volume::Fs;

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
        debug_assert!(tree.base < self.end, "a tree of the range");
        let last = (self.end - 1 - tree.base) / below.span;
        let last = at_most_usize(last).min(count - 1);
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
        let view = MapView::lock(&self.fs.maps, &self.inode.known);
        let has_delayed = view.has_delayed(tree.base, tree.base + tree.span);
        drop(view);
        if left == 0 && !has_delayed {
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
        debug_assert!(
            (self.from..self.clear_from).contains(&lblk),
            "right to left"
        );
        let room = self.runs.len() + self.emptied.len() < self.limit.extents;
        if self.limit.blocks == 0 || !(joins || room) {
            self.full = true;
            return false;
        }
        self.limit.blocks -= 1;
        self.clear_from = lblk;
        match self.runs.last_mut().filter(|_| joins) {
            Some(run) => {
                run.start = start;
                run.len = Blocks::new(run.len.get() + 1);
            }
            None => self.runs.push(Run {
                start,
                len: Blocks::ONE,
            }),
        }
        true
    }
}

/// Removes the rightmost blocks in `from..end`, within `limit`, from the map. Returns the data
/// blocks, which the caller frees, the block from which on nothing is left, and whether emptied
/// indirect blocks could be freed.
///
/// # Errors
/// Damage, with nothing changed, or a stopped journal.
pub(in crate::map) fn remove_some(
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
    let data: u64 = runs.iter().map(|run| run.len.get()).sum();
    debug_assert!(
        data <= limit.blocks && clear_from >= from,
        "within the limit"
    );
    if changed {
        store_root(fs, h, inode, &root, data + emptied.len() as u64)?;
    }
    let mut result = Ok(());
    let len = Blocks::ONE;
    for start in emptied {
        result = result.and(alloc::free_blocks(fs, h, Run { start, len }, true));
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
