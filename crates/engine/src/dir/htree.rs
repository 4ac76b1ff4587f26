//! Indexed directories: finding a leaf through the htree, and making room in it.
//!
//! A [`IndexPath`] leads from the root through the nodes to one leaf. Names of one hash may
//! continue in the leaves after it, whose keys then carry the collision bit; [`IndexPath::advance`]
//! walks on.
//!
//! An insertion that finds its leaf full makes one structural change at a time, each complete in
//! itself, and looks again: it splits the leaf if the parent has room, else the lowest full node
//! whose parent has room, else it adds a level below the root. Removal only frees space in leaves:
//! as in Linux, an index never shrinks.
//!
//! All loops are bounded by the depth (at most three levels) or by the number of the directory's
//! blocks. A tree with a cycle is reported as damage.

use extant_disk::damage::IndexDamage;
use extant_disk::dir_edit::NewEntry;
use extant_disk::dir_hash::DirHasher;
use extant_disk::entry_hash;
use extant_disk::htree::{HashIndex, IndexKind};
use extant_units::Lblk;

use super::dir_store::{Shape, Store};
use super::room::{self, NameOrRoom};
use super::slot::{self, Slot};
use super::sought_name::SoughtName;
use crate::types::error::{Error, Result};

/// Upper bound of the rounds that one insertion needs: convert, grow or split at every level, split
/// the leaf, and some more.
const MAX_ROUNDS: usize = 12;

/// The block of the root.
const ROOT: Lblk = Lblk::ZERO;

/// One index block of a path.
struct IndexLevel<B> {
    block: B,
    lblk: Lblk,
    kind: IndexKind,
    /// The entry that the path follows.
    at: usize,
}

/// The nodes from the root to a leaf.
pub(super) struct IndexPath<'a, S: Store> {
    store: &'a S,
    levels: Vec<IndexLevel<S::Block>>,
    hasher: DirHasher,
    /// Leaves that may still be visited.
    budget: u32,
}

impl<'a, S: Store> IndexPath<'a, S> {
    /// The path to the first leaf that may hold names of a major hash. `hash` computes it with the
    /// index's own hasher.
    pub(super) fn probe(store: &'a S, hash: impl FnOnce(&DirHasher) -> u32) -> Result<Self> {
        let profile = store.profile();
        let block = store.read(ROOT, Shape::Index(IndexKind::Root))?;
        let info = profile
            .format
            .root_info(&store.data(&block), profile.max_levels);
        let info = store.check(ROOT, info)?;
        let hasher = match (profile.format.hashes, info.hash_version) {
            (true, entry_hash::VERSION) => Ok(profile.new_hasher()), // it hashes no name
            // Linux can make such a directory: it looks for no index where it looks for entries.
            (true, _) => {
                let what = "an index of other hashes, where names are folded and encrypted";
                return Err(Error::NotSupported(what));
            }
            (false, version) => profile.hasher(version),
        };
        let hasher = store.check(ROOT, hasher)?;
        let mut path = Self {
            store,
            levels: Vec::with_capacity(3),
            hasher,
            budget: store.blocks(),
        };
        let hash = hash(&hasher);
        path.push(ROOT, block, IndexKind::Root, |index| index.search(hash))?;
        for _ in 0..info.indirect_levels {
            path.descend(|index| index.search(hash))?;
        }
        Ok(path)
    }

    /// How this index hashes names.
    pub(super) fn hasher(&self) -> &DirHasher {
        &self.hasher
    }

    /// The leaf.
    pub(super) fn leaf(&self) -> Result<Lblk> {
        match self.levels.last() {
            Some(level) => self.target(level),
            None => Err(self.store.corrupt(ROOT, IndexDamage::NoRoot.into())),
        }
    }

    /// The key of this leaf, with its collision bit; zero for the first.
    pub(super) fn key(&self) -> Result<u32> {
        for level in self.levels.iter().rev() {
            if level.at > 0 {
                // A hostile image may have changed the node by another directory's name.
                return Ok(self
                    .with_index(level, |index| index.key(level.at))?
                    .unwrap_or(0));
            }
        }
        Ok(0)
    }

    /// The key of the next leaf, with its collision bit; `None` after the last.
    pub(super) fn next_key(&self) -> Result<Option<u32>> {
        for level in self.levels.iter().rev() {
            let key = self.with_index(level, |index| index.key(level.at + 1))?;
            if key.is_some() {
                return Ok(key);
            }
        }
        Ok(None)
    }

