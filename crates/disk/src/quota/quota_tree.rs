//! The tree that leads from an id to its entry: looking up and adding.

use super::entry_block::{ENTRIES, EntryBlock, offset};
use super::{BLOCK, QuotaBlock, QuotaEntry, QuotaError, QuotaHeader, QuotaKind, QuotaTimes};

/// Levels of nodes.
pub(super) const LEVELS: usize = 4;
/// The root of the tree.
pub(super) const ROOT: u32 = 1;
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
}

/// The same, to change.
pub trait QuotaBlocksMut: QuotaBlocks {
    /// Makes block `block`, the next one behind the last, with these bytes.
    ///
    /// # Errors
    /// There is no room for it.
    fn append(&mut self, block: u32, bytes: &QuotaBlock) -> Result<(), Self::Error>;

    /// Changes block `block`, which was `old` when it was read, to `new`. Bytes that are the same
    /// in both stay as they are by now: the usage of other entries may have changed.
    ///
    /// # Errors
    /// It cannot be stored.
    fn change(&mut self, block: u32, old: &QuotaBlock, new: &QuotaBlock)
    -> Result<(), Self::Error>;
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

pub(super) fn reference(node: &QuotaBlock, slot: usize) -> u32 {
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
pub fn begin<B: QuotaBlocksMut>(
    blocks: &mut B,
    kind: QuotaKind,
    times: QuotaTimes,
) -> Result<QuotaHeader, B::Error> {
    let header = QuotaHeader::new(kind, times);
    let mut first = [0; BLOCK];
    header.encode(&mut first);
    blocks.append(0, &first)?;
    blocks.append(ROOT, &[0; BLOCK])?;
    Ok(header)
}

/// Adds `entry`, whose id has none. Writes at most [`INSERT_BLOCKS`] blocks, each once: new ones
/// first, in the order of their numbers, and the header last.
///
/// # Errors
/// As [`find`]; [`QuotaError::Full`]; what `blocks` returns. If that is for a new block, the tree
/// is what it was: blocks behind the last that it counts have no meaning.
pub fn insert<B: QuotaBlocksMut>(
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
    let mut new = NewBlocks::behind(header.blocks);
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
        child = block.0;
    }
    let mut changed = node;
    set_reference(&mut changed, slot(entry.id, depth), child);
    new.put((last, node), changed);
    let first = blocks.read(0)?;
    let mut changed = first;
    after.encode(&mut changed);
    new.put((0, first), changed);
    new.write(blocks)?;
    *header = after;
    Ok(place)
}

/// Blocks that an insertion writes, before it writes any.
struct NewBlocks {
    /// The blocks of the file: those from here on are appended.
    end: u32,
    appended: Vec<(u32, QuotaBlock)>,
    /// With what they were.
    changed: Vec<(u32, QuotaBlock, QuotaBlock)>,
    /// Those of the list of blocks without use.
    taken: Vec<u32>,
}

impl NewBlocks {
    fn behind(end: u32) -> Self {
        Self {
            end,
            appended: Vec::new(),
            changed: Vec::new(),
            taken: Vec::new(),
        }
    }

    /// Plans that a block becomes `new`, which is made of what it was.
    fn put(&mut self, (block, old): (u32, QuotaBlock), new: QuotaBlock) {
        if block >= self.end {
            self.appended.push((block, new));
        } else {
            self.changed.push((block, old, new));
        }
    }

    /// Writes them; those that were put last at the end.
    fn write<B: QuotaBlocksMut>(mut self, blocks: &mut B) -> Result<(), B::Error> {
        self.appended.sort_unstable_by_key(|(block, _)| *block);
        for (block, bytes) in &self.appended {
            blocks.append(*block, bytes)?;
        }
        for (block, old, new) in &self.changed {
            blocks.change(*block, old, new)?;
        }
        Ok(())
    }

    /// A block without use, and what it is: the first of their list, or the next behind the last.
    fn take<B: QuotaBlocks>(
        &mut self,
        blocks: &mut B,
        header: &mut QuotaHeader,
    ) -> Result<(u32, QuotaBlock), B::Error> {
        let free = header.free_block;
        if free != 0 {
            if self.taken.contains(&free) {
                return Err(QuotaError::Repeated { block: free }.into());
            }
            self.taken.push(free);
            let old = blocks.read(free)?;
            let next = EntryBlock::of(&old).header.next_free.get();
            if next != 0 {
                header.check(free, next)?;
            }
            header.free_block = next;
            return Ok((free, old));
        }
        let block = header.blocks;
        header.blocks = block.checked_add(1).ok_or(QuotaError::Full)?;
        Ok((block, [0; BLOCK]))
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
    let ((block, old), mut entries) = match head {
        0 => (new.take(blocks, header)?, EntryBlock::of(&[0; BLOCK])),
        head => {
            let old = blocks.read(head)?;
            ((head, old), EntryBlock::of(&old))
        }
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
            let old = blocks.read(next)?;
            let mut after = EntryBlock::of(&old);
            after.header.prev_free.set(0);
            new.put((next, old), after.into_bytes());
        }
    }
    new.put((block, old), entries.into_bytes());
    Ok(EntryPlace { block, index })
}
