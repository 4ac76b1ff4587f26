//! Quotas: what each user, group and project uses, against what the files of quotas say.
//!
//! An inode counts for its owner, its group and its project, if it is the root directory or has a
//! number that is not reserved, but for the file of projects and the orphan file. It counts the
//! blocks that it owns, as its sectors do, and itself. Inodes that hold values of attributes count
//! for none: each inode with such an attribute counts the value's blocks and an inode more.
//!
//! A symbolic link inside of its inode (`inline_data`) counts on Linux, and not for e2fsck 1.47: a
//! file may say either.

use std::collections::BTreeMap;
use std::sync::Arc;

use extant_disk::damage::{CorruptKind, QuotaDamage, QuotaError};
use extant_disk::extent::Extent;
use extant_disk::features::RoCompat;
use extant_disk::file_kind::FileKind;
use extant_disk::inode::{InodeCore, InodeFlags};
use extant_disk::location::Location;
use extant_disk::quota::{
    BLOCK, EntryPlace, QuotaBlock, QuotaBlocks, QuotaEntry, QuotaHeader, QuotaKind, QuotaTimes,
    QuotaUsage, salvage, walk,
};
use extant_units::{Ino, Lblk, Pblk, index};

use crate::error::{Error, Result};
use crate::findings::Findings;
use crate::maps::map_of;
use crate::remedy::{QuotaContent, Repair};
use crate::volume::Volume;

/// A share of the volume.
#[derive(Clone, Copy)]
pub(crate) struct Charge {
    pub(crate) bytes: u64,
    /// Inodes that hold values of attributes.
    pub(crate) values: u64,
    /// Set for a symbolic link inside of its inode.
    pub(crate) is_inside: bool,
}

/// The most ids of a kind that a report names. A report that is cut leaves more in doubt.
const NAMED: usize = 64;

/// Usage by id, of each kind that the volume counts.
#[derive(Default)]
pub(crate) struct Charges([Option<BTreeMap<u32, Counted>>; 3]);

/// Usage that was counted for an id.
#[derive(Clone, Copy, Default)]
struct Counted {
    usage: QuotaUsage,
    /// Inodes among them that not all programs count.
    doubtful: u64,
}

impl Counted {
    /// Adds more. No overflow on a volume where nothing else is wrong; of others any number is as
    /// good.
    fn add(&mut self, more: Self) {
        let (usage, more_usage) = (&mut self.usage, more.usage);
        usage.bytes = usage.bytes.saturating_add(more_usage.bytes);
        usage.inodes = usage.inodes.saturating_add(more_usage.inodes);
        self.doubtful = self.doubtful.saturating_add(more.doubtful);
    }

    /// Returns whether an entry that says `usage` is right.
    fn allows(&self, usage: QuotaUsage) -> bool {
        let less = QuotaUsage {
            inodes: self.usage.inodes.saturating_sub(self.doubtful),
            ..self.usage
        };
        usage == self.usage || usage == less
    }
}

impl Charges {
    /// Nothing counted yet, of the kinds that have a file.
    pub(crate) fn of(volume: &Volume) -> Self {
        let mut charges = Self::default();
        for kind in QuotaKind::ALL {
            // Without room for their id, inodes belong to no project.
            let counted = kind != QuotaKind::Project || volume.format.inode_size > 128;
            if file_of(volume, kind).is_some() {
                charges.0[kind.index()] = counted.then(BTreeMap::new);
            }
        }
        charges
    }

    /// Counts an inode.
    pub(crate) fn add(&mut self, core: &InodeCore, charge: Charge) {
        if core.was_value() {
            return;
        }
        let counted = Counted {
            usage: QuotaUsage {
                bytes: charge.bytes,
                inodes: 1 + charge.values,
            },
            doubtful: u64::from(charge.is_inside),
        };
        for (kind, ids) in QuotaKind::ALL.into_iter().zip(&mut self.0) {
            let Some(ids) = ids else { continue };
            let id = match kind {
                QuotaKind::User => core.uid,
                QuotaKind::Group => core.gid,
                QuotaKind::Project => core.projid,
            };
            ids.entry(id).or_default().add(counted);
        }
    }

    /// Adds what was counted elsewhere.
    pub(crate) fn merge(&mut self, other: Self) {
        for (ids, more) in self.0.iter_mut().zip(other.0) {
            for (id, usage) in more.into_iter().flatten() {
                if let Some(ids) = ids {
                    ids.entry(id).or_default().add(usage);
                }
            }
        }
    }
}

/// The inode that has the quotas of `kind`; `None` if they are not counted.
fn file_of(volume: &Volume, kind: QuotaKind) -> Option<Ino> {
    let has_quotas = volume.sb.features().has_ro_compat(RoCompat::QUOTA);
    kind.file_of(&volume.sb).filter(|_| has_quotas)
}

