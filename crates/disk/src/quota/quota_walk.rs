//! Walks over all entries of a file of quotas: one that fails at damage, and one that takes what
//! can be read.

use core::ops::ControlFlow;

use super::entry_block::{ENTRIES, EntryBlock};
use super::quota_tree::{EntryPlace, LEVELS, QuotaBlocks, ROOT, reference};
use super::{QuotaBlock, QuotaEntry, QuotaError, QuotaHeader};

/// The use of a block: unknown, a node, or entries of which so many were reached.
const UNKNOWN: u8 = 0;
const NODE: u8 = u8::MAX;

/// Calls `each` for every entry, in the order of their ids. Reads every block once, if the ids of
/// each block of entries are neighbours.
///
/// # Errors
/// As [`super::find`]; a block that the tree leads to twice; an entry under the wrong id, or none
/// where the tree leads; a wrong count of entries, or one that is not reached; a list that an
/// insertion could not use; what `each` returns.
pub fn walk<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    each: &mut dyn FnMut(EntryPlace, QuotaEntry) -> Result<(), B::Error>,
) -> Result<(), B::Error> {
    let mut on = |place, entry| each(place, entry).map(ControlFlow::Continue);
    let mut walk = Walk::new(blocks, header, None, &mut on);
    let _ended = walk.node(ROOT, 0, 0)?;
    let uses = walk.uses;
    check_leaves(blocks, &uses)?;
    check_lists(blocks, header, &uses)
}

/// Calls `each` for the entries that can be found in a damaged file: those that the tree leads to,
/// under their own ids, and then those of blocks that it does not lead to, which may have ids that
/// were there already.
///
/// # Errors
/// A block cannot be read; what `each` returns.
pub fn salvage<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    each: &mut dyn FnMut(EntryPlace, QuotaEntry) -> Result<(), B::Error>,
) -> Result<(), B::Error> {
    // As many entries as there can be, and as many ways to none.
    let budget = u64::from(header.blocks) * 2 * ENTRIES as u64;
    let mut on = |place, entry| each(place, entry).map(ControlFlow::Continue);
    let mut walk = Walk::new(blocks, header, Some(budget), &mut on);
    let _ended = walk.node(ROOT, 0, 0)?;
    let uses = walk.uses;
    // Blocks of entries that no node leads to any more.
    for (block, _) in (0..)
        .zip(&uses)
        .skip(2)
        .filter(|(_, used)| **used == UNKNOWN)
    {
        let entries = EntryBlock::of(&blocks.read(block)?);
        let count = entries.in_use();
        if count == 0 || entries.header.entries.get() != count {
            continue;
        }
        for (index, entry) in entries.used() {
            each(EntryPlace { block, index }, entry)?;
        }
    }
    Ok(())
}

/// The entry of `id`, or of the first id behind it that has one. Reads the way there alone.
///
/// # Errors
/// As [`walk`], as far as it reads.
pub fn first_from<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    id: u32,
) -> Result<Option<QuotaEntry>, B::Error> {
    let mut first = None;
    let mut take = |_, entry| {
        first = Some(entry);
        Ok(ControlFlow::Break(()))
    };
    let mut walk = Walk::new(blocks, header, None, &mut take);
    walk.from = id;
    let _ended = walk.node(ROOT, 0, 0)?;
    Ok(first)
}

/// The walk goes on.
const ON: ControlFlow<()> = ControlFlow::Continue(());

/// Receives an entry, and says whether the walk goes on.
type Each<'a, E> = dyn FnMut(EntryPlace, QuotaEntry) -> Result<ControlFlow<()>, E> + 'a;

/// A walk over the tree.
struct Walk<'a, B: QuotaBlocks> {
    blocks: &'a mut B,
    header: &'a QuotaHeader,
    /// By block. References to a block of entries are shared by up to 14 ids.
    uses: Vec<u8>,
    /// The block of entries that was read last.
    leaf: Option<(u32, QuotaBlock)>,
    /// Ways to entries that are still tried, if damage is passed over.
    budget: Option<u64>,
    /// The first id that is of interest.
    from: u32,
    each: &'a mut Each<'a, B::Error>,
}