    /// Moves on to the next leaf. Returns false after the last.
    pub(super) fn advance(&mut self) -> Result<bool> {
        let depth = self.levels.len();
        while let Some(level) = self.levels.last() {
            let (next, lblk) = (level.at + 1, level.lblk);
            if next < self.with_index(level, |index| index.len())? {
                let left = self.budget.checked_sub(1);
                self.budget =
                    left.ok_or_else(|| self.store.corrupt(lblk, IndexDamage::Circle.into()))?;
                self.store.begin_walk()?;
                if let Some(level) = self.levels.last_mut() {
                    level.at = next;
                }
                while self.levels.len() < depth {
                    self.descend(|_| 0)?;
                }
                return Ok(true);
            }
            self.levels.pop();
        }
        Ok(false)
    }

    fn with_index<R>(
        &self,
        level: &IndexLevel<S::Block>,
        look: impl FnOnce(&HashIndex<'_>) -> R,
    ) -> Result<R> {
        let data = self.store.data(&level.block);
        let index = self.store.profile().format.index(&data, level.kind);
        Ok(look(&self.store.check(level.lblk, index)?))
    }

    /// The block that `level` leads to.
    fn target(&self, level: &IndexLevel<S::Block>) -> Result<Lblk> {
        let target = self.with_index(level, |index| index.block(level.at))?;
        match target {
            // Block 0 is the root: no entry may lead there.
            Some(lblk) if lblk != ROOT && lblk.get() < self.store.blocks() => Ok(lblk),
            Some(block) => {
                let damage = IndexDamage::Target { block };
                Err(self.store.corrupt(level.lblk, damage.into()))
            }
            None => Err(self
                .store
                .corrupt(level.lblk, IndexDamage::MissingEntry.into())),
        }
    }

    fn push(
        &mut self,
        lblk: Lblk,
        block: S::Block,
        kind: IndexKind,
        choose: impl FnOnce(&HashIndex<'_>) -> usize,
    ) -> Result<()> {
        let mut level = IndexLevel {
            block,
            lblk,
            kind,
            at: 0,
        };
        level.at = self.with_index(&level, choose)?;
        self.levels.push(level);
        let most = usize::from(self.store.profile().max_levels) + 1;
        debug_assert!(self.levels.len() <= most, "the root's levels were checked");
        Ok(())
    }

    fn descend(&mut self, choose: impl FnOnce(&HashIndex<'_>) -> usize) -> Result<()> {
        let lblk = self.leaf()?;
        if self.levels.iter().any(|level| level.lblk == lblk) {
            return Err(self.store.corrupt(lblk, IndexDamage::BelowItself.into()));
        }
        let kind = IndexKind::Node;
        let block = self.store.read(lblk, Shape::Index(kind))?;
        self.push(lblk, block, kind, choose)
    }

    fn is_full(&self, level: &IndexLevel<S::Block>) -> Result<bool> {
        self.with_index(level, |index| index.is_full())
    }

    /// Adds a key behind the one that this path follows at `level`.
    fn insert_key(
        &self,
        h: &mut S::Handle,
        level: &IndexLevel<S::Block>,
        key: u32,
        lblk: Lblk,
    ) -> Result<()> {
        let format = &self.store.profile().format;
        let done = self.store.modify(h, &level.block, |bytes| {
            format.insert_index(bytes, level.kind, level.at, key, lblk)
        })?;
        self.store.check(level.lblk, done)
    }

    /// Makes room for one more key on this path, at the lowest level that allows it. The path is
    /// stale afterwards.
    fn make_room(&self, h: &mut S::Handle) -> Result<()> {
        let profile = self.store.profile();
        for pair in self.levels.windows(2).rev() {
            let [parent, full] = pair else { continue };
            if self.is_full(parent)? {
                continue;
            }
            let split = profile.format.split_node(&self.store.data(&full.block));
            let split = self.store.check(full.lblk, split)?;
            let high = self.store.append(h, Shape::Index(full.kind), &split.high)?;
            self.store
                .modify(h, &full.block, |bytes| bytes.copy_from_slice(&split.low))?;
            return self.insert_key(h, parent, split.key, high);
        }
        let fits = self.levels.len() <= usize::from(profile.max_levels);
        let Some(root) = self.levels.first().filter(|_| fits) else {
            return Err(Error::NoSpace); // as Linux: "directory index full"
        };
        let child = Lblk::new(self.store.blocks());
        let mut grown = self.store.data(&root.block).to_vec();
        let node = profile.format.grow(&mut grown, child, profile.max_levels);
        let node = self.store.check(ROOT, node)?;
        let shape = Shape::Index(IndexKind::Node);
        let appended = self.store.append(h, shape, &node)?;
        debug_assert_eq!(appended, child, "a directory grows at its end");
        self.store
            .modify(h, &root.block, |bytes| bytes.copy_from_slice(&grown))
    }
}

/// Finds `name` in an indexed directory.
pub(super) fn find<S: Store>(store: &S, name: &SoughtName<'_>) -> Result<Option<Slot<S::Block>>> {
    scan_hash(store, name, |lblk, leaf| {
        slot::find_in(store, lblk, leaf, name)
    })
}

/// Searches an indexed directory for `name` and, on the way, for the room that its entry has in the
/// leaf where [`insert`] puts it.
pub(super) fn find_or_room<S: Store>(
    store: &S,
    name: &SoughtName<'_>,
) -> Result<NameOrRoom<S::Block>> {
    let mut first = None;
    let found = scan_hash(store, name, |lblk, leaf| {
        match room::search_in(store, lblk, leaf, name)? {
            NameOrRoom::Name => return Ok(Some(())),
            NameOrRoom::Room(room) => first = first.take().or(Some(room)),
        }
        Ok(None)
    })?;
    Ok(NameOrRoom::of(found, first.flatten()))
}

/// Calls `visit` with each leaf that may hold `name` until it returns an answer.
fn scan_hash<S: Store, R>(
    store: &S,
    name: &SoughtName<'_>,
    mut visit: impl FnMut(Lblk, S::Block) -> Result<Option<R>>,
) -> Result<Option<R>> {
    let mut wanted = 0;
    let mut path = IndexPath::probe(store, |hasher| {
        wanted = name.major(hasher);
        wanted
    })?;
    loop {
        let lblk = path.leaf()?;
        if let Some(answer) = visit(lblk, store.read(lblk, Shape::Leaf)?)? {
            return Ok(Some(answer));
        }
        let continues = path.next_key()?.is_some_and(|key| key & !1 == wanted);
        if !continues || !path.advance()? {
            return Ok(None);
        }
    }
}

/// Calls `visit` with each leaf until it returns an answer.
pub(super) fn scan<S: Store, R>(
    store: &S,
    mut visit: impl FnMut(Lblk, S::Block) -> Result<Option<R>>,
) -> Result<Option<R>> {
    let mut path = IndexPath::probe(store, |_| 0)?;
    loop {
        let lblk = path.leaf()?;
        if let Some(answer) = visit(lblk, store.read(lblk, Shape::Leaf)?)? {
            return Ok(Some(answer));
        }
        if !path.advance()? {
            return Ok(None);
        }
    }
}

/// Adds a name to an indexed directory that does not have it.
pub(super) fn insert<S: Store>(store: &S, h: &mut S::Handle, entry: &NewEntry<'_>) -> Result<()> {
    let format = &store.profile().format;
    for _ in 0..MAX_ROUNDS {
        let path = IndexPath::probe(store, |hasher| {
            let stored = entry.hash.map(|hash| hash.major);
            stored.unwrap_or_else(|| hasher.hash(entry.name).major)
        })?;
        let lblk = path.leaf()?;
        let leaf = store.read(lblk, Shape::Leaf)?;
        // Usually there is room: the block's entries are gone through once.
        let done = store.modify(h, &leaf, |bytes| format.insert(bytes, entry))?;
        if store.check(lblk, done)?.is_some() {
            return Ok(());
        }
        let data = store.data(&leaf);
        if store.check(lblk, format.fits_compacted(&data, entry))? {
            drop(data);
            let done = store.modify(h, &leaf, |bytes| {
                format.compact(bytes)?;
                format.insert(bytes, entry)
            })?;
            if store.check(lblk, done)?.is_some() {
                return Ok(());
            }
            break; // dots in a leaf: damage
        }
        let Some(parent) = path.levels.last() else {
            break;
        };
        if path.is_full(parent)? {
            drop(data);
            path.make_room(h)?;
            continue;
        }
        let split = format.split(&data, entry, |name| path.hasher.hash(name).major);
        drop(data);
        let split = store.check(lblk, split)?;
        let high = store.append(h, Shape::Leaf, &split.high)?;
        store.modify(h, &leaf, |bytes| bytes.copy_from_slice(&split.low))?;
        return path.insert_key(h, parent, split.key, high);
    }
    Err(store.corrupt(ROOT, IndexDamage::NoRoom.into()))
}

/// Gives the only block of a linear directory an index: its entries move to block 1.
pub(super) fn convert<S: Store>(store: &S, h: &mut S::Handle, first: &S::Block) -> Result<()> {
    let profile = store.profile();
    let version = match profile.format.hashes {
        true => entry_hash::VERSION,
        false => profile.new_index.version(),
    };
    let made = profile.format.make_index(&store.data(first), version);
    let (root, leaf) = store.check(ROOT, made)?;
    store.append(h, Shape::Leaf, &leaf)?;
    store.modify(h, first, |bytes| bytes.copy_from_slice(&root))?;
    store.set_index_flag(h, true)
}