/// Flags that no file of quotas has: its blocks hold something else then.
const FOREIGN: InodeFlags = InodeFlags::EA_INODE
    .union(InodeFlags::INLINE_DATA)
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::VERITY);

/// Compares the files with what was counted.
pub(crate) fn compare(
    volume: &Volume,
    charges: Charges,
    has_name: impl Fn(Ino) -> bool,
    findings: &Findings,
) -> Result<()> {
    for (kind, counted) in QuotaKind::ALL.into_iter().zip(charges.0) {
        let Some(ino) = file_of(volume, kind) else {
            continue;
        };
        let expected = match kind.fixed_inode() {
            Some(fixed) => ino.get() == fixed,
            None => (volume.sb.first_inode()..=volume.sb.inodes_count()).contains(&ino.get()),
        };
        if !expected {
            findings.add(Location::Superblock, QuotaDamage::NoFile { kind });
            continue;
        }
        // One that is no file, or cannot be read, was reported with the inodes.
        let Ok((core, runs)) = map_of(volume, ino)? else {
            continue;
        };
        if FileKind::from_mode(core.mode) != Some(FileKind::Regular) {
            continue;
        }
        // With a name it is a user's, and the superblock may have a wrong number.
        if has_name(ino) || core.flags.intersects(FOREIGN) {
            findings.add(Location::Superblock, QuotaDamage::NoFile { kind });
            continue;
        }
        if core.links == 0 {
            findings.add(Location::Superblock, QuotaDamage::Unlinked { kind });
            continue;
        }
        let mut file = Comparison {
            kind,
            ino,
            findings,
            bytes: core.disk_size,
            file: QuotaFile {
                volume,
                runs,
                read: None,
            },
            counted: counted.unwrap_or_default(),
        };
        file.compare()?;
    }
    Ok(())
}

/// One file and what was counted of its kind.
struct Comparison<'a> {
    kind: QuotaKind,
    ino: Ino,
    findings: &'a Findings,
    bytes: u64,
    file: QuotaFile<'a>,
    counted: BTreeMap<u32, Counted>,
}

/// An entry that says something else than was counted.
struct Wrong {
    entry: QuotaEntry,
    used: QuotaUsage,
    /// Its block on the device, and the byte in there.
    at: Option<(Pblk, usize)>,
}

