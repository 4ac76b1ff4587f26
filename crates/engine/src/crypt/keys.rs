//! Master keys: added, removed, asked for.

use std::sync::Arc;

use extant_crypt::{KeyId, MasterKey};
use extant_disk::features::Incompat;

use crate::state::crypt::MasterState;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::types::{FileKind, KeyStatus};
use crate::volume::Fs;

/// Adds a master key under `id`. From now on files whose policy names it can be used. A key that is
/// there already stays.
///
/// # Errors
/// [`Error::NotSupported`] on a volume without the feature.
pub(crate) fn add(fs: &Fs, id: KeyId, key: MasterKey) -> Result<()> {
    if !fs.layout.features.has_incompat(Incompat::ENCRYPT) {
        return Err(Error::NotSupported(
            "encryption without the encrypt feature",
        ));
    }
    fs.keys.add(id, key);
    Ok(())
}

/// Removes a master key, and what was derived from it, but from regular files in use: those keep
/// their keys until their last reference goes. The caller has written what is dirty, and holds no
/// lock.
///
/// # Errors
/// [`Error::NoKey`] if it is not there, and no file in use has one of it.
pub(crate) fn remove(fs: &Fs, id: &KeyId) -> Result<KeyStatus> {
    fs.keys.wipe(id);
    if fs.keys.state(id) == MasterState::Absent {
        return Err(Error::NoKey);
    }
    for inode in fs.inodes.all() {
        if inode.key.is_of(id) {
            drop_key(&inode);
        }
    }
    let of_it = |inode: &Inode| inode.key.is_of(id);
    drop(fs.inodes.evict_unused(of_it));
    Ok(status(fs, id))
}

/// Takes the key away from an inode whose memory does not depend on it.
fn drop_key(inode: &Arc<Inode>) {
    match inode.kind {
        FileKind::Regular => {}
        FileKind::Directory => {
            let _no_operation = inode.lock_exclusively();
            inode.key.clear();
        }
        _ => inode.key.clear(),
    }
}

/// The state of a master key.
pub(crate) fn status(fs: &Fs, id: &KeyId) -> KeyStatus {
    match fs.keys.state(id) {
        MasterState::Absent => KeyStatus::Absent,
        MasterState::Present => KeyStatus::Present,
        MasterState::Removed if fs.inodes.all().iter().any(|inode| inode.key.is_of(id)) => {
            KeyStatus::PartlyRemoved
        }
        MasterState::Removed => {
            fs.keys.forget(id);
            KeyStatus::Absent
        }
    }
}
