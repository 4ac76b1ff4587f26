//! The end of an operation on names: its commit, and its retry when there is no space.

use std::sync::Arc;

use extant_jbd2::Handle;
use extant_units::Tid;

use crate::alloc;
use crate::inode::{Inode, InodeFlags};
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Attempts after "no space", which commits may help.
const MAX_TRIES: u32 = 4;

/// Repeats `operation` while it finds no space and a commit may free some. `operation` returns with
/// no handle and no lock held.
pub(super) fn retry<T>(fs: &Arc<Fs>, mut operation: impl FnMut() -> Result<T>) -> Result<T> {
    let mut attempt = 0;
    loop {
        match operation() {
            Err(Error::NoSpace) if attempt < MAX_TRIES => {
                fs.reap_all();
                // The evictions just done may be enough without a commit: one more attempt in any
                // case.
                if !alloc::commit_frees_space(fs, attempt) && attempt > 0 {
                    return Err(Error::NoSpace);
                }
                attempt += 1;
            }
            result => return result,
        }
    }
}

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

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::test_support::test_mount::TestFs;

    #[test]
    fn an_operation_is_repeated_while_that_may_find_space() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let tries = |error: fn() -> Error| {
            let mut tries = 0;
            let ended = retry::<()>(&fs, || {
                tries += 1;
                Err(error())
            });
            assert_eq!(ended.unwrap_err().errno(), error().errno());
            tries
        };
        // There is space, which other threads may have taken meanwhile: as often as commits help.
        assert_eq!(tries(|| Error::NoSpace), 4);
        // There is none: once more, as evictions may have brought some.
        let all = fs.alloc.counts.available_to_users();
        let mut all = alloc::reserve(&fs, all, false).unwrap();
        let without_space = tries(|| Error::NoSpace);
        all.give_back(all.blocks());
        assert_eq!(without_space, 2);
        assert_eq!(tries(|| Error::Exists), 1);
        let mut refused = 3;
        let done = retry(&fs, || {
            refused -= 1;
            (refused == 0).then_some(7).ok_or(Error::NoSpace)
        });
        assert_eq!((done.unwrap(), refused), (7, 0));
    }
}
