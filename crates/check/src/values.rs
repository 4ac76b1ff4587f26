//! Values of extended attributes in inodes of their own (`ea_inode`).
//!
//! Such an inode is a regular file with a flag and without a name. Its time of access holds the
//! crc32c of the value, and its time of change and its version the number of attributes that have
//! it. Those that Lustre made are older: they name their owner, and count nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};

use extant_disk::damage::{AttributeDamage, CorruptKind};
use extant_disk::features::Incompat;
use extant_disk::file_kind::FileKind;
use extant_disk::inode::{InodeCore, InodeFlags, RawInode};
use extant_disk::location::Location;
use extant_disk::xattr::{Entries, Entry, ValueInode, XATTR_VALUE_MAX};
use extant_units::{Ino, index};
use parking_lot::Mutex;

use crate::error::Result;
use crate::findings::Findings;
use crate::maps::{blocks_of, runs_beside};
use crate::remedy::Repair;
use crate::usage::Usage;
use crate::volume::Volume;
use crate::work::Work;

/// The values that attributes have elsewhere.
#[derive(Default)]
pub(crate) struct Values {
    /// The number of attributes that have each.
    users: Mutex<BTreeMap<Ino, u64>>,
    /// The inodes that were read; `None` for one that holds no value.
    holders: Mutex<HashMap<Ino, Option<Holder>>>,
    /// Some attributes cannot be read: there may be more users.
    unread: AtomicBool,
}

/// The share of an inode in what its attributes take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Owned {
    /// Clusters that the inode counts as its own: its block of attributes, and the values that are
    /// elsewhere, but those of Lustre.
    pub(crate) clusters: u64,
    /// Inodes that hold values.
    pub(crate) inodes: u64,
}

impl std::ops::Add for Owned {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            clusters: self.clusters + other.clusters,
            inodes: self.inodes + other.inodes,
        }
    }
}

/// An inode that holds a value.
#[derive(Clone, Copy)]
struct Holder {
    size: u64,
    /// The crc32c of the value.
    crc: u32,
    /// The attributes that have it; `None` for one of Lustre.
    users: Option<u64>,
}

impl Values {
    /// Checks the attribute `entry`, whose value is at `at`, and counts it.
    pub(crate) fn refer(
        &self,
        volume: &Volume,
        entry: &Entry<'_>,
        at: &ValueInode,
    ) -> Result<Option<CorruptKind>> {
        let damage = || Ok(Some(at.damage().into()));
        let Some((ino, holder)) = self.holder(volume, at)? else {
            return damage();
        };
        *self.users.lock().entry(ino).or_insert(0) += 1;
        if holder.size != u64::from(at.size) || at.size as usize > XATTR_VALUE_MAX {
            return damage();
        }
        let wrong = holder.users.is_some() && !at.is_hash_of(&entry.name, holder.crc);
        Ok(wrong.then(|| AttributeDamage::Hash.into()))
    }

    /// The values that attributes of a table have elsewhere. `None` if some cannot be read.
    pub(crate) fn owned(&self, volume: &Volume, entries: Entries<'_>) -> Result<Option<Owned>> {
        let mut owned = Owned::default();
        if !has_feature(volume) {
            return Ok(Some(owned));
        }
        for entry in entries {
            let Ok(entry) = entry else { return Ok(None) };
            let Some(at) = entry.elsewhere else { continue };
            let Some((_, holder)) = self.holder(volume, &at)? else {
                return Ok(None);
            };
            owned.inodes += 1;
            if holder.users.is_some() {
                let own = volume.sb.block_size().blocks_for(at.size.into()).get();
                owned.clusters += own.div_ceil(1 << volume.sb.cluster_bits());
            }
        }
        Ok(Some(owned))
    }

    /// Notes that attributes of a table cannot be read.
    pub(crate) fn note_unread(&self) {
        self.unread.store(true, Ordering::Relaxed);
    }

