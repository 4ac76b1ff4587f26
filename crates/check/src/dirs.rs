//! Pass 2: every block of every directory.

use std::borrow::Cow;
use std::collections::hash_map::{Entry, RandomState};
use std::collections::{HashMap, HashSet};
use std::hash::BuildHasher;

use extant_casefold as casefold;
use extant_disk::damage::{CorruptKind, DirectoryDamage, IndexDamage, LinkDamage};
use extant_disk::dir_hash::DirHasher;
use extant_disk::dirent::{DirFormat, DirentError, FileType, Record};
use extant_disk::extent::Extent;
use extant_disk::features::{Compat, Incompat};
use extant_disk::file_kind::FileKind;
use extant_disk::htree::{HashIndex, HtreeError, IndexKind};
use extant_disk::location::Location;
use extant_disk::superblock::SuperFlags;
use extant_units::{Ino, Lblk, Pblk};

use crate::contexts::PolicyId;
use crate::error::Result;
use crate::findings::Findings;
use crate::inodes::{Dir, Scan};
use crate::remedy::{DirPlace, Repair};
use crate::volume::{Volume, chunks};
use crate::work::Work;

/// Positions of the directories in the tree, in the order of the scan's.
pub(crate) struct Tree {
    /// The directory that holds an entry for this directory.
    pub(crate) parents: Vec<Option<Ino>>,
    /// The inode to which ".." of this directory leads.
    pub(crate) dotdots: Vec<Option<Ino>>,
    /// The inode that the root calls `lost+found`.
    pub(crate) lost_found: Option<Ino>,
}

/// The byte of an entry's header that records the kind of file.
const FILE_TYPE: usize = 7;

/// The directory at the root for inodes without a name.
const LOST_FOUND: &[u8] = b"lost+found";

/// The last hash version that an index may name.
const LAST_HASH: u8 = 2;

/// The hash of names that are folded and encrypted: their entries have it.
const SIPHASH: u8 = 6;

/// Walks all directories, in parallel.
pub(crate) fn walk(
    volume: &Volume,
    scan: &Scan,
    findings: &Findings,
    work: &Work<'_>,
) -> Result<Tree> {
    work.expect(scan.dirs.len() as u64);
    let keys = RandomState::new();
    let all = work.spread(&scan.dirs, |dir, buffer| {
        let mut walker = DirWalker {
            volume,
            scan,
            findings,
            dir,
            format: DirFormat {
                folded: dir.folds(),
                hashes: dir.folded && dir.encrypted,
                ..volume.dir_format(dir.ino, dir.generation)
            },
            keys: &keys,
            policy: scan.policies.of(dir.ino),
            names: Vec::new(),
            seen: Seen::default(),
        };
        walker.walk(buffer)?;
        Ok(walker.seen)
    })?;
    let mut tree = Tree {
        parents: vec![None; scan.dirs.len()],
        dotdots: Vec::with_capacity(scan.dirs.len()),
        lost_found: None,
    };
    for (dir, seen) in scan.dirs.iter().zip(all) {
        tree.lost_found = tree.lost_found.or(seen.lost_found);
        for child in seen.subdirs {
            let parent = scan.dir_at(child).and_then(|at| tree.parents.get_mut(at));
            if let Some(other) = parent.and_then(|parent| parent.replace(dir.ino)) {
                let damage = LinkDamage::SecondParent {
                    first: other,
                    second: dir.ino,
                };
                findings.add_hiding(Location::Inode(child), damage);
            }
        }
        tree.dotdots.push(seen.dotdot);
    }
    Ok(tree)
}

/// Statements of one directory about others.
#[derive(Default)]
struct Seen {
    subdirs: Vec<Ino>,
    dotdot: Option<Ino>,
    lost_found: Option<Ino>,
}

/// Walks one directory.
struct DirWalker<'a> {
    volume: &'a Volume,
    scan: &'a Scan,
    findings: &'a Findings,
    dir: &'a Dir,
    format: DirFormat,
    keys: &'a RandomState,
    /// The policy of an encrypted directory.
    policy: Option<PolicyId>,
    /// A hash of each name met so far. Names that are the same have the same.
    names: Vec<u64>,
    seen: Seen,
}

/// A block of the directory that is being read.
#[derive(Clone, Copy)]
struct CurrentBlock {
    lblk: u32,
    pblk: Pblk,
    index: Option<IndexKind>,
}

