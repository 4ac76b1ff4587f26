//! The chattr flags: which ones users see, and which ones they may change.
//!
//! There are two views of the same bits. `FS_IOC_GETFLAGS`/`SETFLAGS` speaks `i_flags` itself;
//! `FS_IOC_FSGETXATTR`/`FSSETXATTR` a common set of other numbers, and the project id.

use std::sync::Arc;

use extant_disk::features::{Incompat, RoCompat};

use crate::crypt::{self, find_key};
use crate::inode::kind_flags::of_kind;
use crate::inode::{InodeCore, InodeFlags, LockedInode};
use crate::quota;
use crate::state::inode::Inode;
use crate::state::quota::{MovedUsage, OwnerIds, Owners};
use crate::types::error::{Error, Result};
use crate::types::{Cred, FileKind};
use crate::volume::{Fs, credits};
use crate::{dir, file, inode, xattr};

/// Flags that `FS_IOC_GETFLAGS` shows: all but those internal to the format.
const VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x725b_dfff);
/// Flags that a user may change. Others keep their value whatever is asked. `JOURNAL_DATA` and
/// `EXTENTS` are handled apart.
const CHANGEABLE: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);
/// The flags in the numbers of `FS_IOC_GETFLAGS` (`FS_*_FL`).
pub(crate) fn get_flags(inode: &Inode) -> u32 {
    visible(inode.flags())
}

/// Those of `flags` that callers see.
pub(super) fn visible(flags: InodeFlags) -> u32 {
    (flags & VISIBLE).bits()
}

/// Sets the flags (`FS_IOC_SETFLAGS`). Visible flags that cannot be changed keep their value, as
/// callers pass back what they read.
///
/// # Errors
/// [`Error::NotSupported`] for flags that do not exist, that the kind of inode cannot have, and for
/// a change of the mapping format other than [from a block map to
/// extents](file::convert_to_extents). [`Error::NotPermitted`] for the immutable, append-only and
/// journalled-data flags without privilege, and for any other change of an inode that is and stays
/// immutable. [`Error::NotEmpty`] if a directory that has names is to fold their case, or not to.
pub(crate) fn set_flags(fs: &Fs, inode: &Arc<Inode>, flags: u32, cred: &Cred) -> Result<()> {
    fs.check_writable()?;
    let asked = InodeFlags::from_bits_retain(flags);
    let mapped = matches!(inode.kind, FileKind::Regular | FileKind::Directory);
    if mapped && (asked - inode.flags()).contains(InodeFlags::EXTENTS) {
        // What is refused leaves the map as it is.
        decide(inode.flags() | InodeFlags::EXTENTS, asked, inode.kind, cred)?;
        file::convert_to_extents(fs, inode)?;
    }
    let switches = |old: InodeFlags, new: InodeFlags| {
        inode.kind == FileKind::Regular && (old ^ new).contains(InodeFlags::JOURNAL_DATA)
    };
    // Writes end before a file becomes immutable or switches its data mode.
    let fixed = (asked - inode.flags()).contains(InodeFlags::IMMUTABLE);
    let waits = switches(inode.flags(), asked) || (fixed && inode.kind == FileKind::Regular);
    let whole = waits.then(|| file::lock_whole_file(fs, inode));
    let lock = whole.is_none().then(|| inode.lock_exclusively());
    let old = inode.flags();
    let new = decide(old, asked, inode.kind, cred)?;
    if let Some(lock) = &lock
        && inode.kind == FileKind::Directory
        && (old ^ new).contains(InodeFlags::CASEFOLD)
    {
        may_switch_folding(fs, lock.inode().shared())?;
    }
    match whole {
        Some(whole) if switches(old, new) => {
            let on = new.contains(InodeFlags::JOURNAL_DATA);
            file::set_journalled(fs, &whole, inode, on, || store(fs, inode, old, new))
        }
        None if switches(old, new) => {
            // Another thread switched the data mode before this one had the lock.
            drop(lock);
            set_flags(fs, inode, flags, cred)
        }
        _ => store(fs, inode, old, new),
    }
}

