//! The end of an operation on names: its commit.

use extant_jbd2::Handle;
use extant_units::Tid;

use crate::inode::InodeFlags;
use crate::state::inode::Inode;
use crate::types::error::Result;
use crate::volume::Fs;

/// The commit that an operation owes after it has released its locks.
#[must_use]
pub(super) struct PendingCommit(Option<Tid>);

impl PendingCommit {
    /// Ends the handle of a change to these directories.
    pub(super) fn end(fs: &Fs, mut h: Handle, dirs: &[&Inode]) -> Self {
        let sync = InodeFlags::DIRSYNC | InodeFlags::SYNC;
        if !fs.options.dirsync() && !dirs.iter().any(|dir| dir.flags().intersects(sync)) {
            return Self(None);
        }
        h.set_sync();
        Self(Some(h.tid()))
    }

    /// Nothing was changed.
    pub(super) const fn nothing() -> Self {
        Self(None)
    }

    /// Waits for the commit, if the directory asks for it.
    pub(super) fn commit_and_wait(self, fs: &Fs) -> Result<()> {
        match self.0 {
            Some(tid) => fs.commit(tid),
            None => Ok(()),
        }
    }
}
