//! Extended attributes: those in inodes, and those in blocks that several inodes share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use extant_disk::damage::{AttributeDamage, InodeDamage, MapDamage};
use extant_disk::features::{Compat, Incompat};
use extant_disk::inode::InodeCore;
use extant_disk::location::Location;
use extant_disk::xattr::{
    BlockHeader, Entries, XattrError, area_entries, block_entries, check_block,
};
use extant_units::{Ino, Pblk};
use parking_lot::Mutex;

use crate::error::Result;
use crate::findings::Findings;
use crate::remedy::Repair;
use crate::role::Role;
use crate::usage::Usage;
use crate::values::{Owned, Values};
use crate::volume::Volume;
use crate::work::Work;

/// Checks the attributes of inodes, several at once.
pub(crate) struct Attributes<'a> {
    volume: &'a Volume,
    usage: &'a Usage,
    findings: &'a Findings,
    /// Attribute blocks met so far. The lock is held for a look-up.
    blocks: Mutex<HashMap<Pblk, Shared>>,
    /// Values elsewhere.
    values: Values,
    /// The values of each attribute block.
    values_of_blocks: Mutex<HashMap<Pblk, Option<Owned>>>,
}

/// An attribute block.
struct Shared {
    /// Inodes that name it so far.
    users: u32,
    /// The first of them in the order of numbers.
    first: Ino,
}

impl<'a> Attributes<'a> {
    /// No attribute block met.
    pub(crate) fn new(volume: &'a Volume, usage: &'a Usage, findings: &'a Findings) -> Self {
        Self {
            volume,
            usage,
            findings,
            blocks: Mutex::default(),
            values: Values::default(),
            values_of_blocks: Mutex::default(),
        }
    }

    /// Checks the attributes of one inode. Returns its share in what they take. `None` if some of
    /// those that are elsewhere cannot be read.
    pub(crate) fn inode(&self, role: Role, ino: Ino, core: &InodeCore) -> Result<Option<Owned>> {
        let (volume, findings) = (self.volume, self.findings);
        let mut values = Some(Owned::default());
        match area_entries(&core.xattrs) {
            Ok(entries) => {
                values = self.values.owned(volume, entries.clone())?;
                self.walk(entries, Location::Inode(ino))?;
            }
            Err(error) => self.unreadable(Location::Inode(ino), error),
        }
        let pblk = core.file_acl;
        if pblk == Pblk::ZERO {
            return Ok(values);
        }
        let damage = if !volume.sb.features().has_compat(Compat::EXT_ATTR) {
            // Then the field has no meaning, and the inode owns no block by it.
            InodeDamage::AttributesWithoutFeature { block: pblk }
        } else if !volume.holds(pblk, 1) {
            InodeDamage::AttributesOutside { block: pblk }
        } else {
            self.refer(ino, pblk);
            let of_block = self.values_of_block(pblk)?;
            let block = Owned {
                clusters: 1,
                inodes: 0,
            };
            return Ok(values.zip(of_block).map(|(one, other)| block + one + other));
        };
        if role.is_read() {
            findings.add(Location::Inode(ino), damage);
        }
        Ok(values)
    }

    /// The values that attributes in a block have elsewhere; `None` if they cannot be read. A block
    /// is read once.
    fn values_of_block(&self, pblk: Pblk) -> Result<Option<Owned>> {
        let features = self.volume.sb.features();
        if !features.has_incompat(Incompat::EA_INODE) {
            return Ok(Some(Owned::default()));
        }
        let known = self.values_of_blocks.lock().get(&pblk).copied();
        if let Some(known) = known {
            return Ok(known);
        }
        let owned = match block_entries(&self.volume.block(pblk)?) {
            Ok(entries) => self.values.owned(self.volume, entries)?,
            Err(_) => None,
        };
        self.values_of_blocks.lock().insert(pblk, owned);
        Ok(owned)
    }

