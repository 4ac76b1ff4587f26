//! Listing a directory in batches.
//!
//! A [`Batch`] is the result of one look at the directory: copied entries in the order of their
//! positions, and the position to go on at. It is filled under the directory's `lock` and read
//! without it, so a reader's callback may take any time. The guarantees of [`super::position`]
//! follow from two facts: a batch covers all positions between its start and its `next`, and an
//! entry keeps its position while it exists.
//!
//! A batch holds the entries of one block, or of a run of leaves that share a hash. Of a run longer
//! than [`MAX_ENTRIES`] it keeps the first and leaves the rest to the next batch, so memory stays
//! bounded.

use std::borrow::Cow;
use std::ops::Range;

use extant_casefold as casefold;
use extant_disk::damage::IndexDamage;
use extant_disk::dir_hash::DirHasher;
use extant_disk::dirent::{FileType, Record};
use extant_units::{Ino, Lblk, Pos};

use super::dir_store::{Shape, Store};
use super::htree::IndexPath;
use super::{entries, position};
use crate::types::error::Result;
use crate::types::{Dirent, FileKind};

/// Entries that a batch may keep of a run of leaves. One block holds fewer.
const MAX_ENTRIES: usize = 8192;
/// Names of equal position that are told apart.
const MAX_EQUAL: u64 = 1024;
/// Blocks to read ahead at the start of a listing.
const AHEAD: u32 = 1024;

/// A copied entry.
#[derive(Clone, Debug)]
struct Item {
    /// The inode it leads to.
    ino: Ino,
    /// The kind of that inode.
    file_type: FileType,
    /// The position after it.
    next: u64,
    position: u64,
    name: Range<usize>,
}

/// Entries in the order of their positions.
#[derive(Default)]
pub(crate) struct Batch {
    names: Vec<u8>,
    items: Vec<Item>,
    /// Start of the next batch: [`position::END`] after the last one.
    next: u64,
    /// Entries were left out because there are too many.
    cut: bool,
}

impl Batch {
    /// The entry at `index`.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<Dirent<'_>> {
        let item = self.items.get(index)?;
        Some(Dirent {
            ino: item.ino,
            kind: FileKind::from_file_type(item.file_type),
            name: name_of(&self.names, item),
            next_pos: item.next,
        })
    }

    /// The entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Dirent<'_>> {
        (0..self.len()).map_while(|index| self.get(index))
    }

    /// The number of entries.
    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    /// Returns the position of the next batch; `None` after the last one.
    pub(crate) fn next(&self) -> Option<u64> {
        (self.next < position::END).then_some(self.next)
    }

    fn push(&mut self, ino: Ino, file_type: FileType, name: &[u8], position: u64, next: u64) {
        let start = self.names.len();
        self.names.extend_from_slice(name);
        self.items.push(Item {
            ino,
            file_type,
            next,
            position,
            name: start..self.names.len(),
        });
    }

    fn sort(&mut self) {
        let Self { names, items, .. } = self;
        items.sort_unstable_by(|a, b| {
            let by_position = a.position.cmp(&b.position);
            by_position.then_with(|| name_of(names, a).cmp(name_of(names, b)))
        });
    }

    /// Keeps the first [`MAX_ENTRIES`] only.
    fn cut(&mut self) {
        self.sort();
        self.items.truncate(MAX_ENTRIES);
        self.cut = true;
        let old = std::mem::take(&mut self.names);
        for item in &mut self.items {
            let start = self.names.len();
            self.names.extend_from_slice(name_of(&old, item));
            item.name = start..self.names.len();
        }
    }

    /// Sorts hash-ordered entries, tells equal positions apart, and drops those before `from`. The
    /// next batch starts at `next`, or after the last entry of a cut one.
    fn finish(mut self, from: u64, next: u64) -> Self {
        self.sort();
        let mut free = position::FIRST;
        for item in &mut self.items {
            item.position = item.position.max(free);
            free = item.position + 1;
            item.next = free;
        }
        debug_assert!(
            self.items
                .windows(2)
                .all(|two| two[0].position < two[1].position),
            "each entry has a position of its own"
        );
        self.items.retain(|item| item.position >= from);
        self.next = match self.items.last_mut() {
            Some(last) if self.cut => last.next,
            Some(last) => {
                last.next = next.max(last.next);
                last.next
            }
            None => next.max(from + 1),
        };
        self
    }
}

fn name_of<'a>(names: &'a [u8], item: &Item) -> &'a [u8] {
    names.get(item.name.clone()).unwrap_or_default()
}

/// Some of the entries from `from` on. An empty batch does not mean that nothing follows
/// [`Batch::next`].
pub(super) fn batch<S: Store>(store: &S, from: u64) -> Result<Batch> {
    store.begin_walk()?;
    let batch = if from < position::FIRST {
        dots(store, from)?
    } else if from >= position::END {
        return Ok(Batch {
            next: position::END,
            ..Batch::default()
        });
    } else if store.indexed() {
        leaves(store, from)?
    } else if store.profile().dir_index && store.blocks() == 1 {
        only_block(store, from)?
    } else {
        linear_block(store, from)?
    };
    debug_assert!(batch.next > from, "a listing comes to its end");
    Ok(batch)
}

