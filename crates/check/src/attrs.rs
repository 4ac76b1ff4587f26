//! Extended attributes: those in inodes, and those in blocks that several inodes share.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use extant_disk::features::Compat;
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
use crate::volume::Volume;

/// Checks the attributes of inodes, several at once.
pub(crate) struct Attributes<'a> {
    volume: &'a Volume,
    usage: &'a Usage,
    findings: &'a Findings,
    /// Attribute blocks met so far. The lock is held for a look-up.
    blocks: Mutex<HashMap<Pblk, Shared>>,
}

/// An attribute block.
struct Shared {
    /// The reference count that it stores.
    stored: u32,
    /// Inodes that name it so far.
    users: u32,
    /// The first of them.
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
        }
    }

    /// Checks the attributes of one inode. Returns the blocks it owns for them: none or one.
    pub(crate) fn inode(&self, role: Role, ino: Ino, core: &InodeCore) -> Result<u64> {
        let (volume, findings) = (self.volume, self.findings);
        match area_entries(&core.xattrs) {
            Ok(entries) => walk(entries, Location::Inode(ino), findings),
            Err(error) => findings.add(Location::Inode(ino), error),
        }
        let pblk = core.file_acl;
        if pblk == Pblk::ZERO {
            return Ok(0);
        }
        if !volume.sb.features().has_compat(Compat::EXT_ATTR) {
            // Then the field has no meaning, and the inode owns no block by it.
            if role.is_read() {
                let what = format_args!("i_file_acl is {pblk} without the feature ext_attr");
                findings.add(Location::Inode(ino), what);
            }
            return Ok(0);
        }
        if !volume.holds(pblk, 1) {
            if role.is_read() {
                let what = format_args!("attribute block {pblk} lies outside of the file system");
                findings.add(Location::Inode(ino), what);
            }
            return Ok(0);
        }
        if !self.is_known(pblk) {
            self.block(ino, pblk)?;
        }
        Ok(1)
    }

    /// Counts a user of the block if it was met before.
    fn is_known(&self, pblk: Pblk) -> bool {
        match self.blocks.lock().get_mut(&pblk) {
            Some(shared) => {
                // No overflow: there are fewer than 2^32 inodes, and each names one block.
                shared.users += 1;
                true
            }
            None => false,
        }
    }

    /// Checks a block that `ino` names first.
    fn block(&self, ino: Ino, pblk: Pblk) -> Result<()> {
        let (volume, findings) = (self.volume, self.findings);
        let block = volume.block(pblk)?;
        // Without a header there is no count; `check_block` reports that.
        let stored = BlockHeader::of(&block).map_or(0, |header| header.refcount.get());
        match self.blocks.lock().entry(pblk) {
            // Another thread met the block while this one read it.
            Entry::Occupied(mut known) => {
                known.get_mut().users += 1;
                return Ok(());
            }
            Entry::Vacant(free) => {
                free.insert(Shared {
                    stored,
                    users: 1,
                    first: ino,
                });
            }
        }
        let place = Location::XattrBlock(ino, pblk);
        if let Some(taken) = self.usage.claim(pblk, 1) {
            let what = format_args!("block {taken} has another owner as well");
            findings.add(place, what);
        }
        match check_block(volume.csum_seed, pblk, &block).and_then(|()| block_entries(&block)) {
            Ok(entries) => walk(entries, place, findings),
            // Where the references are compared it is reported with the right count.
            Err(error @ XattrError::RefCount { .. }) => findings.add_alone(place, error),
            Err(error @ XattrError::Checksum { .. }) => match unsealed(pblk, &block) {
                Some(entries) => {
                    findings.add_repairable(place, error, || Repair::XattrChecksum(pblk));
                    walk(entries, place, findings);
                }
                None => findings.add(place, error),
            },
            Err(error) => findings.add(place, error),
        }
        Ok(())
    }

    /// Compares the reference counts, after all inodes were scanned.
    pub(crate) fn compare(&self) {
        for (pblk, shared) in self.blocks.lock().iter() {
            if shared.stored != shared.users {
                let what = format_args!(
                    "reference count {}, used by {}",
                    shared.stored, shared.users
                );
                let (place, users) = (Location::XattrBlock(shared.first, *pblk), shared.users);
                let repair = || Repair::XattrReferences(*pblk, users);
                self.findings.add_repairable(place, what, repair);
            }
        }
    }
}

/// The entries of a block that is sound but for its checksum.
fn unsealed(pblk: Pblk, block: &[u8]) -> Option<Entries<'_>> {
    check_block(None, pblk, block).ok()?;
    block_entries(block).ok()
}

fn walk(entries: Entries<'_>, place: Location, findings: &Findings) {
    // In an inode, a hash of zero means none.
    let in_block = matches!(place, Location::XattrBlock(..));
    for entry in entries {
        match entry {
            Ok(entry) => {
                let unhashed = !in_block && entry.hash == 0;
                if !unhashed && entry.hash != entry.computed_hash() {
                    findings.add_alone(place, "an attribute's hash does not fit its value");
                }
                if in_block && entry.name.index.raw() == 0 {
                    findings.add_alone(place, "an attribute without a kind of name");
                }
            }
            Err(error) => {
                findings.add_alone(place, error);
                return;
            }
        }
    }
}
