//! Pass 1: every inode of every table.

use std::cell::Cell;
use std::collections::BTreeSet;

use extant_disk::damage::{CorruptKind, DirectoryDamage, InodeDamage};
use extant_disk::extent::Extent;
use extant_disk::features::Incompat;
use extant_disk::file_kind::FileKind;
use extant_disk::group_desc::GroupFlags;
use extant_disk::inline_data::bytes_inside;
use extant_disk::inode::{InodeCore, InodeError, InodeFlags, RawInode};
use extant_disk::location::Location;
use extant_units::{Group, Ino, Pblk};
use parking_lot::Mutex;

use crate::attrs::Attributes;
use crate::bad_blocks::BadBlocks;
use crate::contexts::{Contexts, Policies};
use crate::error::Result;
use crate::facts::Facts;
use crate::fields::{self, Fields, full_size};
use crate::findings::Findings;
use crate::maps::{self, Map, MapWalker};
use crate::quotas::{Charge, Charges};
use crate::remedy::Repair;
use crate::reserved::Reserved;
use crate::role::Role;
use crate::symlinks;
use crate::usage::Usage;
use crate::values::Owned;
use crate::volume::{Volume, chunks};
use crate::work::Work;

/// An inode in use, decoded.
struct Found<'a> {
    ino: Ino,
    role: Role,
    kind: Option<FileKind>,
    raw: &'a RawInode,
    core: &'a InodeCore,
    /// Its share of the volume, for quotas: as it says itself, until it was counted.
    charge: Cell<Charge>,
}

/// A directory to be walked.
pub(crate) struct Dir {
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    pub(crate) blocks: u64,
    pub(crate) indexed: bool,
    /// Its names are folded before they are hashed.
    pub(crate) folded: bool,
    /// Its names are encrypted.
    pub(crate) encrypted: bool,
    pub(crate) runs: Vec<Extent>,
    /// With its entries inside of the inode: as the block that they would fill.
    pub(crate) inside: Option<Box<[u8]>>,
}

/// The outcome of the pass.
pub(crate) struct Scan {
    pub(crate) usage: Usage,
    /// Inodes in use by group, in rising order.
    pub(crate) facts: Vec<Vec<Facts>>,
    /// Directories, in rising order.
    pub(crate) dirs: Vec<Dir>,
    /// Inodes that hold values of attributes, in rising order; `None` if some attributes cannot be
    /// read.
    pub(crate) values: Option<Vec<Ino>>,
    /// Policies of encrypted inodes.
    pub(crate) policies: Policies,
    /// Usage by ids, where quotas are counted.
    charges: Charges,
    inodes_per_group: u32,
}

/// Data inside of an inode, as far as it can be read.
enum Inside {
    Data,
    Entries(Dir),
    Doubtful,
}

impl Inside {
    fn entries(self) -> Option<Dir> {
        match self {
            Self::Entries(dir) => Some(dir),
            Self::Data | Self::Doubtful => None,
        }
    }
}

impl Dir {
    /// Returns whether it has a name in one spelling of its case only.
    pub(crate) const fn folds(&self) -> bool {
        self.folded && !self.encrypted
    }
}

impl Scan {
    /// The facts of an inode, if it is in use.
    pub(crate) fn facts_of(&self, ino: Ino) -> Option<&Facts> {
        let group = (ino.get() - 1) / self.inodes_per_group;
        // An entry may name an inode past the last group.
        let facts = self.facts.get(group as usize)?;
        // Where it is if no inode before it is missing, and the last place where it can be. With
        // fewer facts than that it can be at any of them.
        let last = (ino.get().checked_sub(facts.first()?.ino.get())?) as usize;
        if let Some(facts) = facts.get(last).filter(|facts| facts.ino == ino) {
            return Some(facts);
        }
        let before = facts.get(..last).unwrap_or(facts);
        let at = before.binary_search_by_key(&ino, |facts| facts.ino).ok()?;
        before.get(at)
    }

    /// The place of a directory among all.
    pub(crate) fn dir_at(&self, ino: Ino) -> Option<usize> {
        self.dirs.binary_search_by_key(&ino, |dir| dir.ino).ok()
    }

