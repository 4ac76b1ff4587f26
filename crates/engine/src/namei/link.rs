//! Hard links.

use extant_sync::atomic::Ordering;
use std::sync::Arc;

use super::links::MAX_LINKS;
use super::name_checks::{check_name, is_dot, may_create};
use super::{ancestry, known_names};
use crate::inode::InodeFlags;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::types::{Cred, FileKind};
use crate::volume::{Fs, PendingCommit, all_or_abort, credits};
use crate::{alloc, crypt, dir, inode, orphan};

/// Gives `inode` the name `name` in `dir`. A file from [`super::tmpfile`] stops being an orphan.
///
/// # Errors
/// As [`super::create()`]; [`Error::NotPermitted`] for directories and for immutable or append-only
/// inodes, [`Error::TooManyLinks`], [`Error::NotFound`] for an inode that lost its last link,
/// [`Error::CrossDevice`] into a directory whose children inherit another project, or are encrypted
/// by another policy; [`Error::NoKey`].
pub(crate) fn link(
    fs: &Arc<Fs>,
    inode: &Inode,
    dir: &Inode,
    name: &[u8],
    cred: &Cred,
) -> Result<()> {
    check_name(name)?;
    if is_dot(name) {
        return Err(Error::Exists);
    }
    let pending = alloc::retry_unlocked(fs, || {
        let guards = inode::lock_all(&[dir, inode]);
        let locked = guards.of(dir);
        // Before the search: see `create.rs`.
        let names = crypt::require_names(fs, dir);
        let vacancy = known_names::find_vacancy(fs, locked, name)?.ok_or(Error::Exists)?;
        may_create(locked.shared())?;
        let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
        if inode.kind == FileKind::Directory || inode.flags().intersects(fixed) {
            return Err(Error::NotPermitted);
        }
        ancestry::check_project(dir, inode)?;
        names?;
        crypt::may_enter(fs, dir, inode)?;
        let unnamed = {
            let links = inode.core.read().links;
            if links == 0 && !inode.linkable.load(Ordering::Acquire) {
                return Err(Error::NotFound);
            }
            if links >= MAX_LINKS {
                return Err(Error::TooManyLinks);
            }
            links == 0
        };
        let (record, dir_record) = (inode.hold_record(fs)?, dir.hold_record(fs)?);
        let inodes = 2 * credits::INODE_UPDATE + credits::ORPHAN;
        let mut h = fs.start(credits::sum([credits::dir_insert(fs), inodes]))?;
        all_or_abort(&mut h, |h| {
            let to = (inode.ino, inode.kind);
            dir::insert(fs, h, &vacancy, to, cred.privileged)?;
            known_names::enter(fs, locked.shared(), name, inode);
            let now = inode::now();
            inode.update_held(fs, h, &record, |core| {
                debug_assert!(core.links < MAX_LINKS, "checked under the lock");
                core.links += 1;
                inode::changed(core, now);
            })?;
            if unnamed {
                orphan::remove(fs, h, inode)?;
                // From now on it has no link only if its last one was taken.
                inode.linkable.store(false, Ordering::Release);
            }
            dir.update_with_entry(fs, h, &dir_record, |core| inode::modified(core, now))
        })?;
        Ok(PendingCommit::end(fs, h, &[dir]))
    })?;
    pending.commit_and_wait(fs)
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::namei::{tmpfile, unlink};
    use crate::test_support::test_mount::TestFs;

    /// A file that was made without a name gets one, and is gone as any other once it is removed.
    #[test]
    fn a_removed_name_does_not_come_back() {
        let image = Image::of_mib(8).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let (root, cred) = (fs.root(), Cred::root());
        let file = tmpfile(&fs, &root, 0o644, &cred).unwrap();
        link(&fs, &file, &root, b"first", &cred).unwrap();
        link(&fs, &file, &root, b"second", &cred).unwrap();
        unlink(&fs, &root, b"first").unwrap();
        unlink(&fs, &root, b"second").unwrap();
        let again = link(&fs, &file, &root, b"third", &cred);
        assert!(matches!(again, Err(Error::NotFound)), "{again:?}");
        drop((file, root));
        fs.unmount();
        image.fsck_clean().unwrap();
    }
}
