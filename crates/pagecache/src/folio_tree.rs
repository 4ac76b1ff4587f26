//! The index of an address space: from page number to entry, for entries of any power-of-two size.
//!
//! A radix tree of 64-way nodes, as Linux's xarray. An entry of order *k* lies at a multiple of 2^k
//! and fills that many page numbers. At the level where a slot covers at most its size it takes one
//! or several adjacent slots, the first of which owns it. Depth follows the largest index in use,
//! so a lookup in a small file visits one or two nodes. A single entry needs no node: most files
//! are small, and a node is larger than they are.
//!
//! # Invariants
//! * Entries do not overlap (J2). A node without entries is removed at once.
//! * Each node has one word per [`Tag`]: a slot's bit is set if its entry, or anything below it,
//!   carries the tag (J4).
//!
//! # Concurrency
//! Setting a tag needs only shared access (an atomic or); everything else that changes needs
//! `&mut`.

use extant_sync::atomic::{AtomicU64, Ordering};
use std::array;

const SHIFT: u32 = 6;
const SLOTS: usize = 1 << SHIFT;
/// Bits of a page number: 2^64 bytes of 4 KiB pages.
const INDEX_BITS: u32 = 52;

/// A mark by which entries can be searched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// Has dirty blocks.
    Dirty = 0,
    /// Was dirty when an integrity sync began: concurrent dirtying adds none.
    ToWrite = 1,
}
const TAGS: usize = 2;

/// A value of the tree.
pub(crate) trait Entry {
    /// The first page number, a multiple of the entry's size.
    fn index(&self) -> u64;
    /// log2 of the number of pages.
    fn order(&self) -> u32;
    /// The page number after the last.
    fn end(&self) -> u64 {
        self.index() + (1 << self.order())
    }
}

/// Another entry covers the range, wholly or partly.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Occupied;

enum Slot<T> {
    Empty,
    Entry(T),
    /// Belongs to the entry this many slots before.
    Sibling(u8),
    Node(Box<Node<T>>),
}

struct Node<T> {
    /// log2 of the pages per slot.
    shift: u32,
    /// Slots that are not empty, a bit each.
    used: u64,
    tags: [AtomicU64; TAGS],
    slots: [Slot<T>; SLOTS],
}

/// The tree. The module's documentation has its invariants.
pub(crate) struct FolioTree<T> {
    root: Root<T>,
    len: usize,
}

enum Root<T> {
    Empty,
    /// The first entry, while there is no other.
    One(Single<T>),
    Node(Box<Node<T>>),
}

/// An entry without a node.
struct Single<T> {
    entry: T,
    /// A bit for each [`Tag`].
    tags: AtomicU64,
}

impl<T> Default for FolioTree<T> {
    fn default() -> Self {
        Self {
            root: Root::Empty,
            len: 0,
        }
    }
}

impl<T: Entry> Single<T> {
    fn covers(&self, index: u64) -> bool {
        (self.entry.index()..self.entry.end()).contains(&index)
    }

    fn has(&self, tag: Tag) -> bool {
        self.tags.load(Ordering::Acquire) & tag.bit() != 0
    }
}

impl Tag {
    fn bit(self) -> u64 {
        1 << self as u32
    }
}

impl<T> Node<T> {
    fn new(shift: u32) -> Box<Self> {
        Box::new(Self {
            shift,
            used: 0,
            tags: array::from_fn(|_| AtomicU64::new(0)),
            slots: array::from_fn(|_| Slot::Empty),
        })
    }

    /// The slot that covers `index`, which lies below this node.
    #[inline]
    fn slot(&self, index: u64) -> usize {
        extant_units::index((index >> self.shift) & (SLOTS as u64 - 1))
    }

    /// Returns whether a node of this height at the root covers `index`.
    #[inline]
    fn covers(&self, index: u64) -> bool {
        self.shift + SHIFT >= INDEX_BITS || index >> (self.shift + SHIFT) == 0
    }
}

