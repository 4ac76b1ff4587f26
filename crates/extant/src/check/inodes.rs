//! Pass 1: every inode of every table.

use std::collections::BTreeSet;

use extant_disk::extent::Extent;
use extant_disk::group_desc::GroupFlags;
use extant_disk::inode::{InodeCore, InodeError, InodeFlags, InodeFormat, RawInode};
use extant_units::{Group, Ino, Pblk};

use super::Work;
use super::attrs::Attributes;
use super::maps::{Map, Walker};
use super::report::Findings;
use super::usage::Usage;
use super::volume::Volume;
use crate::api::FileKind;
use crate::error::{Place, Result};

/// Inodes below the first ordinary one that have a meaning here.
const RESIZE_INODE: u32 = 7;
const JOURNAL_INODE: u32 = 8;

/// Blocks of a table that are read at a time.
const CHUNK: u32 = 64;

/// What later passes need of an inode in use.
#[derive(Clone, Copy)]
pub(super) struct Facts {
    pub(super) ino: Ino,
    /// `None` for reserved inodes without a mode.
    pub(super) kind: Option<FileKind>,
    pub(super) links: u16,
}

/// A directory to be walked.
pub(super) struct Dir {
    pub(super) ino: Ino,
    pub(super) generation: u32,
    pub(super) blocks: u64,
    pub(super) indexed: bool,
    pub(super) runs: Vec<Extent>,
}

/// The outcome of the pass.
pub(super) struct Scan {
    pub(super) usage: Usage,
    /// Inodes in use by group, in rising order.
    pub(super) facts: Vec<Vec<Facts>>,
    pub(super) dirs: Vec<Dir>,
    inodes_per_group: u32,
}

impl Scan {
    /// What is known of an inode, if it is in use.
    pub(super) fn facts_of(&self, ino: Ino) -> Option<&Facts> {
        let group = (ino.get() - 1) / self.inodes_per_group;
        let facts = self.facts.get(group as usize)?;
        let at = facts.binary_search_by_key(&ino, |facts| facts.ino).ok()?;
        facts.get(at)
    }

    pub(super) fn inodes_used(&self) -> u64 {
        self.facts.iter().map(|facts| facts.len() as u64).sum()
    }
}

/// Scans all tables, groups in parallel.
pub(super) fn scan(
    volume: &Volume,
    orphans: &BTreeSet<Ino>,
    findings: &Findings,
    work: &Work<'_>,
) -> Result<Scan> {
    let usage = Usage::with_metadata(volume, findings);
    let attributes = Attributes::default();
    let table = Table {
        volume,
        orphans,
        findings,
        usage: &usage,
        attributes: &attributes,
    };
    let per_group = work.spread(volume.groups.len(), |group| {
        table.group(Group::new(u32::try_from(group).unwrap_or(u32::MAX)))
    })?;
    attributes.compare(findings);
    let (mut facts, mut dirs) = (Vec::with_capacity(per_group.len()), Vec::new());
    for (of_group, dirs_of_group) in per_group {
        facts.push(of_group);
        dirs.extend(dirs_of_group);
    }
    Ok(Scan {
        usage,
        facts,
        dirs,
        inodes_per_group: volume.sb.inodes_per_group(),
    })
}

struct Table<'a> {
    volume: &'a Volume,
    orphans: &'a BTreeSet<Ino>,
    findings: &'a Findings,
    usage: &'a Usage,
    attributes: &'a Attributes,
}