/// The flags after the change.
fn decide(old: InodeFlags, asked: InodeFlags, kind: FileKind, cred: &Cred) -> Result<InodeFlags> {
    let protected = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if !(asked - VISIBLE).is_empty() {
        return Err(Error::NotSupported("unknown inode flags"));
    }
    let differs = old ^ asked;
    if differs.intersects(protected) && !cred.privileged {
        return Err(Error::NotPermitted);
    }
    if differs.contains(InodeFlags::JOURNAL_DATA) && !cred.privileged {
        return Err(Error::NotPermitted);
    }
    if differs.contains(InodeFlags::EXTENTS) {
        return Err(Error::NotSupported(
            "conversion between extents and block maps",
        ));
    }
    let wanted = asked & (CHANGEABLE | InodeFlags::JOURNAL_DATA);
    if of_kind(wanted, kind) != wanted {
        return Err(Error::NotSupported("flags of another kind of inode"));
    }
    let new = (old - CHANGEABLE - InodeFlags::JOURNAL_DATA) | wanted;
    let stays_immutable =
        old.contains(InodeFlags::IMMUTABLE) && new.contains(InodeFlags::IMMUTABLE);
    if stays_immutable && new != old {
        return Err(Error::NotPermitted);
    }
    Ok(new)
}

/// Fails unless `dir` may begin or end to fold the case of its names.
fn may_switch_folding(fs: &Fs, dir: LockedInode<'_>) -> Result<()> {
    if !fs.layout.features.has_incompat(Incompat::CASEFOLD) {
        return Err(Error::NotSupported(
            "folded names without the casefold feature",
        ));
    }
    if !dir::is_empty(fs, dir)? {
        return Err(Error::NotEmpty);
    }
    if !dir.flags().contains(InodeFlags::ENCRYPT) {
        return Ok(());
    }
    if !dir.flags().contains(InodeFlags::CASEFOLD) {
        let key = crypt::require_key(fs, &dir)?;
        if !find_key::may_fold(&key.context.policy) {
            return Err(Error::Invalid);
        }
    }
    dir::may_switch_hashes(fs, dir)
}

fn store(fs: &Fs, inode: &Inode, old: InodeFlags, new: InodeFlags) -> Result<()> {
    debug_assert!(
        ((old ^ new) - CHANGEABLE - InodeFlags::JOURNAL_DATA).is_empty(),
        "{old:?} become {new:?}"
    );
    store_with(fs, inode, (old, new), |_| ())
}

/// Stores the decided flags, and what `change` changes beside.
fn store_with(
    fs: &Fs,
    inode: &Inode,
    (old, new): (InodeFlags, InodeFlags),
    change: impl FnOnce(&mut InodeCore),
) -> Result<()> {
    let mut h = fs.start(credits::INODE_UPDATE)?;
    inode.update(fs, &mut h, |core| {
        change(core);
        // Only the decided bits: the engine owns the others and may have changed them meanwhile.
        core.flags = (core.flags - (old - new)) | (new - old);
        inode::changed(core, inode::now());
    })
}

/// The attributes of `FS_IOC_FSGETXATTR`: flags in its numbers (`FS_XFLAG_*`) and the project id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct FlagSet {
    /// `fsx_xflags`.
    pub(crate) xflags: u32,
    /// `fsx_projid`.
    pub(crate) project: u32,
}

/// Flags that both views have, with their number in the second.
const COMMON: [(InodeFlags, u32); 7] = [
    (InodeFlags::IMMUTABLE, 0x8),
    (InodeFlags::APPEND, 0x10),
    (InodeFlags::SYNC, 0x20),
    (InodeFlags::NOATIME, 0x40),
    (InodeFlags::NODUMP, 0x80),
    (InodeFlags::PROJINHERIT, 0x200),
    (InodeFlags::DAX, 0x8000),
];

impl FlagSet {
    /// The inode's.
    pub(crate) fn get(inode: &Inode) -> Self {
        let core = inode.core.read();
        Self {
            xflags: COMMON
                .iter()
                .filter(|(flag, _)| core.flags.contains(*flag))
                .fold(0, |all, (_, bit)| all | bit),
            project: core.projid,
        }
    }

