//! The tree that leads from an id to its entry: looking up, adding, and walking over all.

use super::entry_block::{ENTRIES, EntryBlock, offset};
use super::{BLOCK, QuotaBlock, QuotaEntry, QuotaError, QuotaHeader, QuotaKind, QuotaTimes};

/// Levels of nodes.
const LEVELS: usize = 4;
/// The root of the tree.
const ROOT: u32 = 1;
/// A node has a reference for each value of a byte.
const _: () = assert!(BLOCK / 4 == 1 << u8::BITS);
/// The most blocks that [`insert`] writes: the header, nodes of four levels, the block of the entry
/// and the next one of its list.
pub const INSERT_BLOCKS: u32 = 7;

const _: () = assert!(INSERT_BLOCKS as usize == 1 + LEVELS + 2);

/// The blocks of a file of quotas, as what stores them hands them out.
pub trait QuotaBlocks {
    /// Failure of the storage, or damage that was met.
    type Error: From<QuotaError>;

    /// Reads block `block`, which the header counts.
    ///
    /// # Errors
    /// The file ends before it, or it cannot be read.
    fn read(&mut self, block: u32) -> Result<QuotaBlock, Self::Error>;

    /// Writes block `block`: one that was read before, or the next one behind the last.
    ///
    /// # Errors
    /// It cannot be stored.
    fn write(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), Self::Error>;
}

/// Place of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryPlace {
    /// Its block of the file, of [`BLOCK`] bytes.
    pub block: u32,
    /// Its number in there.
    pub index: usize,
}

impl EntryPlace {
    /// The first byte of the entry in the file.
    pub fn byte(self) -> u64 {
        u64::from(self.block) * BLOCK as u64 + offset(self.index) as u64
    }
}

/// The bytes of an entry: what stands at [`EntryPlace::byte`].
pub fn entry_at(entry: &QuotaEntry) -> [u8; 72] {
    zerocopy::transmute!(entry.encode())
}

/// The reference of a node at `depth` that leads to `id`.
fn slot(id: u32, depth: usize) -> usize {
    usize::from(id.to_be_bytes()[depth])
}

fn reference(node: &QuotaBlock, slot: usize) -> u32 {
    let (words, _) = node.as_chunks::<4>();
    words.get(slot).map_or(0, |word| u32::from_le_bytes(*word))
}

fn set_reference(node: &mut QuotaBlock, slot: usize, target: u32) {
    let (words, _) = node.as_chunks_mut::<4>();
    if let Some(word) = words.get_mut(slot) {
        *word = target.to_le_bytes();
    }
}

/// Finds the entry of `id`; `None` if it has none.
///
/// # Errors
/// A reference that leads outside; a block that lacks the entry; those of `blocks`.
pub fn find<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    id: u32,
) -> Result<Option<(EntryPlace, QuotaEntry)>, B::Error> {
    let mut block = ROOT;
    for depth in 0..LEVELS {
        let target = reference(&blocks.read(block)?, slot(id, depth));
        if target == 0 {
            return Ok(None);
        }
        header.check(block, target)?;
        block = target;
    }
    let entries = EntryBlock::of(&blocks.read(block)?);
    let found = entries.used().find(|(_, entry)| entry.id == id);
    let (index, entry) = found.ok_or(QuotaError::NoEntry { block, id })?;
    Ok(Some((EntryPlace { block, index }, entry)))
}

/// Makes the header and the root of an empty file.
///
/// # Errors
/// Those of `blocks`.
pub fn begin<B: QuotaBlocks>(
    blocks: &mut B,
    kind: QuotaKind,
    times: QuotaTimes,
) -> Result<QuotaHeader, B::Error> {
    let header = QuotaHeader::new(kind, times);
    let mut first = [0; BLOCK];
    header.encode(&mut first);
    blocks.write(0, &first)?;
    blocks.write(ROOT, &[0; BLOCK])?;
    Ok(header)
}

/// Adds `entry`, whose id has none. Writes at most [`INSERT_BLOCKS`] blocks, each once and new ones
/// in the order of their numbers; `header` is written if it changes.
///
/// # Errors
/// As [`find`]; [`QuotaError::Full`]. Nothing was written if the damage is in what it read.
pub fn insert<B: QuotaBlocks>(
    blocks: &mut B,
    header: &mut QuotaHeader,
    entry: &QuotaEntry,
) -> Result<EntryPlace, B::Error> {
    let mut after = *header;
    // The nodes on the way that are there: the last of them gets a new reference.
    let (mut depth, mut last) = (0, ROOT);
    let mut node = blocks.read(ROOT)?;
    loop {
        let target = reference(&node, slot(entry.id, depth));
        if target == 0 {
            break;
        }
        header.check(last, target)?;
        depth += 1;
        if depth == LEVELS {
            let id = entry.id;
            return Err(QuotaError::NoEntry { block: target, id }.into());
        }
        last = target;
        node = blocks.read(last)?;
    }
    let mut new = NewBlocks::default();
    // The nodes that are missing, from above, and then the entry.
    let mut missing = Vec::with_capacity(LEVELS);
    for depth in depth + 1..LEVELS {
        missing.push((depth, new.take(blocks, &mut after)?));
    }
    let place = place_entry(blocks, &mut after, entry, &mut new)?;
    let mut child = place.block;
    for (depth, block) in missing.into_iter().rev() {
        let mut made = [0; BLOCK];
        set_reference(&mut made, slot(entry.id, depth), child);
        new.put(block, made);
        child = block;
    }
    set_reference(&mut node, slot(entry.id, depth), child);
    new.put(last, node);
    let mut first = blocks.read(0)?;
    after.encode(&mut first);
    new.put(0, first);
    new.blocks.sort_unstable_by_key(|(block, _)| *block);
    for (block, bytes) in &new.blocks {
        blocks.write(*block, bytes)?;
    }
    *header = after;
    Ok(place)
}