    /// The inodes in use of a group of the volume.
    pub(crate) fn of_group(&self, group: Group) -> &[Facts] {
        &self.facts[group.index()]
    }

    /// Hands out the usage that was counted.
    pub(crate) fn take_charges(&mut self) -> Charges {
        std::mem::take(&mut self.charges)
    }

    pub(crate) fn inodes_used(&self) -> u64 {
        self.facts.iter().map(|facts| facts.len() as u64).sum()
    }
}

/// Scans all tables, groups in parallel.
pub(crate) fn scan(
    volume: &Volume,
    orphans: &BTreeSet<Ino>,
    findings: &Findings,
    work: &Work<'_>,
) -> Result<Scan> {
    let usage = Usage::with_metadata(volume, findings)?;
    let bad_blocks = BadBlocks::read(volume, findings)?;
    let attributes = Attributes::new(volume, &usage, findings);
    let charges = Mutex::new(Charges::of(volume));
    let contexts = Contexts::default();
    let table = Table {
        volume,
        orphans,
        findings,
        usage: &usage,
        attributes: &attributes,
        contexts: &contexts,
        bad_blocks: &bad_blocks,
        charges: &charges,
    };
    let groups: Vec<Group> = volume.group_numbers().collect();
    let per_group = work.spread(&groups, |group, buffer| table.group(*group, buffer))?;
    let values = attributes.compare(work)?;
    let (mut facts, mut dirs) = (Vec::with_capacity(per_group.len()), Vec::new());
    for (of_group, dirs_of_group) in per_group {
        facts.push(of_group);
        dirs.extend(dirs_of_group);
    }
    Ok(Scan {
        usage,
        facts,
        dirs,
        values,
        policies: contexts.finish(),
        charges: charges.into_inner(),
        inodes_per_group: volume.sb.inodes_per_group(),
    })
}

struct Table<'a> {
    volume: &'a Volume,
    orphans: &'a BTreeSet<Ino>,
    findings: &'a Findings,
    usage: &'a Usage,
    attributes: &'a Attributes<'a>,
    contexts: &'a Contexts,
    bad_blocks: &'a BadBlocks,
    /// The lock is held to add what one group has.
    charges: &'a Mutex<Charges>,
}