    /// Compares each value with its hash, and the counts, after all attributes were counted.
    /// Returns the inodes; `None` if there may be others.
    pub(crate) fn compare(
        &self,
        volume: &Volume,
        findings: &Findings,
        work: &Work<'_>,
    ) -> Result<Option<Vec<Ino>>> {
        let known: Vec<(Ino, u64)> = std::mem::take(&mut *self.users.lock())
            .into_iter()
            .collect();
        let unread = self.unread.load(Ordering::Relaxed);
        work.expect(known.len() as u64);
        // No two values have a block in common, which was reported if it is so.
        let usage = Usage::empty(volume);
        work.spread(&known, |&(ino, users), buffer| {
            let holder = self.holders.lock().get(&ino).copied().flatten();
            let Some((holder, stored)) = holder.and_then(|holder| Some((holder, holder.users?)))
            else {
                return Ok(());
            };
            let place = Location::Inode(ino);
            if stored != users && !unread {
                let damage = AttributeDamage::ValueReferences { stored, users };
                findings.add_repairable(place, damage, || Repair::ValueReferences(ino, users));
            }
            // Longer ones were reported with their attributes.
            if holder.size <= XATTR_VALUE_MAX as u64 {
                let value = value_of(volume, ino, &usage, buffer)?;
                if volume.sb.checksum_seed().feed(&value).raw() != holder.crc {
                    findings.add_alone(place, AttributeDamage::ValueHash);
                }
            }
            Ok(())
        })?;
        let inodes = known.into_iter().map(|(ino, _)| ino);
        Ok((!unread).then(|| inodes.collect()))
    }

    /// The inode that holds the value at `at`; `None` if it holds none. It is read once.
    fn holder(&self, volume: &Volume, at: &ValueInode) -> Result<Option<(Ino, Holder)>> {
        let last = volume.sb.inodes_count();
        let ino = Ino::new(at.inode).filter(|_| has_feature(volume));
        let range = volume.sb.first_inode()..=last;
        let Some(ino) = ino.filter(|ino| range.contains(&ino.get())) else {
            return Ok(None);
        };
        let known = self.holders.lock().get(&ino).copied();
        let holder = match known {
            Some(known) => known,
            None => {
                let read = Holder::read(volume, ino)?;
                self.holders.lock().insert(ino, read);
                read
            }
        };
        Ok(holder.map(|holder| (ino, holder)))
    }
}

impl Holder {
    /// Reads inode `ino`; `None` if it holds no value.
    fn read(volume: &Volume, ino: Ino) -> Result<Option<Self>> {
        let record = volume.record(ino)?;
        let (Some(raw), Ok(core)) = (
            RawInode::of(&record),
            InodeCore::decode(&volume.format, ino, &record),
        ) else {
            return Ok(None);
        };
        let is_one = core.links != 0
            && core.flags.contains(InodeFlags::EA_INODE)
            && FileKind::from_mode(core.mode) == Some(FileKind::Regular);
        let of_lustre = core.is_value_of_lustre(volume.sb.inodes_count());
        Ok(is_one.then(|| Self {
            size: core.disk_size,
            crc: raw.atime.get(),
            users: (!of_lustre).then(|| core.value_users()),
        }))
    }
}

fn has_feature(volume: &Volume) -> bool {
    volume.sb.features().has_incompat(Incompat::EA_INODE)
}

/// The bytes of a value, as many as its blocks have and an attribute may have.
fn value_of(volume: &Volume, ino: Ino, usage: &Usage, buffer: &mut Vec<u8>) -> Result<Vec<u8>> {
    let mut value = Vec::new();
    let Ok(core) = volume.inode(ino)? else {
        return Ok(value);
    };
    let runs = runs_beside(volume, ino, &core, usage)?;
    let size = index(core.disk_size.min(XATTR_VALUE_MAX as u64));
    let blocks = runs.iter().filter(|run| !run.unwritten).flat_map(blocks_of);
    for (_, pblk) in blocks {
        if value.len() >= size {
            break;
        }
        volume.read_blocks(pblk, 1, buffer)?;
        let left = (size - value.len()).min(buffer.len());
        value.extend_from_slice(&buffer[..left]);
    }
    Ok(value)
}