impl Comparison<'_> {
    fn compare(&mut self) -> Result<()> {
        let (kind, place) = (self.kind, Location::Inode(self.ino));
        let (wrong, missing) = match self.read() {
            Ok(read) => read,
            Err(Failure::Check(error)) => return Err(error),
            Err(Failure::Quota(error)) => {
                let content = self.content()?;
                let damage = QuotaDamage::File { kind, error };
                self.findings
                    .add_repairable(place, damage, || Repair::QuotaFile(content));
                return Ok(());
            }
        };
        if wrong.len() > NAMED || !missing.is_empty() {
            // The whole file is made right by one repair.
            let content = self.content()?;
            let entries = wrong.iter().map(|wrong| (wrong.entry, wrong.used));
            let others = missing
                .iter()
                .map(|(id, counted)| (QuotaEntry::of(*id), counted.usage));
            for (entry, used) in entries.chain(others).take(NAMED) {
                let damage = self.damage(entry, used);
                let content = Arc::clone(&content);
                self.findings
                    .add_repairable(place, damage, || Repair::QuotaFile(content));
            }
            return Ok(());
        }
        for wrong in wrong {
            let (id, usage) = (wrong.entry.id, wrong.used);
            let damage = self.damage(wrong.entry, usage);
            match wrong.at {
                Some((block, at)) => {
                    self.findings
                        .add_repairable(place, damage, || Repair::QuotaUsage {
                            block,
                            at,
                            id,
                            usage,
                        })
                }
                None => self.findings.add_alone(place, damage),
            }
        }
        Ok(())
    }

    fn damage(&self, said: QuotaEntry, used: QuotaUsage) -> CorruptKind {
        let damage = QuotaDamage::Usage {
            kind: self.kind,
            id: said.id,
            bytes: said.usage.bytes,
            inodes: said.usage.inodes,
            used_bytes: used.bytes,
            used_inodes: used.inodes,
        };
        damage.into()
    }

    /// Reads the file. Returns the entries that are wrong, as many as are named and one more, and
    /// the ids that have none.
    fn read(&mut self) -> Result<(Vec<Wrong>, BTreeMap<u32, Counted>), Failure> {
        let first = self.file.read(0)?;
        let header = QuotaHeader::decode(self.kind, self.bytes, &first)?;
        let mut missing = self.counted.clone();
        let mut wrong = Vec::new();
        let bs = self.file.volume.sb.block_size().bytes_u64();
        let runs = self.file.runs.clone();
        walk(&mut self.file, &header, &mut |place, entry| {
            let used = missing.remove(&entry.id).unwrap_or_default();
            if !used.allows(entry.usage) && wrong.len() <= NAMED {
                let (used, at) = (used.usage, device_place(&runs, place, bs));
                wrong.push(Wrong { entry, used, at });
            }
            Ok(())
        })?;
        missing.retain(|_, counted| !counted.allows(QuotaUsage::default()));
        Ok((wrong, missing))
    }

    /// The content that the file has to have: every id that uses something, and the limits that can
    /// be read.
    fn content(&mut self) -> Result<Arc<QuotaContent>> {
        let mut entries: BTreeMap<u32, QuotaEntry> = BTreeMap::new();
        let mut times = QuotaTimes::default();
        match self.limits(&mut entries) {
            Ok(found) => times = found,
            Err(Failure::Check(error)) => return Err(error),
            Err(Failure::Quota(_)) => {}
        }
        for (&id, counted) in &self.counted {
            entries.entry(id).or_insert(QuotaEntry::of(id)).usage = counted.usage;
        }
        Ok(Arc::new(QuotaContent {
            kind: self.kind,
            ino: self.ino,
            times,
            entries: entries.into_values().collect(),
        }))
    }

    /// Takes the entries that have limits, without their usage.
    fn limits(&mut self, entries: &mut BTreeMap<u32, QuotaEntry>) -> Result<QuotaTimes, Failure> {
        let first = self.file.read(0)?;
        let header = match QuotaHeader::decode(self.kind, self.bytes, &first) {
            Ok(header) => header,
            Err(_) => {
                let bs = self.file.volume.sb.block_size().bytes_u64();
                let end = self.file.runs.last().map_or(0, Extent::end);
                QuotaHeader::guess(self.kind, self.bytes.max(end * bs), &first)
            }
        };
        salvage(&mut self.file, &header, &mut |_, entry| {
            if !entry.limits.is_none() {
                let usage = QuotaUsage::default();
                let known = entries.entry(entry.id);
                known.or_insert(QuotaEntry { usage, ..entry });
            }
            Ok(())
        })?;
        Ok(header.times)
    }
}

/// The place of an entry on the device; `None` if there is a hole.
fn device_place(runs: &[Extent], place: EntryPlace, block_size: u64) -> Option<(Pblk, usize)> {
    let (lblk, inside) = (place.byte() / block_size, place.byte() % block_size);
    Some((block_at(runs, lblk)?, index(inside)))
}

/// The block of the device that has block `lblk` of a file.
fn block_at(runs: &[Extent], lblk: u64) -> Option<Pblk> {
    let lblk = Lblk::new(u32::try_from(lblk).ok()?);
    let at = runs
        .partition_point(|run| run.lblk <= lblk)
        .checked_sub(1)?;
    let run = runs.get(at)?;
    let inside = u64::from(lblk.get() - run.lblk.get());
    let mapped = inside < u64::from(run.len) && !run.unwritten;
    mapped.then(|| run.pblk.plus(inside))
}

/// A file of quotas, read block by block.
struct QuotaFile<'a> {
    volume: &'a Volume,
    /// In the order of the file.
    runs: Vec<Extent>,
    /// The block that was read last.
    read: Option<(Pblk, Vec<u8>)>,
}

impl QuotaBlocks for QuotaFile<'_> {
    type Error = Failure;

    fn read(&mut self, block: u32) -> Result<QuotaBlock, Failure> {
        let bs = self.volume.sb.block_size().bytes_u64();
        let byte = u64::from(block) * BLOCK as u64;
        let Some(pblk) = block_at(&self.runs, byte / bs) else {
            return Err(QuotaError::Short { block }.into());
        };
        if self.read.as_ref().is_none_or(|(read, _)| *read != pblk) {
            self.read = None;
            self.read = Some((pblk, self.volume.block(pblk).map_err(Failure::Check)?));
        }
        let bytes = self.read.as_ref().and_then(|(_, bytes)| {
            let (pieces, _) = bytes.as_chunks::<BLOCK>();
            pieces.get(index(byte % bs) / BLOCK)
        });
        Ok(*bytes.ok_or(QuotaError::Short { block })?)
    }
}

/// End of a walk.
enum Failure {
    Quota(QuotaError),
    Check(Error),
}

impl From<QuotaError> for Failure {
    fn from(error: QuotaError) -> Self {
        Self::Quota(error)
    }
}
