//! The entries of ids: found, and added where an id has none.

use std::sync::Arc;

use extant_disk::quota::{BLOCK, INSERT_BLOCKS, QuotaEntry, QuotaKind};
use extant_units::exact_u32;

use super::file_blocks::FileBlocks;
use crate::inode::find_owners;
use crate::state::inode::Inode;
use crate::state::quota::{Dquot, MovedUsage, OwnerIds, Owners, Quotas};
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::{Fs, all_or_abort, credits};

/// The dquot of an id; `None` where the volume counts no such kind. Damage is reported, and leaves
/// the id without one: what it uses is not counted any more.
///
/// # Errors
/// A failed read.
pub(crate) fn find_dquot(fs: &Fs, kind: QuotaKind, id: u32) -> Result<Option<Arc<Dquot>>> {
    let Some(quotas) = fs.quotas.get() else {
        return Ok(None);
    };
    let Some(file) = quotas.file(kind) else {
        return Ok(None);
    };
    if let Some(known) = quotas.known(kind, id) {
        return Ok(Some(known));
    }
    // What is found is entered before another thread may add, count and forget the id.
    let header = file.lock();
    let find = || {
        let inode = fs.inodes.get_internal(fs, file.ino)?;
        FileBlocks::to_read(fs, file.kind, &inode).find(&header, id)
    };
    match quotas
        .known(kind, id)
        .map_or_else(|| find().map(Err), |known| Ok(Ok(known)))
    {
        Ok(Ok(known)) => Ok(Some(known)),
        Ok(Err(Some((stored, entry)))) => {
            let dquot = Dquot::new(kind, entry, Some(stored), &file.rules);
            Ok(Some(quotas.enter(dquot)))
        }
        Ok(Err(None)) => Ok(quotas.known_or_new(kind, id)),
        Err(error @ Error::Corrupt { .. }) => {
            drop(header);
            fs.fault.report(fs, &error);
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Makes sure that the ids of a new inode have entries. Called before a handle; starts handles.
///
/// # Errors
/// [`Error::NoSpace`] for an entry; damage; a stopped journal.
pub(crate) fn prepare(fs: &Fs, ids: OwnerIds) -> Result<Option<Owners>> {
    let Some(quotas) = fs.quotas.get() else {
        return Ok(None);
    };
    let owners = find_owners(fs, ids)?;
    for dquot in owners.dquots() {
        add_entry(fs, quotas, dquot)?;
    }
    Ok(Some(owners))
}

/// As [`prepare`], for an inode that gets a new owner: what it has, with the inodes that hold
/// `values` of its attributes, is reserved for `ids` until the result is dropped. Called with the
/// inode's lock held.
///
/// # Errors
/// As [`prepare`]; [`Error::OverQuota`].
pub(crate) fn prepare_owner(
    fs: &Fs,
    inode: &Inode,
    (ids, values): (OwnerIds, impl FnOnce() -> Result<u64>),
    cred: &Cred,
) -> Result<Option<(Owners, MovedUsage)>> {
    let Some(quota) = inode.quota.as_ref().filter(|quota| quota.ids() != ids) else {
        return Ok(None);
    };
    let Some(owners) = prepare(fs, ids)? else {
        return Ok(None);
    };
    let moved = quota.reserve_moved(&owners, values()?, cred.privileged);
    let moved = moved.ok_or(Error::OverQuota)?;
    Ok(Some((owners, moved)))
}

/// Adds the entries of ids that a damaged volume has none for. Called before a sync. What cannot be
/// added is told, and usage of the id is wrong then.
pub(crate) fn add_missing(fs: &Fs) {
    let Some(quotas) = fs.quotas.get() else {
        return;
    };
    for dquot in quotas.without_entry() {
        if let Err(error) = add_entry(fs, quotas, &dquot) {
            let (kind, id) = (dquot.kind, dquot.id);
            tracing::warn!(%kind, id, %error, "usage is not stored");
        }
    }
}

/// Gives `dquot` an entry, unless it has one.
pub(super) fn add_entry(fs: &Fs, quotas: &Quotas, dquot: &Dquot) -> Result<()> {
    let Some(file) = quotas.file(dquot.kind).filter(|_| !dquot.is_stored()) else {
        return Ok(());
    };
    let mut h = fs.start(insert_credits(fs))?;
    let mut header = file.lock();
    if dquot.is_stored() {
        return Ok(());
    }
    let inode = fs.inodes.get_internal(fs, file.ino)?;
    let added = all_or_abort(&mut h, |h| {
        let mut blocks = FileBlocks::to_change(fs, file.kind, &inode, h);
        let (stored, entry) = match blocks.find(&header, dquot.id)? {
            Some(found) => found,
            None => {
                let entry = QuotaEntry::of(dquot.id);
                (blocks.insert(&mut header, &entry)?, entry)
            }
        };
        dquot.put(h, &entry, stored)
    });
    added.inspect_err(|error| fs.fault.report(fs, error))
}

/// Credits for adding an entry: its blocks, and new blocks of the file where they are the last.
fn insert_credits(fs: &Fs) -> u32 {
    // Nodes below the root, and the block of the entry, as blocks of the volume.
    const NEW: u64 = 4;
    let new = fs.layout.block_size.blocks_for(NEW * BLOCK as u64).get() + 1;
    let each = credits::sum([credits::allocate(fs), credits::INODE_UPDATE]);
    credits::sum([INSERT_BLOCKS, each.saturating_mul(exact_u32(new))])
}