    fn unreadable(&self, place: Location, error: XattrError) {
        self.values.note_unread();
        self.findings.add(place, error);
    }

    /// Counts a user of the block. The first one claims it.
    fn refer(&self, ino: Ino, pblk: Pblk) {
        match self.blocks.lock().entry(pblk) {
            Entry::Occupied(mut known) => {
                let shared = known.get_mut();
                // No overflow: there are fewer than 2^32 inodes, and each names one block.
                shared.users += 1;
                shared.first = shared.first.min(ino);
                return;
            }
            Entry::Vacant(free) => {
                free.insert(Shared {
                    users: 1,
                    first: ino,
                });
            }
        }
        if let Some(block) = self.usage.claim_clusters(pblk, 1) {
            let place = Location::XattrBlock(ino, pblk);
            self.findings.add(place, MapDamage::Shared { block });
        }
    }

    /// Checks all blocks that inodes name, and compares their reference counts, after all inodes
    /// were scanned. Returns the inodes that hold values; `None` if there may be others.
    pub(crate) fn compare(&self, work: &Work<'_>) -> Result<Option<Vec<Ino>>> {
        let mut blocks: Vec<(Pblk, Shared)> = self.blocks.lock().drain().collect();
        blocks.sort_unstable_by_key(|(pblk, _)| *pblk);
        work.expect(blocks.len() as u64);
        work.spread(&blocks, |(pblk, shared), buffer| {
            self.volume.read_blocks(*pblk, 1, buffer)?;
            self.block(*pblk, shared, buffer)
        })?;
        self.values.compare(self.volume, self.findings, work)
    }

    /// Checks a block.
    fn block(&self, pblk: Pblk, shared: &Shared, block: &[u8]) -> Result<()> {
        let findings = self.findings;
        let place = Location::XattrBlock(shared.first, pblk);
        let entries = check_block(self.volume.csum_seed, pblk, block);
        match entries.and_then(|()| block_entries(block)) {
            Ok(entries) => self.walk(entries, place)?,
            // With the right count below.
            Err(error @ XattrError::RefCount { .. }) => findings.add_alone(place, error),
            Err(error @ XattrError::Checksum { .. }) => match unsealed(pblk, block) {
                Some(entries) => {
                    findings.add_repairable(place, error, || Repair::XattrChecksum(pblk));
                    self.walk(entries, place)?;
                }
                None => self.unreadable(place, error),
            },
            Err(error) => self.unreadable(place, error),
        }
        // Without a header there is no count; that was reported.
        let stored = BlockHeader::of(block).map_or(0, |header| header.refcount.get());
        if stored != shared.users {
            let users = shared.users;
            let repair = || Repair::XattrReferences(pblk, users);
            findings.add_repairable(place, AttributeDamage::References { stored, users }, repair);
        }
        Ok(())
    }

    fn walk(&self, entries: Entries<'_>, place: Location) -> Result<()> {
        let findings = self.findings;
        // In an inode, a hash of zero means none.
        let in_block = matches!(place, Location::XattrBlock(..));
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    self.values.note_unread();
                    findings.add_alone(place, error);
                    break;
                }
            };
            if let Some(elsewhere) = &entry.elsewhere {
                let wrong = self.values.refer(self.volume, &entry, elsewhere)?;
                if let Some(damage) = wrong {
                    findings.add_alone(place, damage);
                }
            } else {
                let unhashed = !in_block && entry.hash == 0;
                if !unhashed && entry.hash != entry.computed_hash() {
                    findings.add_alone(place, AttributeDamage::Hash);
                }
            }
            if in_block && entry.name.index.raw() == 0 {
                findings.add_alone(place, AttributeDamage::NoNameKind);
            }
        }
        Ok(())
    }
}

/// The entries of a block that is sound but for its checksum.
fn unsealed(pblk: Pblk, block: &[u8]) -> Option<Entries<'_>> {
    check_block(None, pblk, block).ok()?;
    block_entries(block).ok()
}