fn dots<S: Store>(store: &S, from: u64) -> Result<Batch> {
    let (own, parent) = entries::dots(store)?;
    let mut batch = Batch::default();
    let kind = FileType::Directory;
    if from < position::DOTDOT {
        batch.push(own, kind, b".", 0, position::DOTDOT);
        store.readahead(Lblk::ZERO, AHEAD.min(store.blocks()));
    }
    batch.push(parent, kind, b"..", position::DOTDOT, position::FIRST);
    batch.next = position::FIRST;
    Ok(batch)
}

/// A directory of one block without an index, in hash order.
fn only_block<S: Store>(store: &S, from: u64) -> Result<Batch> {
    let hasher = store.profile().new_hasher();
    let mut batch = Batch::default();
    each_entry(store, Lblk::ZERO, |ino, record| {
        let at = position_of(&hasher, record);
        let name = shown(store, Lblk::ZERO, Some(&hasher), record)?;
        batch.push(ino, record.file_type, &name, at, 0);
        Ok(())
    })?;
    Ok(batch.finish(from, position::END))
}

/// The position of an entry in hash order.
fn position_of(hasher: &DirHasher, record: &Record<'_>) -> u64 {
    match record.hash {
        Some(hash) => position::of_hash(hash),
        None => position::of_name(hasher, record.name),
    }
}

/// One leaf of an index, and the leaves after it that start with the hash it ends with.
fn leaves<S: Store>(store: &S, from: u64) -> Result<Batch> {
    let mut path = IndexPath::probe(store, |_| position::major(from))?;
    let hasher = *path.hasher();
    let mut batch = Batch::default();
    let mut low = path.key()? & !1;
    loop {
        let next_key = path.next_key()?;
        let high = next_key.unwrap_or(u32::MAX);
        leaf(store, path.leaf()?, &hasher, low..high, from, &mut batch)?;
        match next_key {
            None => return Ok(batch.finish(from, position::END)),
            Some(key) if key & 1 == 0 => {
                return Ok(batch.finish(from, position::of_major(key)));
            }
            Some(key) => low = key & !1,
        }
        if batch.items.len() > 2 * MAX_ENTRIES {
            batch.cut();
        }
        path.advance()?;
    }
}

/// Adds the entries of one leaf that may have position `from` or more. Their major hashes must lie
/// in `range`.
fn leaf<S: Store>(
    store: &S,
    lblk: Lblk,
    hasher: &DirHasher,
    range: Range<u32>,
    from: u64,
    batch: &mut Batch,
) -> Result<()> {
    // Names of equal position before `from` are needed as well: those after it then get the same
    // positions again.
    let first = from.saturating_sub(MAX_EQUAL);
    each_entry(store, lblk, |ino, record| {
        let mut at = position_of(hasher, record);
        if store.profile().format.folded && casefold::leaves_out(record.name) {
            // Some kernels put it elsewhere: it is listed where it is.
            at = at.clamp(
                position::of_major(range.start),
                position::of_major(range.end) - 1,
            );
        }
        if !range.contains(&position::major(at)) {
            let damage = IndexDamage::WrongLeaf {
                name: record.name.into(),
                hash: position::major(at),
            };
            return Err(store.corrupt(lblk, damage.into()));
        }
        if at >= first {
            let name = shown(store, lblk, Some(hasher), record)?;
            batch.push(ino, record.file_type, &name, at, 0);
        }
        Ok(())
    })
}

/// The block of a linear directory that byte `from` is in.
fn linear_block<S: Store>(store: &S, from: u64) -> Result<Batch> {
    let block_size = store.profile().format.block_size;
    let mut batch = Batch::default();
    let lblk = block_size.lblk(Pos::new(from));
    let Some(lblk) = lblk.filter(|lblk| lblk.get() < store.blocks()) else {
        batch.next = position::END;
        return Ok(batch);
    };
    let start = block_size.pos(lblk).get();
    each_entry(store, lblk, |ino, record| {
        let at = start + record.offset as u64;
        if at >= from {
            let next = at + record.rec_len as u64;
            let name = shown(store, lblk, None, record)?;
            batch.push(ino, record.file_type, &name, at, next);
        }
        Ok(())
    })?;
    batch.next = start + block_size.bytes_u64();
    Ok(batch)
}

/// The name of an entry as callers see it. `hasher` is that of the directory's hash order, if it
/// has one.
fn shown<'a, S: Store>(
    store: &S,
    lblk: Lblk,
    hasher: Option<&DirHasher>,
    record: &Record<'a>,
) -> Result<Cow<'a, [u8]>> {
    let name = store.profile().names.shown(record, |stored| {
        let computed = || hasher.map(|hasher| hasher.hash(stored));
        let hash = record.hash.or_else(computed);
        hash.map_or((0, 0), |hash| (hash.major, hash.minor))
    });
    store.check(lblk, name)
}

/// Calls `visit` with every entry of a block of entries, except for the dots.
fn each_entry<S: Store>(
    store: &S,
    lblk: Lblk,
    mut visit: impl FnMut(Ino, &Record<'_>) -> Result<()>,
) -> Result<()> {
    let data = store.data(&store.read(lblk, Shape::Leaf)?);
    for record in store.profile().format.records(&data) {
        let record = store.check(lblk, record)?;
        if let Some(ino) = record.ino
            && !matches!(record.name, b"." | b"..")
        {
            visit(ino, &record)?;
        }
    }
    Ok(())
}