impl Table<'_> {
    /// The inodes of one group.
    fn group(&self, group: Group, buffer: &mut Vec<u8>) -> Result<(Vec<Facts>, Vec<Dir>)> {
        let (mut facts, mut dirs) = (Vec::new(), Vec::new());
        let mut charges = Charges::of(self.volume);
        let table = self.volume.desc(group).inode_table;
        let table_blocks = self.volume.table_blocks();
        let mut indices = 0..self.scanned(group);
        // A table that is not there is reported where metadata is claimed.
        if indices.is_empty() || !self.volume.holds(table, table_blocks) {
            return Ok((facts, dirs));
        }
        let record = self.volume.format.record_size();
        let per_block = self.volume.sb.block_size().bytes() / record;
        let used = u64::from(indices.end).div_ceil(per_block as u64);
        for (first, count) in chunks(table_blocks.min(used)) {
            let first = Pblk::new(table.get() + first);
            for piece in self.bad_blocks.split(first, count) {
                let here = indices.by_ref().take(piece.count * per_block);
                let inodes = here.filter_map(|index| self.volume.inode_at(group, index));
                if !piece.good {
                    facts.extend(inodes.map(Facts::unreadable));
                    continue;
                }
                self.volume.read_blocks(piece.first, piece.count, buffer)?;
                for (record, ino) in buffer.chunks_exact(record).zip(inodes) {
                    if let Some((fact, dir)) = self.inode(ino, record, &mut charges)? {
                        facts.push(fact);
                        dirs.extend(dir);
                    }
                }
            }
        }
        self.charges.lock().merge(charges);
        facts.shrink_to_fit();
        Ok((facts, dirs))
    }

    /// The number of inodes of the group that were ever used.
    fn scanned(&self, group: Group) -> u32 {
        let per_group = self.volume.sb.inodes_per_group();
        if !self.volume.sb.features().group_csum() {
            return per_group;
        }
        let desc = self.volume.desc(group);
        match per_group.checked_sub(desc.itable_unused) {
            _ if desc.flags.contains(GroupFlags::INODE_UNINIT) => 0,
            Some(used) => used,
            // Reported with the descriptor.
            None => per_group,
        }
    }

    /// One record: `None` if it is not in use.
    fn inode(
        &self,
        ino: Ino,
        record: &[u8],
        charges: &mut Charges,
    ) -> Result<Option<(Facts, Option<Dir>)>> {
        let Some(raw) = RawInode::of(record) else {
            return Ok(None);
        };
        let role = Role::of(&self.volume.sb, ino);
        let orphan = self.orphans.contains(&ino);
        if raw.links.get() == 0 && !orphan && !role.is_reserved() {
            self.deleted(ino, raw, record);
            return Ok(None);
        }
        let mut facts = Facts::new(ino, raw.links.get());
        let Some(core) = fields::decode(self.volume, self.findings, role, ino, record) else {
            return Ok(Some((facts, None)));
        };
        facts.kind = FileKind::from_mode(core.mode);
        facts.is_value = core.flags.contains(InodeFlags::EA_INODE)
            && self.volume.sb.features().has_incompat(Incompat::EA_INODE);
        facts.overflown = core.flags.contains(InodeFlags::INDEX) && core.links == 1;
        let inode = Found {
            ino,
            role,
            kind: facts.kind,
            raw,
            core: &core,
            charge: Cell::new(Charge {
                bytes: core.sectors.saturating_mul(512),
                values: 0,
                is_inside: facts.kind == Some(FileKind::Symlink) && self.is_inline(&core),
            }),
        };
        if role.has_name() && facts.kind.is_none() {
            self.findings
                .add(Location::Inode(ino), InodeDamage::Mode { mode: core.mode });
        }
        let fields = Fields {
            volume: self.volume,
            findings: self.findings,
            ino,
            role,
            kind: facts.kind,
            raw,
            core: &core,
        };
        fields.check();
        if !orphan {
            fields.not_deleted();
        }
        let dir = self.content(&inode)?;
        if role.is_charged() && !core.flags.contains(InodeFlags::EA_INODE) {
            charges.add(&core, inode.charge.get());
        }
        if role.is_reserved() && role != Role::BootLoader {
            facts.kind = None;
        }
        Ok(Some((facts, dir)))
    }

    /// Checks a record without links that is no orphan: it was deleted, or never used.
    fn deleted(&self, ino: Ino, raw: &RawInode, record: &[u8]) {
        if raw.mode.get() != 0 && raw.dtime.get() == 0 {
            self.findings
                .add(Location::Inode(ino), InodeDamage::NoDeletionTime);
        }
        // A record that was never used is all zeros, without a checksum.
        if is_zero(record) {
            return;
        }
        if let Err(error @ InodeError::Checksum { .. }) =
            InodeCore::decode(&self.volume.format, ino, record)
        {
            let (place, damage) = (Location::Inode(ino), InodeDamage::Deleted { error });
            // Else the link count itself may be what is wrong.
            match raw.mode.get() == 0 || raw.dtime.get() != 0 {
                true => {
                    let repair = || Repair::InodeChecksum(ino);
                    self.findings.add_repairable(place, damage, repair);
                }
                false => self.findings.add(place, damage),
            }
        }
    }

    /// Checks an inode with a number of the format's own. False if it has no contents like those of
    /// others.
    fn reserved(&self, inode: &Found<'_>, walker: &MapWalker<'_>) -> Result<bool> {
        let reserved = Reserved {
            volume: self.volume,
            findings: self.findings,
            ino: inode.ino,
            raw: inode.raw,
            core: inode.core,
        };
        reserved.check(inode.role, inode.kind);
        match inode.role {
            Role::Absent => return Ok(false),
            Role::BadBlocks => {
                walker.walk(inode.core)?;
                return Ok(false);
            }
            Role::Resize => {
                let map = reserved.resize(walker)?;
                self.space(inode, map.claimed);
                self.file_size(inode, &map);
                return Ok(false);
            }
            _ => {}
        }
        Ok(true)
    }

    /// Checks attributes, blocks and size of an inode in use.
    fn content(&self, inode: &Found<'_>) -> Result<Option<Dir>> {
        let (ino, core) = (inode.ino, inode.core);
        let walker = MapWalker {
            volume: self.volume,
            usage: self.usage,
            findings: self.findings,
            ino,
            generation: core.generation,
            spare: match inode.role {
                Role::BadBlocks => self.bad_blocks.blocks(),
                _ => &[],
            },
        };
        if inode.role.is_reserved() && !self.reserved(inode, &walker)? {
            return Ok(None);
        }
        let of_attributes = self.attributes.inode(inode.role, ino, core)?;
        if inode.role.has_name() {
            self.contexts.inode(self.volume, self.findings, ino, core)?;
        }
        let Owned {
            clusters: own,
            inodes: values,
        } = of_attributes.unwrap_or_default();
        let said = inode.charge.get();
        inode.charge.set(Charge { values, ..said });
        if self.is_inline(core) {
            let inside = self.inside(inode);
            if of_attributes.is_some() && !matches!(inside, Inside::Doubtful) {
                self.space(inode, own);
            }
            return Ok(inside.entries());
        }
        let map = match inode.kind {
            Some(FileKind::Regular | FileKind::Directory) => walker.walk(core)?,
            Some(FileKind::Symlink) if !symlinks::is_fast(self.volume, core, own) => {
                walker.walk(core)?
            }
            _ => Map::default(),
        };
        let own = own + self.translator(inode, &walker);
        if of_attributes.is_some() {
            self.space(inode, map.claimed + own);
        }
        match inode.kind {
            Some(FileKind::Symlink) => {
                let size = full_size(inode.raw);
                for damage in symlinks::damage(self.volume, core, size, &map)? {
                    self.findings.add_alone(Location::Inode(ino), damage);
                }
            }
            Some(FileKind::Directory) if inode.role.has_name() => {
                return Ok(Some(self.directory(inode, map)));
            }
            Some(FileKind::Regular) => self.file_size(inode, &map),
            None if inode.role.is_reserved() => self.file_size(inode, &map),
            _ => {}
        }
        Ok(None)
    }

    /// Claims the block of a translator, which inodes of GNU Hurd have. Returns how many it has.
    fn translator(&self, inode: &Found<'_>, walker: &MapWalker<'_>) -> u64 {
        let block = Pblk::new(inode.raw.version_lo.get().into());
        let mut map = Map::default();
        if self.volume.sb.is_of_hurd() && inode.role.has_name() && block != Pblk::ZERO {
            walker.claim(block, 1, &mut map);
        }
        map.claimed
    }

    /// Compares what an inode says that it owns with the `clusters` of its map and its attributes.
    fn space(&self, inode: &Found<'_>, clusters: u64) {
        let (ino, core) = (inode.ino, inode.core);
        let sectors = self.volume.sb.block_size().bytes_u64() / 512;
        let expected = (clusters << self.volume.sb.cluster_bits()) * sectors;
        let said = inode.charge.get();
        inode.charge.set(Charge {
            bytes: expected * 512,
            ..said
        });
        if core.sectors != expected {
            let damage = InodeDamage::Sectors {
                stored: core.sectors,
                owned: expected,
            };
            let repair = || Repair::Sectors(ino, expected);
            self.findings
                .add_repairable(Location::Inode(ino), damage, repair);
        }
    }

    fn file_size(&self, inode: &Found<'_>, map: &Map) {
        let bs = self.volume.sb.block_size();
        let size = full_size(inode.raw);
        let last_written = map.runs.iter().rev().find(|run| !run.unwritten);
        let at_least = last_written.map_or(0, |run| (run.end() - 1) * bs.bytes_u64());
        // A truncation that a crash cuts short leaves an orphan, which the next mount finishes. The
        // Merkle tree of fs-verity lies behind the end.
        let verity = inode.core.flags.contains(InodeFlags::VERITY);
        if size < at_least && !verity && !self.orphans.contains(&inode.ino) {
            let written = at_least;
            let damage = InodeDamage::SizeWithinBlocks { size, written };
            self.findings.add_alone(Location::Inode(inode.ino), damage);
        }
        let limit = maps::largest_file(bs, inode.core.flags.contains(InodeFlags::EXTENTS));
        if size > limit {
            let damage = InodeDamage::SizePastMap { size, limit };
            self.findings.add_alone(Location::Inode(inode.ino), damage);
        }
    }

    /// Returns whether the data of an inode is inside of it.
    fn is_inline(&self, core: &InodeCore) -> bool {
        let has_feature = self
            .volume
            .sb
            .features()
            .has_incompat(Incompat::INLINE_DATA);
        has_feature && core.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Checks data inside of an inode.
    fn inside(&self, inode: &Found<'_>) -> Inside {
        let (ino, core) = (inode.ino, inode.core);
        // The flag may be wrong, and what `i_block` leads to the inode's.
        let doubtful = |damage: CorruptKind| {
            self.findings
                .add_hiding_inodes(Location::Inode(ino), damage);
            Inside::Doubtful
        };
        let size = full_size(inode.raw);
        let data = match bytes_inside(core) {
            Ok(Some(data)) => data,
            Ok(None) => return doubtful(InodeDamage::NoInlineAttribute.into()),
            Err(error) => return doubtful(error.into()),
        };
        let Some(data) = usize::try_from(size).ok().and_then(|size| data.get(..size)) else {
            return doubtful(InodeDamage::PastInlineData.into());
        };
        if core.flags.contains(InodeFlags::EXTENTS) {
            return doubtful(InodeDamage::InlineExtents.into());
        }
        match inode.kind {
            Some(FileKind::Symlink) => {
                let damage = symlinks::damage_inside(core, data, size);
                if let Some(damage) = damage {
                    self.findings.add_alone(Location::Inode(ino), damage);
                }
                Inside::Data
            }
            Some(FileKind::Directory) => {
                if core.flags.contains(InodeFlags::INDEX) {
                    let damage = InodeDamage::InlineIndex;
                    self.findings.add_alone(Location::Inode(ino), damage);
                }
                let format = self.volume.dir_format(ino, core.generation).inside();
                let block = format.block_of_inside(ino, data);
                if block.is_none() {
                    let damage = DirectoryDamage::NoBlock;
                    self.findings.add_hiding(Location::Inode(ino), damage);
                }
                let dir = self.directory_of(core, ino, Vec::new());
                Inside::Entries(Dir {
                    inside: block,
                    ..dir
                })
            }
            _ => Inside::Data,
        }
    }

    /// The directory `ino` with the blocks `runs`.
    fn directory_of(&self, core: &InodeCore, ino: Ino, runs: Vec<Extent>) -> Dir {
        Dir {
            ino,
            generation: core.generation,
            blocks: runs.last().map_or(0, Extent::end),
            indexed: core.flags.contains(InodeFlags::INDEX),
            folded: core.flags.contains(InodeFlags::CASEFOLD),
            encrypted: core.flags.contains(InodeFlags::ENCRYPT),
            runs,
            inside: None,
        }
    }

    fn directory(&self, inode: &Found<'_>, map: Map) -> Dir {
        let (ino, core) = (inode.ino, inode.core);
        let bs = self.volume.sb.block_size();
        let end = map.runs.last().map_or(0, Extent::end);
        let size = full_size(inode.raw);
        if size != end * bs.bytes_u64() {
            let damage = InodeDamage::DirectorySize { size, blocks: end };
            self.findings.add_hiding(Location::Inode(ino), damage);
        }
        if map.runs.iter().any(|run| run.unwritten) {
            self.findings
                .add_hiding(Location::Inode(ino), InodeDamage::DirectoryUnwritten);
        }
        self.directory_of(core, ino, map.runs)
    }
}

/// Returns whether a record was never used.
fn is_zero(record: &[u8]) -> bool {
    let (words, rest) = record.as_chunks::<8>();
    words.iter().all(|word| *word == [0; 8]) && rest.iter().all(|byte| *byte == 0)
}