impl<T: Entry> FolioTree<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The entry that covers `index`.
    #[inline]
    pub(crate) fn get(&self, index: u64) -> Option<&T> {
        let mut node = match &self.root {
            Root::Empty => return None,
            Root::One(one) => return one.covers(index).then_some(&one.entry),
            Root::Node(node) => &**node,
        };
        if !node.covers(index) {
            return None;
        }
        loop {
            let at = node.slot(index);
            match &node.slots[at] {
                Slot::Node(child) => node = child,
                Slot::Entry(entry) => return Some(entry),
                Slot::Empty => return None,
                Slot::Sibling(back) => {
                    return match &node.slots[at - usize::from(*back)] {
                        Slot::Entry(entry) => Some(entry),
                        _ => None,
                    };
                }
            }
        }
    }

    /// The first entry that ends after `from`.
    pub(crate) fn next(&self, from: u64) -> Option<&T> {
        match &self.root {
            Root::Empty => None,
            Root::One(one) => (one.entry.end() > from).then_some(&one.entry),
            Root::Node(root) => search(root, from, &|node| node.used),
        }
    }

    /// The first entry with `tag` that ends after `from`.
    pub(crate) fn next_tagged(&self, from: u64, tag: Tag) -> Option<&T> {
        match &self.root {
            Root::Empty => None,
            Root::One(one) => (one.entry.end() > from && one.has(tag)).then_some(&one.entry),
            Root::Node(root) => search(root, from, &|node| {
                node.tags[tag as usize].load(Ordering::Acquire)
            }),
        }
    }

    /// Adds `entry`.
    pub(crate) fn insert(&mut self, entry: T) -> Result<(), Occupied> {
        let (index, order) = (entry.index(), entry.order());
        debug_assert!(
            index & ((1 << order) - 1) == 0,
            "entry {index}+{order} is aligned (J2)"
        );
        if self
            .next(index)
            .is_some_and(|next| next.index() < entry.end())
        {
            return Err(Occupied);
        }
        match std::mem::replace(&mut self.root, Root::Empty) {
            Root::Empty => {
                let tags = AtomicU64::new(0);
                self.root = Root::One(Single { entry, tags });
                self.len += 1;
                return Ok(());
            }
            Root::One(one) => {
                let first = one.entry.index();
                let tags = [Tag::Dirty, Tag::ToWrite].map(|tag| one.has(tag).then_some(tag));
                self.len = 0;
                self.insert_in_node(one.entry)?;
                tags.into_iter()
                    .flatten()
                    .for_each(|tag| self.set_tag(first, tag));
            }
            root => self.root = root,
        }
        self.insert_in_node(entry)
    }

    /// Adds `entry`, which overlaps no other, below a node.
    fn insert_in_node(&mut self, entry: T) -> Result<(), Occupied> {
        let level = entry.order() / SHIFT * SHIFT;
        let mut root = self.take_root(entry.index(), level);
        let inserted = insert_below(&mut root, entry, level);
        self.root = Root::Node(root);
        self.len += usize::from(inserted.is_ok());
        inserted
    }

    /// The root, grown until it covers `index` and has slots of `2^level` pages at least. The
    /// caller puts it back.
    fn take_root(&mut self, index: u64, level: u32) -> Box<Node<T>> {
        let mut root = match std::mem::replace(&mut self.root, Root::Empty) {
            Root::Node(root) => root,
            _ => Node::new(level),
        };
        while !root.covers(index) || root.shift < level {
            let mut above = Node::new(root.shift + SHIFT);
            if root.used > 0 {
                for (new, old) in above.tags.iter().zip(&root.tags) {
                    let tagged = u64::from(old.load(Ordering::Relaxed) != 0);
                    new.store(tagged, Ordering::Relaxed);
                }
                above.used = 1; // The first slot.
                above.slots[0] = Slot::Node(root);
            }
            root = above;
        }
        root
    }

    /// Takes out the entry that begins at `index`, with its tags.
    pub(crate) fn remove(&mut self, index: u64) -> Option<T> {
        let root = match &mut self.root {
            Root::Node(root) if root.covers(index) => root,
            Root::One(one) if one.entry.index() == index => {
                self.len = 0;
                return match std::mem::replace(&mut self.root, Root::Empty) {
                    Root::One(one) => Some(one.entry),
                    _ => None,
                };
            }
            _ => return None,
        };
        let entry = remove(root, index)?;
        self.len -= 1;
        if root.used == 0 {
            self.root = Root::Empty;
        }
        Some(entry)
    }

    /// Tags the entry that begins at `index`, if there is one.
    pub(crate) fn set_tag(&self, index: u64, tag: Tag) {
        if self.get(index).is_none() {
            return;
        }
        let mut node = match &self.root {
            Root::Empty => None,
            Root::One(one) => {
                one.tags.fetch_or(tag.bit(), Ordering::AcqRel);
                None
            }
            Root::Node(root) => Some(&**root),
        };
        while let Some(here) = node {
            let at = here.slot(index);
            let bit = 1 << at;
            let word = &here.tags[tag as usize];
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::AcqRel);
            }
            node = match &here.slots[at] {
                Slot::Node(child) => Some(child),
                _ => None,
            };
        }
    }

    /// Takes the tag away from the entry that begins at `index`.
    pub(crate) fn clear_tag(&mut self, index: u64, tag: Tag) {
        match &mut self.root {
            Root::One(one) if one.covers(index) => *one.tags.get_mut() &= !tag.bit(),
            Root::Node(root) if root.covers(index) => clear_tag(root, index, tag),
            _ => {}
        }
    }
}