impl<'a, B: QuotaBlocks> Walk<'a, B> {
    fn new(
        blocks: &'a mut B,
        header: &'a QuotaHeader,
        budget: Option<u64>,
        each: &'a mut Each<'a, B::Error>,
    ) -> Self {
        Self {
            blocks,
            header,
            uses: vec![UNKNOWN; header.blocks as usize],
            leaf: None,
            budget,
            from: 0,
            each,
        }
    }

    /// Fails, unless damage is passed over.
    fn damage(&self, error: QuotaError) -> Result<(), B::Error> {
        match self.budget {
            Some(_) => Ok(()),
            None => Err(error.into()),
        }
    }

    /// The node at `depth`, whose ids begin with the bytes of `id`.
    fn node(&mut self, block: u32, depth: usize, id: u32) -> Result<ControlFlow<()>, B::Error> {
        let seen = &mut self.uses[block as usize];
        if *seen != UNKNOWN {
            return self.damage(QuotaError::Repeated { block }).map(|()| ON);
        }
        *seen = NODE;
        let node = self.blocks.read(block)?;
        let shift = 8 * (LEVELS - 1 - depth);
        for slot in 0..=u8::MAX {
            let id = id | u32::from(slot) << shift;
            let last = id | !(u32::MAX << shift);
            let target = reference(&node, usize::from(slot));
            if target == 0 || last < self.from {
                continue;
            }
            if let Err(error) = self.header.check(block, target) {
                self.damage(error)?;
                continue;
            }
            let flow = if depth + 1 < LEVELS {
                self.node(target, depth + 1, id)?
            } else {
                self.entry(target, id)?
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ON)
    }

    fn entry(&mut self, block: u32, id: u32) -> Result<ControlFlow<()>, B::Error> {
        match &mut self.budget {
            Some(0) => return Ok(ON),
            Some(left) => *left -= 1,
            None => {}
        }
        let reached = self.uses[block as usize];
        if usize::from(reached) >= ENTRIES {
            return self.damage(QuotaError::Repeated { block }).map(|()| ON);
        }
        let bytes = match &self.leaf {
            Some((read, bytes)) if *read == block => *bytes,
            _ => self.blocks.read(block)?,
        };
        self.leaf = Some((block, bytes));
        let entries = EntryBlock::of(&bytes);
        let (counted, found) = (entries.header.entries.get(), entries.in_use());
        if counted != found {
            self.damage(QuotaError::Count {
                block,
                counted,
                found,
            })?;
        }
        let Some((index, entry)) = entries.used().find(|(_, entry)| entry.id == id) else {
            return self.damage(QuotaError::NoEntry { block, id }).map(|()| ON);
        };
        self.uses[block as usize] = reached + 1;
        (self.each)(EntryPlace { block, index }, entry)
    }
}

/// Fails at a block of entries that has some which were not reached.
fn check_leaves<B: QuotaBlocks>(blocks: &mut B, uses: &[u8]) -> Result<(), B::Error> {
    for (block, &reached) in (0..).zip(uses) {
        if reached == UNKNOWN || reached == NODE {
            continue;
        }
        if u16::from(reached) != EntryBlock::of(&blocks.read(block)?).in_use() {
            return Err(QuotaError::Unreached { block }.into());
        }
    }
    Ok(())
}

/// Fails at lists of which an insertion would take a block that it must not take.
fn check_lists<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    uses: &[u8],
) -> Result<(), B::Error> {
    let mut listed = vec![false; uses.len()];
    for (head, of_entries) in [(header.free_entry, true), (header.free_block, false)] {
        let (mut before, mut block) = (0, head);
        while block != 0 {
            if std::mem::replace(&mut listed[block as usize], true) {
                return Err(QuotaError::Repeated { block }.into());
            }
            let list = EntryBlock::of(&blocks.read(block)?).header;
            let reached = uses[block as usize];
            let belongs = match of_entries {
                // All of its entries were reached.
                true => {
                    reached != UNKNOWN
                        && usize::from(reached) < ENTRIES
                        && list.prev_free.get() == before
                }
                false => reached == UNKNOWN,
            };
            if !belongs {
                return Err(QuotaError::List { block }.into());
            }
            let next = list.next_free.get();
            if next != 0 {
                header.check(block, next)?;
            }
            (before, block) = (block, next);
        }
    }
    Ok(())
}