impl Table<'_> {
    /// The inodes of one group.
    fn group(&self, group: Group) -> Result<(Vec<Facts>, Vec<Dir>)> {
        let (mut facts, mut dirs) = (Vec::new(), Vec::new());
        let per_group = self.volume.sb.inodes_per_group();
        let count = self.scanned(group);
        let Some(desc) = self.volume.groups.get(group.index()) else {
            return Ok((facts, dirs));
        };
        if !self
            .volume
            .holds(desc.inode_table, self.volume.table_blocks())
        {
            return Ok((facts, dirs));
        }
        let record = self.volume.format.record_size();
        let per_chunk = CHUNK as usize * self.volume.sb.block_size().bytes() / record;
        for start in (0..count).step_by(per_chunk) {
            let bytes = self.chunk(desc.inode_table, start as usize * record)?;
            for (at, record) in bytes.chunks_exact(record).enumerate() {
                let index = start + u32::try_from(at).unwrap_or(u32::MAX);
                if index >= count {
                    break;
                }
                let number = group
                    .get()
                    .checked_mul(per_group)
                    .and_then(|first| first.checked_add(index + 1));
                let Some(ino) = number.and_then(Ino::new) else {
                    continue;
                };
                if let Some((fact, dir)) = self.inode(ino, record)? {
                    facts.push(fact);
                    dirs.extend(dir);
                }
            }
        }
        Ok((facts, dirs))
    }

    /// How many inodes of the group were ever used.
    fn scanned(&self, group: Group) -> u32 {
        let per_group = self.volume.sb.inodes_per_group();
        match self.volume.groups.get(group.index()) {
            Some(desc) if self.volume.sb.features().group_csum() => {
                if desc.flags.contains(GroupFlags::INODE_UNINIT) {
                    0
                } else {
                    per_group.saturating_sub(desc.itable_unused)
                }
            }
            _ => per_group,
        }
    }

    fn chunk(&self, table: Pblk, offset: usize) -> Result<Vec<u8>> {
        let first = (offset / self.volume.sb.block_size().bytes()) as u64;
        let count = u64::from(CHUNK).min(self.volume.table_blocks().saturating_sub(first));
        let start = Pblk::new(table.get() + first);
        self.volume
            .blocks(start, usize::try_from(count).unwrap_or(0))
    }

    /// One record: `None` if it is not in use.
    fn inode(&self, ino: Ino, record: &[u8]) -> Result<Option<(Facts, Option<Dir>)>> {
        let Some(raw) = RawInode::of(record) else {
            return Ok(None);
        };
        let reserved = ino != Ino::ROOT && ino.get() < self.volume.sb.first_inode();
        let orphan = self.orphans.contains(&ino);
        if raw.links.get() == 0 && !orphan && !reserved {
            if raw.mode.get() != 0 && raw.dtime.get() == 0 {
                self.findings
                    .add(Place::Inode(ino), "deleted, but without a time of deletion");
            }
            return Ok(None);
        }
        let unused_reserved = Facts {
            ino,
            kind: None,
            links: raw.links.get(),
        };
        if reserved && raw.mode.get() == 0 && ino.get() != RESIZE_INODE {
            return Ok(Some((unused_reserved, None)));
        }
        let Some(core) = self.decode(ino, record) else {
            return Ok(Some((unused_reserved, None)));
        };
        let kind = FileKind::from_mode(core.mode);
        if kind.is_none() && ino.get() != RESIZE_INODE {
            self.findings.add(
                Place::Inode(ino),
                format_args!("mode {:#o} is no kind of file", core.mode),
            );
        }
        let facts = Facts {
            ino,
            kind,
            links: core.links,
        };
        Ok(Some((facts, self.content(ino, kind, &core)?)))
    }

    fn decode(&self, ino: Ino, record: &[u8]) -> Option<InodeCore> {
        let format = &self.volume.format;
        match InodeCore::decode(format, ino, record) {
            Ok(core) => Some(core),
            Err(error) => {
                self.findings.add(Place::Inode(ino), error);
                let unsealed = InodeFormat {
                    csum_seed: None,
                    ..*format
                };
                match error {
                    InodeError::Checksum { .. } => InodeCore::decode(&unsealed, ino, record).ok(),
                    _ => None,
                }
            }
        }
    }

    /// Attributes, blocks and size of an inode in use.
    fn content(&self, ino: Ino, kind: Option<FileKind>, core: &InodeCore) -> Result<Option<Dir>> {
        let own = self
            .attributes
            .inode(self.volume, self.usage, self.findings, ino, core)?;
        let walker = Walker {
            volume: self.volume,
            usage: self.usage,
            findings: self.findings,
            ino,
            generation: core.generation,
        };
        let map = match kind {
            None if ino.get() == RESIZE_INODE => self.resize_inode(core),
            // The resize inode maps the reserve behind the descriptors, which is claimed already.
            Some(FileKind::Regular) if ino.get() == RESIZE_INODE => self.resize_inode(core),
            Some(FileKind::Regular | FileKind::Directory) => walker.walk(core)?,
            Some(FileKind::Symlink) if !is_fast_symlink(self.volume, core, own) => {
                walker.walk(core)?
            }
            _ => Map::default(),
        };
        if ino.get() != RESIZE_INODE {
            self.space(ino, core, map.claimed + own);
        }
        match kind {
            Some(FileKind::Regular)
                if ino.get() >= self.volume.sb.first_inode() || ino.get() == JOURNAL_INODE =>
            {
                self.file_size(ino, core, &map);
            }
            Some(FileKind::Symlink) => self.symlink(ino, core, &map)?,
            Some(FileKind::Directory) => return Ok(Some(self.directory(ino, core, map))),
            _ => {}
        }
        Ok(None)
    }

    /// Only the block of pointers is its own.
    fn resize_inode(&self, core: &InodeCore) -> Map {
        let mut map = Map::default();
        let pointer = core
            .i_block
            .get(52..56)
            .and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
        let pblk = Pblk::new(u64::from(u32::from_le_bytes(pointer.unwrap_or_default())));
        if pblk != Pblk::ZERO && self.volume.holds(pblk, 1) {
            map.claimed = 1;
            let ino = Ino::new(RESIZE_INODE).unwrap_or(Ino::ROOT);
            if let Some(taken) = self.usage.claim(pblk, 1) {
                self.findings.add(
                    Place::Inode(ino),
                    format_args!("block {taken} has another owner as well"),
                );
            }
        }
        map
    }

    fn space(&self, ino: Ino, core: &InodeCore, blocks: u64) {
        let expected = blocks * (self.volume.sb.block_size().bytes_u64() / 512);
        if core.sectors != expected {
            let what = format_args!("counts {} sectors, owns {expected}", core.sectors);
            self.findings.add(Place::Inode(ino), what);
        }
    }

    fn file_size(&self, ino: Ino, core: &InodeCore, map: &Map) {
        let bs = self.volume.sb.block_size();
        let last_written = map.runs.iter().rev().find(|run| !run.unwritten);
        let at_least = last_written.map_or(0, |run| (run.end() - 1) * bs.bytes_u64());
        if core.disk_size < at_least {
            let what = format_args!(
                "size {} with written blocks up to {at_least}",
                core.disk_size
            );
            self.findings.add(Place::Inode(ino), what);
        }
    }

    fn symlink(&self, ino: Ino, core: &InodeCore, map: &Map) -> Result<()> {
        let len = usize::try_from(core.disk_size).unwrap_or(usize::MAX);
        let target = match map.runs.first() {
            None => core.i_block.to_vec(),
            Some(run) => self.volume.block(run.pblk).unwrap_or_default(),
        };
        let sound = len > 0 && target.get(..len).is_some_and(|name| !name.contains(&0));
        if !sound {
            self.findings.add(
                Place::Inode(ino),
                format_args!("symbolic link with a bad target of {len} bytes"),
            );
        }
        Ok(())
    }

    fn directory(&self, ino: Ino, core: &InodeCore, map: Map) -> Dir {
        let bs = self.volume.sb.block_size();
        let end = map.runs.last().map_or(0, Extent::end);
        if core.disk_size != end * bs.bytes_u64() {
            let what = format_args!(
                "directory of {} bytes with blocks up to {end}",
                core.disk_size
            );
            self.findings.add(Place::Inode(ino), what);
        }
        if map.runs.iter().any(|run| run.unwritten) {
            self.findings
                .add(Place::Inode(ino), "directory with unwritten blocks");
        }
        Dir {
            ino,
            generation: core.generation,
            blocks: end,
            indexed: core.flags.contains(InodeFlags::INDEX),
            runs: map.runs,
        }
    }
}

/// Whether the target lies in the inode itself.
fn is_fast_symlink(volume: &Volume, core: &InodeCore, attribute_blocks: u64) -> bool {
    let own = attribute_blocks * (volume.sb.block_size().bytes_u64() / 512);
    !core.flags.contains(InodeFlags::EXTENTS) && core.sectors <= own && core.disk_size < 60
}
