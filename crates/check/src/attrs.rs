//! Extended attributes: in the inode and in blocks that several inodes may share.

use std::collections::HashMap;

use extant_disk::features::Compat;
use extant_disk::inode::InodeCore;
use extant_disk::xattr::{BlockHeader, Entries, area_entries, block_entries, check_block};
use extant_units::{Ino, Pblk};
use parking_lot::Mutex;

use super::report::Findings;
use super::role::Role;
use super::usage::Usage;
use super::volume::Volume;
use crate::error::Result;
use extant_disk::location::Location;

/// Attribute blocks met so far: how many inodes say they hold them, how many use them, and the first that did.
/// One lock, held for a look-up.
#[derive(Default)]
pub(super) struct Attributes {
    blocks: Mutex<HashMap<Pblk, Shared>>,
}

struct Shared {
    stored: u32,
    users: u32,
    first: Ino,
}

impl Attributes {
    /// Checks the attributes of one inode. Returns the blocks it owns for them: none or one.
    pub(super) fn inode(
        &self,
        volume: &Volume,
        usage: &Usage,
        findings: &Findings,
        role: Role,
        ino: Ino,
        core: &InodeCore,
    ) -> Result<u64> {
        match area_entries(&core.xattrs) {
            Ok(entries) => walk(entries, Location::Inode(ino), findings),
            Err(error) => findings.add(Location::Inode(ino), error),
        }
        let pblk = core.file_acl;
        if pblk == Pblk::ZERO {
            return Ok(0);
        }
        if !volume.sb.features().has_compat(Compat::EXT_ATTR) {
            // The number means nothing then, and no block belongs to the inode by it.
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
        if let Some(shared) = self.blocks.lock().get_mut(&pblk) {
            shared.users = shared.users.saturating_add(1);
            return Ok(1);
        }
        let place = Location::XattrBlock(ino, pblk);
        let block = volume.block(pblk)?;
        let stored = BlockHeader::of(&block).map_or(0, |header| header.refcount.get());
        let mut blocks = self.blocks.lock();
        if let Some(shared) = blocks.get_mut(&pblk) {
            shared.users = shared.users.saturating_add(1);
            return Ok(1);
        }
        blocks.insert(
            pblk,
            Shared {
                stored,
                users: 1,
                first: ino,
            },
        );
        drop(blocks);
        if let Some(taken) = usage.claim(pblk, 1) {
            findings.add(
                place,
                format_args!("block {taken} has another owner as well"),
            );
        }
        match check_block(volume.csum_seed, pblk, &block).and_then(|()| block_entries(&block)) {
            Ok(entries) => walk(entries, place, findings),
            Err(error) => findings.add(place, error),
        }
        Ok(1)
    }

    /// Compares the reference counts, after all inodes were seen.
    pub(super) fn compare(&self, findings: &Findings) {
        for (pblk, shared) in self.blocks.lock().iter() {
            if shared.stored != shared.users {
                let what = format_args!(
                    "reference count {}, used by {}",
                    shared.stored, shared.users
                );
                findings.add(Location::XattrBlock(shared.first, *pblk), what);
            }
        }
    }
}

fn walk(entries: Entries<'_>, place: Location, findings: &Findings) {
    // In an inode hashes are optional.
    let in_block = matches!(place, Location::XattrBlock(..));
    for entry in entries {
        match entry {
            Ok(entry) => {
                let unhashed = !in_block && entry.hash == 0;
                if !unhashed && entry.hash != entry.computed_hash() {
                    findings.add(place, "an attribute's hash does not fit its value");
                }
                if in_block && entry.name.index.raw() == 0 {
                    findings.add(place, "an attribute without a kind of name");
                }
            }
            Err(error) => {
                findings.add(place, error);
                return;
            }
        }
    }
}