/// Adds `entry`, which overlaps no other, below `node`, in slots of `2^level` pages.
fn insert_below<T: Entry>(mut node: &mut Node<T>, entry: T, level: u32) -> Result<(), Occupied> {
    let (index, order) = (entry.index(), entry.order());
    while node.shift > level {
        let at = node.slot(index);
        if let Slot::Empty = node.slots[at] {
            node.slots[at] = Slot::Node(Node::new(node.shift - SHIFT));
            node.used |= 1 << at;
        }
        match &mut node.slots[at] {
            Slot::Node(child) => node = child,
            _ => {
                debug_assert!(false, "no other entry covers the range (J2)");
                return Err(Occupied);
            }
        }
    }
    let at = node.slot(index);
    let count = 1u8 << (order - level);
    debug_assert!(
        node.slots[at..at + usize::from(count)]
            .iter()
            .all(|slot| matches!(slot, Slot::Empty)),
        "empty nodes are removed, so slots without entries are empty"
    );
    node.slots[at] = Slot::Entry(entry);
    for back in 1..count {
        node.slots[at + usize::from(back)] = Slot::Sibling(back);
    }
    node.used |= (u64::MAX >> (SLOTS - usize::from(count))) << at;
    Ok(())
}

/// The first entry below `node` that ends after `from`, among the slots that `allowed` returns for
/// each node. Recursion is bounded by the height: nine levels.
fn search<'a, T: Entry>(
    node: &'a Node<T>,
    from: u64,
    allowed: &impl Fn(&Node<T>) -> u64,
) -> Option<&'a T> {
    let mut first = if node.covers(from) {
        node.slot(from)
    } else {
        return None;
    };
    if let Slot::Sibling(back) = &node.slots[first] {
        first -= usize::from(*back);
    }
    let mut candidates = allowed(node) & (u64::MAX << first);
    while candidates != 0 {
        let at = candidates.trailing_zeros() as usize;
        candidates &= candidates - 1;
        match &node.slots[at] {
            Slot::Entry(entry) => return Some(entry),
            Slot::Node(child) => {
                // The search starts at `from` within the first slot, at the start of later ones.
                let inner = if at == first {
                    from & ((1 << node.shift) - 1)
                } else {
                    0
                };
                if let Some(found) = search(child, inner, allowed) {
                    return Some(found);
                }
            }
            Slot::Empty | Slot::Sibling(_) => {}
        }
    }
    None
}

fn remove<T: Entry>(node: &mut Node<T>, index: u64) -> Option<T> {
    let at = node.slot(index);
    if let Slot::Node(child) = &mut node.slots[at] {
        let entry = remove(child, index)?;
        if child.used == 0 {
            node.slots[at] = Slot::Empty;
            node.used &= !(1 << at);
        }
        fix_tags(node, at);
        return Some(entry);
    }
    match &node.slots[at] {
        Slot::Entry(entry) if entry.index() == index => {}
        _ => return None,
    }
    let Slot::Entry(entry) = std::mem::replace(&mut node.slots[at], Slot::Empty) else {
        return None;
    };
    node.used &= !(1 << at);
    for at in at + 1..SLOTS {
        let Slot::Sibling(_) = node.slots[at] else {
            break;
        };
        node.slots[at] = Slot::Empty;
        node.used &= !(1 << at);
    }
    for tags in &mut node.tags {
        *tags.get_mut() &= !(1 << at);
    }
    Some(entry)
}

