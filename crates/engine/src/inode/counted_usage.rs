//! Usage that stored inodes count in quotas: the hooks where inodes are read, stored, made, freed.
//!
//! They know of quotas what there is in memory. The entry of an id that is not known is read by
//! [`Upcalls::find_dquot`](crate::volume::Upcalls), as files of quotas have maps as all files.

use std::sync::Arc;

use extant_jbd2::Handle;
use extant_units::Ino;

use super::{InodeCore, InodeFlags};
use crate::state::inode::Inode;
use crate::state::quota::{InodeQuota, OwnerIds, Owners};
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// The quota of an inode that was read, and counts if `core` is that of a user's inode.
///
/// # Errors
/// A failed read.
pub(crate) fn attach(fs: &Fs, ino: Ino, core: &InodeCore) -> Result<Option<Arc<InodeQuota>>> {
    // After a fault nothing changes any more.
    if fs.quotas.get().is_none() || fs.check_writable().is_err() {
        return Ok(None);
    }
    // Values of attributes are counted by the inodes that have them.
    let counts = fs.layout.is_user_inode(ino)
        && !fs.layout.is_internal(ino)
        && !core.flags.contains(InodeFlags::EA_INODE)
        && !core.was_value();
    if !counts {
        return Ok(None);
    }
    let owners = find_owners(fs, OwnerIds::of(core))?;
    Ok(Some(Arc::new(InodeQuota::new(
        owners,
        Some(bytes_of(core)),
    ))))
}

/// The dquots of these ids. Reads entries that are not in memory.
///
/// # Errors
/// A failed read.
pub(crate) fn find_owners(fs: &Fs, ids: OwnerIds) -> Result<Owners> {
    let mut failed = Ok(());
    let owners = Owners::new(ids, |kind, id| {
        let found = (fs.upcalls.find_dquot)(fs, kind, id);
        found.unwrap_or_else(|error| {
            failed = Err(error);
            None
        })
    });
    failed.map(|()| owners)
}

/// A new inode that is reserved in the quotas of its ids.
#[must_use = "it lasts until the inode is counted"]
pub(crate) struct ReservedInode(Option<Arc<InodeQuota>>);

impl ReservedInode {
    /// The part of the inode in quotas.
    pub(crate) fn quota(&self) -> Option<Arc<InodeQuota>> {
        self.0.clone()
    }

    /// The inode is stored, and with that counted.
    pub(crate) fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for ReservedInode {
    fn drop(&mut self) {
        if let Some(quota) = &self.0 {
            quota.give_back_inode();
        }
    }
}

/// Reserves a new inode of `ids`, whose entries are in memory.
///
/// # Errors
/// [`Error::OverQuota`].
pub(crate) fn reserve_inode(fs: &Fs, ids: OwnerIds, cred: &Cred) -> Result<ReservedInode> {
    let Some(quotas) = fs.quotas.get() else {
        return Ok(ReservedInode(None));
    };
    let owners = Owners::new(ids, |kind, id| quotas.known_or_new(kind, id));
    let quota = Arc::new(InodeQuota::new(owners, None));
    match quota.reserve_inode(cred.privileged) {
        true => Ok(ReservedInode(Some(quota))),
        false => Err(Error::OverQuota),
    }
}

fn bytes_of(core: &InodeCore) -> u64 {
    core.sectors.saturating_mul(512)
}

/// Counts that `core` is what `inode` has stored under `h`.
///
/// # Errors
/// A stopped journal.
pub(crate) fn count(fs: &Fs, h: &mut Handle, inode: &Inode, core: &InodeCore) -> Result<()> {
    let (Some(quota), Some(quotas)) = (&inode.quota, fs.quotas.get()) else {
        return Ok(());
    };
    let ids = OwnerIds::of(core);
    if quota.ids() != ids {
        // They are in memory: the change was prepared.
        let owners = Owners::new(ids, |kind, id| quotas.known_or_new(kind, id));
        quota.move_to(h, owners)?;
    }
    quota.set_bytes(h, bytes_of(core))
}

/// Counts a new inode, whose record is `core`.
///
/// # Errors
/// A stopped journal.
pub(crate) fn begin(h: &mut Handle, inode: &Inode, core: &InodeCore) -> Result<()> {
    let Some(quota) = &inode.quota else {
        return Ok(());
    };
    quota.begin(h)?;
    quota.set_bytes(h, bytes_of(core))
}