    /// Sets the inode's attributes (`FS_IOC_FSSETXATTR`). Flags that this view does not have keep
    /// their value.
    ///
    /// # Errors
    /// As [`set_flags`]; [`Error::NotSupported`] also for a project id without the `project`
    /// feature, or in an inode without room for one; [`Error::Invalid`] for the id of all ones;
    /// [`Error::OverQuota`].
    pub(crate) fn set(&self, fs: &Fs, inode: &Inode, cred: &Cred) -> Result<()> {
        fs.check_writable()?;
        let known = COMMON.iter().fold(0, |all, (_, bit)| all | bit);
        if self.xflags & !known != 0 {
            return Err(Error::NotSupported("unknown inode flags"));
        }
        // Writes end before a file becomes immutable.
        let _whole = file::lock_whole_file(fs, inode);
        let (old, project) = {
            let core = inode.core.read();
            (core.flags, core.projid)
        };
        if self.project != project && !fs.layout.features.has_ro_compat(RoCompat::PROJECT) {
            return Err(Error::NotSupported(
                "project ids without the project feature",
            ));
        }
        let mut asked = old & VISIBLE;
        for (flag, bit) in COMMON {
            asked.set(flag, self.xflags & bit != 0);
        }
        let new = decide(old, asked, inode.kind, cred)?;
        if self.project == project {
            return store(fs, inode, old, new);
        }
        if new.contains(InodeFlags::IMMUTABLE) && old.contains(InodeFlags::IMMUTABLE) {
            return Err(Error::NotPermitted);
        }
        let _moved = self.prepare_project(fs, inode, cred)?;
        store_with(fs, inode, (old, new), |core| core.projid = self.project)
    }

    /// Makes sure that `inode` can have the project.
    fn prepare_project(
        &self,
        fs: &Fs,
        inode: &Inode,
        cred: &Cred,
    ) -> Result<Option<(Owners, MovedUsage)>> {
        let (uid, gid, has_room) = {
            let core = inode.core.read();
            (core.uid, core.gid, core.has_project())
        };
        if !has_room {
            return Err(Error::NotSupported(
                "project ids in inodes without room for them",
            ));
        }
        if self.project == u32::MAX {
            return Err(Error::Invalid);
        }
        let ids = OwnerIds::new(uid, gid, self.project);
        let values = || xattr::count_values_of(fs, inode);
        quota::prepare_owner(fs, inode, (ids, values), cred)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user() -> Cred {
        Cred {
            uid: 5,
            privileged: false,
            ..Cred::root()
        }
    }

    const FILE: InodeFlags = InodeFlags::EXTENTS;

    #[test]
    fn the_masks_are_the_documented_ones() {
        let all = CHANGEABLE | InodeFlags::JOURNAL_DATA | InodeFlags::EXTENTS;
        let documented = 0x604b_c0ff;
        assert_eq!(
            all.bits() | InodeFlags::EOFBLOCKS.bits(),
            documented,
            "all but an obsolete one"
        );
        assert_eq!(VISIBLE.bits() & !InodeFlags::DAX.bits(), 0x705b_dfff);
    }

    #[test]
    fn what_is_handed_back_is_accepted() {
        let old = FILE | InodeFlags::INDEX | InodeFlags::HUGE_FILE | InodeFlags::NODUMP;
        assert_eq!(
            decide(old, old & VISIBLE, FileKind::Directory, &user()).ok(),
            Some(old)
        );
        let more = (old & VISIBLE) | InodeFlags::NOATIME;
        assert_eq!(
            decide(old, more, FileKind::Directory, &user()).ok(),
            Some(old | InodeFlags::NOATIME)
        );
    }

    #[test]
    fn protected_flags_need_privilege() {
        let decided = |old, asked, cred: &Cred| {
            decide(old, asked, FileKind::Regular, cred).map_err(|e| e.errno())
        };
        let fixed = FILE | InodeFlags::IMMUTABLE;
        assert_eq!(decided(FILE, fixed, &user()), Err(1));
        assert_eq!(decided(FILE, fixed, &Cred::root()), Ok(fixed));
        assert_eq!(decided(fixed, FILE, &Cred::root()), Ok(FILE));
        let and_more = fixed | InodeFlags::NODUMP;
        assert_eq!(decided(fixed, and_more, &Cred::root()), Err(1));
        assert_eq!(decided(FILE, and_more, &Cred::root()), Ok(and_more));
    }

    #[test]
    fn what_is_not_there_is_refused() {
        for asked in [
            InodeFlags::empty(),
            FILE | InodeFlags::EA_INODE,
            FILE | InodeFlags::DIRSYNC,
        ] {
            let error = decide(FILE, asked, FileKind::Regular, &Cred::root());
            assert_eq!(error.map_err(|e| e.errno()), Err(95), "{asked:?}");
        }
    }
}