fn clear_tag<T: Entry>(node: &mut Node<T>, index: u64, tag: Tag) {
    let at = node.slot(index);
    if let Slot::Node(child) = &mut node.slots[at] {
        clear_tag(child, index, tag);
        fix_tags(node, at);
    } else {
        *node.tags[tag as usize].get_mut() &= !(1 << at);
    }
}

/// Recomputes the tags of slot `at` from what is below it.
fn fix_tags<T>(node: &mut Node<T>, at: usize) {
    for tag in 0..TAGS {
        let below = match &mut node.slots[at] {
            Slot::Node(child) => *child.tags[tag].get_mut() != 0,
            _ => false,
        };
        if !below {
            *node.tags[tag].get_mut() &= !(1 << at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug, PartialEq)]
    struct Item {
        index: u64,
        order: u32,
    }

    impl Entry for Item {
        fn index(&self) -> u64 {
            self.index
        }
        fn order(&self) -> u32 {
            self.order
        }
    }

    #[derive(Default)]
    struct Model {
        items: BTreeMap<u64, (Item, [bool; TAGS])>,
    }

    impl Model {
        fn next(&self, from: u64, ok: impl Fn(&[bool; TAGS]) -> bool) -> Option<Item> {
            self.items
                .values()
                .find(|(item, tags)| item.end() > from && ok(tags))
                .map(|(item, _)| item.clone())
        }
    }

    #[test]
    fn equals_an_ordered_map() {
        // Small, so that entries collide; far, so that the tree is deep.
        for (span, base) in [
            (1u64 << 11, 0u64),
            (1 << 14, (1 << 52) - (1 << 14)),
            (1 << 20, 5 << 20),
        ] {
            let mut tree = FolioTree::default();
            let mut model = Model::default();
            let mut state = span | 1;
            let mut random = |below: u64| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                state % below
            };
            for _ in 0..6_000 {
                let order = u32::try_from(random(10)).unwrap();
                let index = (base + random(span)) & !((1 << order) - 1);
                let tag = [Tag::Dirty, Tag::ToWrite][extant_units::index(random(2))];
                match random(6) {
                    0 | 1 => {
                        let item = Item { index, order };
                        let free = model
                            .next(index, |_| true)
                            .is_none_or(|n| n.index >= item.end());
                        assert_eq!(tree.insert(item.clone()).is_ok(), free);
                        if free {
                            model.items.insert(index, (item, [false; TAGS]));
                        }
                    }
                    2 => {
                        let expected = model.items.remove(&index).map(|(item, _)| item);
                        assert_eq!(tree.remove(index), expected);
                    }
                    3 => {
                        let Some(item) = model.next(index, |_| true) else {
                            continue;
                        };
                        tree.set_tag(item.index, tag);
                        model.items.get_mut(&item.index).unwrap().1[tag as usize] = true;
                    }
                    4 => {
                        let Some(item) = model.next(index, |_| true) else {
                            continue;
                        };
                        tree.clear_tag(item.index, tag);
                        model.items.get_mut(&item.index).unwrap().1[tag as usize] = false;
                    }
                    _ => {}
                }
                let from = base + random(span);
                assert_eq!(tree.next(from).cloned(), model.next(from, |_| true));
                assert_eq!(
                    tree.next_tagged(from, tag).cloned(),
                    model.next(from, |tags| tags[tag as usize])
                );
                let covering = model.next(from, |_| true).filter(|item| item.index <= from);
                assert_eq!(tree.get(from).cloned(), covering);
                assert_eq!(tree.len(), model.items.len());
            }
            for index in model.items.into_keys() {
                assert!(tree.remove(index).is_some());
            }
            let empty = matches!(tree.root, Root::Empty);
            assert!(empty, "empty nodes are given back");
        }
    }
}