/// Blocks that an insertion writes, before it writes any.
#[derive(Default)]
struct NewBlocks {
    blocks: Vec<(u32, QuotaBlock)>,
    /// Those of the list of blocks without use.
    taken: Vec<u32>,
}

impl NewBlocks {
    fn put(&mut self, block: u32, bytes: QuotaBlock) {
        self.blocks.push((block, bytes));
    }

    /// A block without use: the first of their list, or the next behind the last.
    fn take<B: QuotaBlocks>(
        &mut self,
        blocks: &mut B,
        header: &mut QuotaHeader,
    ) -> Result<u32, B::Error> {
        let free = header.free_block;
        if free != 0 {
            if self.taken.contains(&free) {
                return Err(QuotaError::Repeated { block: free }.into());
            }
            self.taken.push(free);
            let next = EntryBlock::of(&blocks.read(free)?).header.next_free.get();
            if next != 0 {
                header.check(free, next)?;
            }
            header.free_block = next;
            return Ok(free);
        }
        let block = header.blocks;
        header.blocks = block.checked_add(1).ok_or(QuotaError::Full)?;
        Ok(block)
    }
}

/// Puts `entry` into the first block with room, or into a new one.
fn place_entry<B: QuotaBlocks>(
    blocks: &mut B,
    header: &mut QuotaHeader,
    entry: &QuotaEntry,
    new: &mut NewBlocks,
) -> Result<EntryPlace, B::Error> {
    let head = header.free_entry;
    let (block, mut entries) = match head {
        0 => (new.take(blocks, header)?, EntryBlock::of(&[0; BLOCK])),
        head => (head, EntryBlock::of(&blocks.read(head)?)),
    };
    let found = entries.in_use();
    let counted = entries.header.entries.get();
    let index = entries.free().filter(|_| counted == found);
    let index = index.ok_or(QuotaError::Count {
        block,
        counted,
        found,
    })?;
    entries.set(index, entry);
    entries.header.entries.set(counted + 1);
    header.free_entry = block;
    if usize::from(counted) + 1 == ENTRIES {
        // It leaves the list.
        let next = entries.header.next_free.get();
        entries.header.next_free.set(0);
        entries.header.prev_free.set(0);
        header.free_entry = next;
        if next != 0 {
            header.check(block, next)?;
            if next == block {
                return Err(QuotaError::Repeated { block }.into());
            }
            let mut after = EntryBlock::of(&blocks.read(next)?);
            after.header.prev_free.set(0);
            new.put(next, after.into_bytes());
        }
    }
    new.put(block, entries.into_bytes());
    Ok(EntryPlace { block, index })
}

/// Calls `each` for every entry, in the order of their ids. Reads every block once.
///
/// # Errors
/// As [`find`]; a block that the tree leads to twice; an entry under the wrong id, or none where
/// the tree leads; a wrong count of entries; what `each` returns.
pub fn walk<B: QuotaBlocks>(
    blocks: &mut B,
    header: &QuotaHeader,
    each: &mut dyn FnMut(EntryPlace, QuotaEntry) -> Result<(), B::Error>,
) -> Result<(), B::Error> {
    let mut walk = Walk {
        blocks,
        header,
        nodes: vec![false; header.blocks as usize],
        leaf: None,
        each,
    };
    walk.node(ROOT, 0, 0)
}

/// A walk over the tree.
struct Walk<'a, B: QuotaBlocks> {
    blocks: &'a mut B,
    header: &'a QuotaHeader,
    /// Nodes that were visited. References to blocks of entries are shared by up to 14 ids.
    nodes: Vec<bool>,
    /// The block of entries that was read last.
    leaf: Option<(u32, QuotaBlock)>,
    each: &'a mut dyn FnMut(EntryPlace, QuotaEntry) -> Result<(), B::Error>,
}

impl<B: QuotaBlocks> Walk<'_, B> {
    /// The node at `depth`, whose ids begin with the bytes of `id`.
    fn node(&mut self, block: u32, depth: usize, id: u32) -> Result<(), B::Error> {
        let visited = &mut self.nodes[block as usize];
        if std::mem::replace(visited, true) {
            return Err(QuotaError::Repeated { block }.into());
        }
        let node = self.blocks.read(block)?;
        for slot in 0..=u8::MAX {
            let target = reference(&node, usize::from(slot));
            if target == 0 {
                continue;
            }
            self.header.check(block, target)?;
            let id = id | u32::from(slot) << (8 * (LEVELS - 1 - depth));
            if depth + 1 < LEVELS {
                self.node(target, depth + 1, id)?;
            } else {
                self.entry(target, id)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, block: u32, id: u32) -> Result<(), B::Error> {
        if self.nodes[block as usize] {
            return Err(QuotaError::Repeated { block }.into());
        }
        let bytes = match &self.leaf {
            Some((read, bytes)) if *read == block => *bytes,
            _ => self.blocks.read(block)?,
        };
        self.leaf = Some((block, bytes));
        let entries = EntryBlock::of(&bytes);
        let (counted, found) = (entries.header.entries.get(), entries.in_use());
        if counted != found {
            return Err(QuotaError::Count {
                block,
                counted,
                found,
            }
            .into());
        }
        let place = entries.used().find(|(_, entry)| entry.id == id);
        let (index, entry) = place.ok_or(QuotaError::NoEntry { block, id })?;
        (self.each)(EntryPlace { block, index }, entry)
    }
}