/// The hashes that a leaf may hold: from its own key up to that of the next leaf, and that one too
/// if names collide.
#[derive(Clone, Copy)]
struct Bounds {
    low: u32,
    high: u32,
}

/// The index of a directory: its index blocks, and for each leaf the hashes it may hold.
struct Htree {
    /// `None` where names are folded and encrypted: entries have their hashes.
    hasher: Option<DirHasher>,
    nodes: HashMap<u32, IndexKind>,
    leaves: HashMap<u32, Bounds>,
}

impl DirWalker<'_> {
    fn add(&self, lblk: u32, kind: impl Into<CorruptKind>) {
        self.findings
            .add(Location::DirBlock(self.dir.ino, Lblk::new(lblk)), kind);
    }

    fn add_repairable(&self, lblk: u32, kind: impl Into<CorruptKind>, repair: Repair) {
        let place = Location::DirBlock(self.dir.ino, Lblk::new(lblk));
        self.findings.add_repairable(place, kind, || repair);
    }

    /// The block, for a repair.
    fn of(&self, current: CurrentBlock) -> DirPlace {
        DirPlace {
            dir: self.dir.ino,
            pblk: current.pblk,
            index: current.index,
        }
    }

    fn walk(&mut self, buffer: &mut Vec<u8>) -> Result<()> {
        if let Some(block) = &self.dir.inside {
            self.inside(block);
            return Ok(());
        }
        let htree = if self.dir.indexed {
            self.htree()?
        } else {
            None
        };
        let mut expected = 0;
        for run in &self.dir.runs {
            if u64::from(run.lblk.get()) != expected {
                self.findings.add_hiding(
                    Location::Inode(self.dir.ino),
                    DirectoryDamage::HoleAt { block: expected },
                );
            }
            expected = run.end();
            self.each_block(run, buffer, |walker, lblk, pblk, block| {
                let nodes = htree.as_ref().map(|htree| &htree.nodes);
                let index = nodes.and_then(|nodes| nodes.get(&lblk).copied());
                walker.block(CurrentBlock { lblk, pblk, index }, block, htree.as_ref());
            })?;
        }
        self.repeated_names(htree.as_ref(), buffer)?;
        if self.dir.blocks == 0 {
            let place = Location::Inode(self.dir.ino);
            self.findings.add_hiding(place, DirectoryDamage::NoBlock);
        }
        Ok(())
    }

    /// Adds a wrong kind of an entry, which `repair` mends if it is in a block.
    fn add_kind(&self, lblk: u32, damage: DirectoryDamage, repair: Repair) {
        match self.dir.inside {
            Some(_) => self.add(lblk, damage),
            None => self.add_repairable(lblk, damage, repair),
        }
    }

    /// Walks a directory inside of its inode, as the block `block` that it would fill.
    fn inside(&mut self, block: &[u8]) {
        self.format = self.format.inside();
        let (lblk, pblk, index) = (0, Pblk::ZERO, None);
        self.block(CurrentBlock { lblk, pblk, index }, block, None);
        let mut names: HashSet<Cow<'_, [u8]>> = HashSet::new();
        let records = self.format.records(block).skip(2).map_while(|r| r.ok());
        for record in records.filter(|record| record.ino.is_some()) {
            if !names.insert(self.key(record.name)) {
                let name = record.name.into();
                self.add(lblk, DirectoryDamage::RepeatedName { name });
            }
        }
    }

    /// Reads the blocks of a run, if they can be read.
    fn each_block(
        &mut self,
        run: &Extent,
        buffer: &mut Vec<u8>,
        mut each: impl FnMut(&mut Self, u32, Pblk, &[u8]),
    ) -> Result<()> {
        if run.unwritten || !self.volume.holds(run.pblk, u64::from(run.len)) {
            return Ok(());
        }
        let bytes = self.volume.sb.block_size().bytes();
        let mut lblk = run.lblk.get();
        for (at, count) in chunks(u64::from(run.len)) {
            let first = run.pblk.get() + at;
            self.volume.read_blocks(Pblk::new(first), count, buffer)?;
            for (pblk, block) in (first..).zip(buffer.chunks_exact(bytes)) {
                each(self, lblk, Pblk::new(pblk), block);
                lblk = lblk.wrapping_add(1);
            }
        }
        Ok(())
    }

    /// Reports names that stand twice. Only names whose hashes are the same are compared, in a
    /// second walk.
    fn repeated_names(&mut self, htree: Option<&Htree>, buffer: &mut Vec<u8>) -> Result<()> {
        let mut hashes = std::mem::take(&mut self.names);
        hashes.sort_unstable();
        let pairs = hashes.windows(2).filter(|pair| pair.first() == pair.last());
        let repeated: HashSet<u64> = pairs.flatten().copied().collect();
        if repeated.is_empty() {
            return Ok(());
        }
        let mut names: HashSet<Vec<u8>> = HashSet::new();
        for run in &self.dir.runs {
            self.each_block(run, buffer, |walker, lblk, _, block| {
                if htree.is_some_and(|htree| htree.nodes.contains_key(&lblk)) {
                    return;
                }
                let skip = if lblk == 0 { 2 } else { 0 };
                let records = walker
                    .format
                    .records(block)
                    .skip(skip)
                    .map_while(|r| r.ok());
                for record in records.filter(|record| record.ino.is_some()) {
                    let key = walker.key(record.name);
                    let hash = walker.keys.hash_one(&key);
                    if repeated.contains(&hash) && !names.insert(key.into_owned()) {
                        let name = record.name.into();
                        walker.add(lblk, DirectoryDamage::RepeatedName { name });
                    }
                }
            })?;
        }
        Ok(())
    }

    fn block(&mut self, current: CurrentBlock, block: &[u8], htree: Option<&Htree>) {
        let lblk = current.lblk;
        if lblk == 0 {
            match self.format.dots(block) {
                Ok((own, parent)) => {
                    if own != self.dir.ino {
                        self.add(0, DirectoryDamage::Dot { ino: own });
                    }
                    for ino in [own, parent] {
                        if let Some(facts) = self.scan.facts_of(ino) {
                            facts.refer();
                        }
                    }
                    self.seen.dotdot = Some(parent);
                    self.dots(block, current);
                }
                Err(error) => self.add(0, error),
            }
        }
        if current.index.is_some() {
            return;
        }
        match self.format.check_leaf(block) {
            Ok(()) => {}
            Err(error @ DirentError::Checksum { .. })
                if self.format.records(block).all(|record| record.is_ok()) =>
            {
                self.add_repairable(lblk, error, Repair::DirChecksum(self.of(current)));
            }
            Err(error) => self.add(lblk, error),
        }
        let bounds = match htree {
            None => None,
            Some(htree) => match htree.leaves.get(&lblk) {
                Some(bounds) => Some((htree.hasher.as_ref(), *bounds)),
                None => {
                    self.add(lblk, IndexDamage::NoEntry);
                    None
                }
            },
        };
        let skip = if lblk == 0 { 2 } else { 0 };
        for record in self.format.records(block).skip(skip) {
            // A broken record was reported above.
            let Ok(record) = record else { return };
            let Some(ino) = record.ino else { continue };
            // A record has a whole header.
            self.entry(current, block[record.offset + FILE_TYPE], &record, ino);
            if let Some((hasher, bounds)) = bounds {
                let hash = match hasher {
                    Some(hasher) => hasher.hash(record.name).major,
                    None => record.hash.map_or(0, |hash| hash.major),
                };
                if hash < bounds.low & !1 || hash > bounds.high {
                    let name = record.name.into();
                    self.add(lblk, IndexDamage::WrongLeaf { name, hash });
                }
            }
        }
    }

    /// The form of a name that is the same for two of which a directory may have one.
    fn key<'n>(&self, name: &'n [u8]) -> Cow<'n, [u8]> {
        match self.format.folded {
            true => casefold::key(name),
            false => name.into(),
        }
    }

    /// Checks the bytes of "." and "..", after `DirFormat::dots` found the two where they must be.
    fn dots(&self, block: &[u8], current: CurrentBlock) {
        const DOTDOT: usize = 12;
        let is_root = current.index.is_some();
        for (name, start, end) in [(".", 0, 9), ("..", DOTDOT, DOTDOT + 10)] {
            let raw = block[start + FILE_TYPE];
            if let Some(expected) = self.wrong_kind(raw, Some(FileKind::Directory)) {
                let damage = DirectoryDamage::Kind {
                    name: name.as_bytes().into(),
                    stored: raw,
                    expected,
                };
                let repair = Repair::EntryKind {
                    block: self.of(current),
                    at: start + FILE_TYPE,
                    kind: expected as u8,
                    target: self.dir.ino,
                };
                self.add_kind(0, damage, repair);
            }
            if block[end] != 0 {
                let name = name.as_bytes().into();
                self.add(0, DirectoryDamage::DotEnd { name });
            }
        }
        let rec_len = self
            .format
            .decode_rec_len(u16::from_le_bytes([block[16], block[17]]));
        if is_root && rec_len != self.format.block_size.bytes() - DOTDOT {
            self.add(0, DirectoryDamage::DotDotLength { bytes: rec_len });
        }
    }

    /// The kind of file that an entry should record, if it records another one; zero stands for
    /// "not recorded".
    fn wrong_kind(&self, raw: u8, kind: Option<FileKind>) -> Option<FileType> {
        let expected = match kind {
            Some(kind) if self.format.file_type => kind.file_type(),
            _ => FileType::Unknown,
        };
        (raw != 0 && raw != expected as u8).then_some(expected)
    }

    fn entry(&mut self, current: CurrentBlock, raw_type: u8, record: &Record<'_>, ino: Ino) {
        let (name, lblk) = (|| record.name.into(), current.lblk);
        if self.dir.ino == Ino::ROOT && record.name == LOST_FOUND {
            self.seen.lost_found = Some(ino);
        }
        if self.dir.encrypted {
            // Any bytes, until they are decrypted.
        } else if let Err(error) = record.check_name() {
            self.add(lblk, error);
        } else if matches!(record.name, b"." | b"..") {
            self.add(lblk, DirectoryDamage::RepeatedName { name: name() });
        }
        let strict = self.format.folded && self.volume.sb.strict_names();
        if strict && !casefold::is_text(record.name) {
            self.add(lblk, DirectoryDamage::NotText { name: name() });
        }
        self.names.push(self.keys.hash_one(self.key(record.name)));
        let ordinary = ino == Ino::ROOT || ino.get() >= self.volume.sb.first_inode();
        let Some(facts) = self.scan.facts_of(ino).filter(|_| ordinary) else {
            // The inode, and what it owns, may be hidden by a flag or a count of its group.
            let damage = DirectoryDamage::UnusedInode { name: name(), ino };
            let place = Location::DirBlock(self.dir.ino, Lblk::new(lblk));
            self.findings.add_hiding_inodes(place, damage);
            return;
        };
        if facts.unreadable {
            self.add(lblk, DirectoryDamage::InodeOnBadBlock { name: name(), ino });
            return;
        }
        facts.refer();
        if let Some(policy) = self.policy {
            let policies = &self.scan.policies;
            if let Some(damage) = policies.entry(policy, record.name, ino, facts.kind) {
                let place = Location::DirBlock(self.dir.ino, Lblk::new(lblk));
                self.findings.add_alone(place, damage);
            }
        }
        if ino == Ino::ROOT || ino == self.dir.ino {
            self.add(lblk, DirectoryDamage::OwnDirectory { name: name(), ino });
        } else if facts.kind == Some(FileKind::Directory) {
            self.seen.subdirs.push(ino);
        }
        if let Some(expected) = self.wrong_kind(raw_type, facts.kind) {
            let damage = DirectoryDamage::Kind {
                name: name(),
                stored: raw_type,
                expected,
            };
            let repair = Repair::EntryKind {
                block: self.of(current),
                at: record.offset + FILE_TYPE,
                kind: expected as u8,
                target: ino,
            };
            self.add_kind(lblk, damage, repair);
        }
    }

    /// Checks an index block. Returns whether its entries can be read.
    fn index_block(&self, lblk: u32, pblk: Pblk, block: &[u8], kind: IndexKind) -> bool {
        let error = match self.format.check_index(block, kind, self.max_levels()) {
            Ok(()) => return true,
            Err(error) => error,
        };
        // The checksum is looked at last: all else is sound.
        let only_checksum = matches!(error, HtreeError::Checksum { .. });
        if only_checksum {
            let index = Some(kind);
            let place = self.of(CurrentBlock { lblk, pblk, index });
            self.add_repairable(lblk, error, Repair::DirChecksum(place));
        } else {
            self.add(lblk, error);
        }
        only_checksum
    }

    /// Reads the index. Returns `None` after a finding: then only the blocks are checked, each by
    /// itself.
    fn htree(&self) -> Result<Option<Htree>> {
        if !self.volume.sb.features().has_compat(Compat::DIR_INDEX) {
            return Ok(None);
        }
        let Some((pblk, root)) = self.read(0)? else {
            return Ok(None);
        };
        if !self.index_block(0, pblk, &root, IndexKind::Root) {
            return Ok(None);
        }
        let (Ok(info), Ok(index)) = (
            self.format.root_info(&root, self.max_levels()),
            self.format.index(&root, IndexKind::Root),
        ) else {
            return Ok(None);
        };
        let version = info.hash_version;
        // The hashes that entries have, or else hashes of names.
        let stored = self.format.hashes;
        let known = match stored {
            true => version == SIPHASH,
            false => version <= LAST_HASH,
        };
        if !known {
            self.add(0, IndexDamage::HashVersion { version });
        }
        // The superblock says whether hashes take bytes as unsigned.
        let unsigned = self.volume.sb.flags().contains(SuperFlags::UNSIGNED_HASH);
        let hasher = match DirHasher::new(version, unsigned, self.volume.sb.hash_seed()) {
            _ if stored && !known => return Ok(None),
            _ if stored => None,
            Ok(hasher) => Some(hasher.folding(self.format.folded)),
            Err(error) => {
                self.add(0, error);
                return Ok(None);
            }
        };
        let mut htree = Htree {
            hasher,
            nodes: HashMap::from([(0, IndexKind::Root)]),
            leaves: HashMap::new(),
        };
        let everything = Bounds {
            low: 0,
            high: u32::MAX,
        };
        self.below(&mut htree, &index, everything, info.indirect_levels)?;
        Ok(Some(htree))
    }

    /// Levels of nodes that an index may have between its root and its leaves.
    fn max_levels(&self) -> u8 {
        let large = self.volume.sb.features().has_incompat(Incompat::LARGEDIR);
        1 + u8::from(large)
    }

    /// Adds all that is below an index block with `levels` levels of nodes below it: at most two.
    fn below(
        &self,
        htree: &mut Htree,
        index: &HashIndex<'_>,
        outer: Bounds,
        levels: u8,
    ) -> Result<()> {
        for (child, bounds) in children(index, outer) {
            if levels == 0 {
                self.leaf(htree, child, bounds);
                continue;
            }
            let Entry::Vacant(free) = htree.nodes.entry(child) else {
                self.add(child, IndexDamage::TwoEntries);
                continue;
            };
            free.insert(IndexKind::Node);
            let Some((pblk, block)) = self.read(child)? else {
                continue;
            };
            if !self.index_block(child, pblk, &block, IndexKind::Node) {
                continue;
            }
            if let Ok(index) = self.format.index(&block, IndexKind::Node) {
                self.below(htree, &index, bounds, levels - 1)?;
            }
        }
        Ok(())
    }

    fn leaf(&self, htree: &mut Htree, lblk: u32, bounds: Bounds) {
        if u64::from(lblk) >= self.dir.blocks {
            let block = Lblk::new(lblk);
            self.add(0, IndexDamage::Target { block });
        } else if htree.nodes.contains_key(&lblk) || htree.leaves.insert(lblk, bounds).is_some() {
            self.add(lblk, IndexDamage::TwoEntries);
        }
    }

    fn read(&self, lblk: u32) -> Result<Option<(Pblk, Vec<u8>)>> {
        let lblk = Lblk::new(lblk);
        let run = self.dir.runs.iter().find(|run| run.contains(lblk));
        let pblk: Option<Pblk> = run.and_then(|run| {
            let inside = lblk.distance_from(run.lblk)?;
            run.pblk.checked_add(u64::from(inside))
        });
        match pblk.filter(|pblk| self.volume.holds(*pblk, 1)) {
            Some(pblk) => Ok(Some((pblk, self.volume.block(pblk)?))),
            None => {
                self.add(0, IndexDamage::Hole { block: lblk });
                Ok(None)
            }
        }
    }
}

/// The children of an index block, each with the hashes that may be found below it.
fn children<'a>(
    index: &'a HashIndex<'a>,
    outer: Bounds,
) -> impl Iterator<Item = (u32, Bounds)> + 'a {
    (0..index.len()).filter_map(move |at| {
        let low = if at == 0 { outer.low } else { index.key(at)? };
        let high = match index.key(at + 1) {
            // A key with the collision bit says that the leaf before it may end with the same hash.
            Some(next) if next & 1 == 1 => next & !1,
            // No hash is below a key of zero: the leaf before it may hold names with hash zero.
            Some(next) => next.saturating_sub(1),
            None => outer.high,
        };
        Some((index.block(at)?.get(), Bounds { low, high }))
    })
}
