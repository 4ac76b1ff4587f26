//! From inode numbers to inodes in memory: `iget`, and entering new ones.

use std::sync::Arc;

use extant_disk::damage::InodeDamage;
use extant_units::Ino;

use super::record::Asker;
use super::{InodeCore, record};
use crate::state::inode::inode_ref::reference;
use crate::state::inode::{CacheSlot, Inode, InodeCache, InodeRef};
use crate::state::quota::InodeQuota;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

impl Fs {
    /// The inode of a number that comes from a directory entry.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a number that no entry may lead to (reserved, past the last) and for
    /// a damaged inode; [`Error::Stale`] for one that is free or has no link.
    pub(crate) fn iget(self: &Arc<Self>, ino: Ino) -> Result<InodeRef> {
        self.inodes.get(self, ino, Asker::User)
    }

    /// The inode of a number that a user was given, and that may have another use by now.
    ///
    /// # Errors
    /// As [`Fs::iget`]; [`Error::Stale`] as well for one that holds the value of an attribute.
    pub(crate) fn iget_handle(self: &Arc<Self>, ino: Ino) -> Result<InodeRef> {
        self.inodes.get(self, ino, Asker::Handle)
    }

    /// One of the engine's own inodes: journal, orphan file.
    ///
    /// # Errors
    /// As [`Fs::iget`], but reserved numbers are valid.
    pub(crate) fn iget_internal(self: &Arc<Self>, ino: Ino) -> Result<InodeRef> {
        self.inodes.get(self, ino, Asker::Internal)
    }

    /// An inode that holds the value of an attribute.
    ///
    /// # Errors
    /// As [`Fs::iget`], but one with the flag of such inodes is valid.
    pub(crate) fn iget_value(&self, ino: Ino) -> Result<InodeRef> {
        self.inodes.get(self, ino, Asker::Attribute)
    }

    /// An inode that may have lost its last link, to finish what a crash interrupted.
    ///
    /// # Errors
    /// As [`Fs::iget`], but an inode without a link is valid.
    pub(crate) fn iget_orphan(self: &Arc<Self>, ino: Ino) -> Result<InodeRef> {
        self.inodes.get(self, ino, Asker::Orphans)
    }
}

impl InodeCache {
    fn get(&self, fs: &Fs, ino: Ino, asker: Asker) -> Result<InodeRef> {
        record::check_number(fs, ino, asker)?;
        let shard = self.shard(ino);
        let mut state = shard.state.lock();
        loop {
            match state.slot(ino) {
                Some(CacheSlot::Ready(inode)) => {
                    let by_name = matches!(asker, Asker::User | Asker::Handle);
                    if by_name && inode.is_unlinked() {
                        return Err(Error::Stale);
                    }
                    if !by_name || !inode.holds_value() {
                        return reference(inode).ok_or(Error::Stale);
                    }
                    if asker == Asker::Handle {
                        return Err(Error::Stale);
                    }
                    drop(state);
                    let error = Error::corrupt(Location::Inode(ino), InodeDamage::ForeignFlags);
                    fs.fault.report(fs, &error);
                    return Err(error);
                }
                Some(CacheSlot::Busy) => shard.loaded.wait(&mut state),
                None => break,
            }
        }
        state.fill(ino, CacheSlot::Busy);
        drop(state);

        let loaded = record::load(fs, ino, asker);
        let mut state = shard.state.lock();
        shard.loaded.notify_all();
        match loaded {
            Ok(inode) => {
                debug_assert_eq!(inode.ino, ino, "the inode that was asked for");
                fs.stats.inode_loads.bump();
                if let Some(tid) = state.newest_left() {
                    inode.assume_changed_in(tid);
                }
                let inode = Arc::new(inode);
                let first = InodeRef::first(&inode);
                state.fill(ino, CacheSlot::Ready(inode));
                Ok(first)
            }
            Err(error) => {
                state.empty(ino);
                drop(state);
                fs.fault.report(fs, &error);
                Err(error)
            }
        }
    }

    /// A reference to inode `ino`, if it is in memory and has a link.
    pub(crate) fn in_memory(&self, ino: Ino) -> Option<InodeRef> {
        let state = self.shard(ino).state.lock();
        match state.slot(ino) {
            Some(CacheSlot::Ready(inode)) if !inode.is_unlinked() && !inode.holds_value() => {
                reference(inode)
            }
            _ => None,
        }
    }

    /// One of the engine's own inodes; see [`Fs::iget_internal`].
    ///
    /// # Errors
    /// As [`Fs::iget_internal`].
    pub(crate) fn get_internal(&self, fs: &Fs, ino: Ino) -> Result<InodeRef> {
        self.get(fs, ino, Asker::Internal)
    }

    /// Adds an inode that was just allocated, and what it will count in quotas.
    pub(crate) fn insert_new(
        &self,
        fs: &Fs,
        ino: Ino,
        kind: FileKind,
        (core, quota): (InodeCore, Option<Arc<InodeQuota>>),
    ) -> Result<InodeRef> {
        let shard = self.shard(ino);
        let mut state = shard.state.lock();
        loop {
            match state.slot(ino) {
                // Another thread reads the free inode's number; that ends with an error.
                Some(CacheSlot::Busy) => shard.loaded.wait(&mut state),
                Some(CacheSlot::Ready(_)) => {
                    drop(state);
                    let error = Error::corrupt(Location::Inode(ino), InodeDamage::MarkedFree);
                    fs.fault.report(fs, &error);
                    return Err(error);
                }
                None => break,
            }
        }
        let home = self.home_of(ino);
        let inode = Arc::new(Inode::new(home, ino, kind, core, quota));
        let first = InodeRef::first(&inode);
        state.fill(ino, CacheSlot::Ready(inode));
        Ok(first)
    }
}
