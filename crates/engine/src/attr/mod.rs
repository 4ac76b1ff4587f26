//! Attributes as callers see and change them: `stat`, `chmod`, `chown`, `utimes`, `truncate`, and
//! `chattr` (`flags`).
//!
//! The front end checks permissions and ownership. This module checks what an inode's flags forbid,
//! and applies what a change entails (set-id bits, capabilities, ACLs, times), as Linux does.
//!
//! # Locks
//! [`setattr`] takes the inode's `lock` exclusively and starts handles.

mod chattr;
mod encryption_policy;

use std::sync::Arc;

use extant_units::Ino;

pub(crate) use self::chattr::{FlagSet, get_flags, set_flags};
pub(crate) use self::encryption_policy::{get_policy, set_policy};
use crate::file;
use crate::inode;
use crate::inode::InodeCore;
use crate::inode::InodeFlags;
use crate::inode::InodeTime;
use crate::inode::devnum;
use crate::map;
use crate::quota;
use crate::state::inode::Inode;
use crate::state::quota::OwnerIds;
use crate::symlink;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::types::{Attr, FileKind, SetAttr, SetTime};
use crate::volume::credits;
use crate::volume::{Fs, all_or_abort};
use crate::xattr::privileges::{self, CAPABILITY, stripped};
use crate::xattr::{self, acl};

const SGID: u16 = 0o2000;
const PERM: u16 = 0o7777;

/// The inode's attributes, all of one moment (the size of a growing file may be a little newer).
pub(crate) fn getattr(fs: &Fs, inode: &Inode) -> Attr {
    let delayed = if inode.kind == FileKind::Regular {
        map::reserved_blocks(inode)
    } else {
        0
    };
    let per_block = fs.layout.block_size.bytes_u64() / 512;
    let is_encrypted = inode.flags().contains(InodeFlags::ENCRYPT);
    let target_size = match inode.kind {
        FileKind::Symlink if is_encrypted => symlink::target_size(fs, inode).ok(),
        _ => None,
    };
    let core = inode.core.read();
    let stored = stored(fs, inode.ino, inode.kind, &core);
    Attr {
        size: match inode.kind {
            FileKind::Regular => inode.size(),
            _ => target_size.unwrap_or(stored.size),
        },
        blocks: stored
            .blocks
            .saturating_add(delayed.saturating_mul(per_block)),
        ..stored
    }
}

/// The attributes of an inode that `core` says everything of.
pub(crate) fn stored(fs: &Fs, ino: Ino, kind: FileKind, core: &InodeCore) -> Attr {
    let rdev = match kind {
        FileKind::BlockDevice | FileKind::CharDevice => devnum::decode(&core.i_block),
        _ => 0,
    };
    // A file whose data is inside of the inode has some, as programs see that by its blocks.
    let inside = match core.flags.contains(InodeFlags::INLINE_DATA) {
        true if kind == FileKind::Regular => core.disk_size.div_ceil(512),
        _ => 0,
    };
    Attr {
        ino,
        generation: core.generation,
        kind,
        perm: core.perm(),
        nlink: u32::from(core.links),
        uid: core.uid,
        gid: core.gid,
        rdev,
        size: core.disk_size,
        blocks: core.sectors.saturating_add(inside),
        blksize: extant_units::exact_u32(fs.layout.block_size.bytes_u64()),
        atime: core.atime.into(),
        mtime: core.mtime.into(),
        ctime: core.ctime.into(),
        crtime: core.crtime.map(Into::into),
        flags: chattr::visible(core.flags),
    }
}

/// Returns whether only times change, and only to "now": allowed to a writer that does not own the
/// file.
fn is_touch(changes: &SetAttr) -> bool {
    let now = |t: Option<SetTime>| !matches!(t, Some(SetTime::At(_)));
    changes.perm.is_none()
        && changes.uid.is_none()
        && changes.gid.is_none()
        && now(changes.atime)
        && (changes.noted || now(changes.mtime))
}

/// Returns whether the changes clear set-id bits and capabilities.
fn takes_privileges(kind: FileKind, changes: &SetAttr) -> bool {
    let new_owner = changes.uid.is_some() || changes.gid.is_some();
    let taken = new_owner && !changes.keep_priv || changes.kill_priv;
    taken && kind != FileKind::Directory
}

/// Changes attributes: the size first, through the file's own code, then everything else under one
/// handle.
///
/// # Errors
/// [`Error::NotPermitted`] for immutable and append-only inodes, [`Error::IsDir`] and
/// [`Error::Invalid`] for the size of anything but a file, [`Error::NotSupported`] for the
/// permissions of a symbolic link, [`Error::Invalid`] for an id of all ones; and what truncation
/// and the journal report.
pub(crate) fn setattr(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    changes: &SetAttr,
    cred: &Cred,
) -> Result<()> {
    fs.check_writable()?;
    check(inode, changes)?;
    if let Some(size) = changes.size {
        if !changes.keep_priv {
            let _excluded = inode.lock_exclusively();
            privileges::remove_privileges(fs, inode, cred)?;
        }
        file::truncate(fs, inode, size, cred)?;
    }
    if *changes == SetAttr::default() {
        return Ok(());
    }
    let _excluded = inode.lock_exclusively();
    if inode.is_gone() {
        return Err(Error::Stale);
    }
    let _moved = match changes.uid.is_some() || changes.gid.is_some() {
        true => {
            let values = || xattr::count_values_of(fs, inode);
            quota::prepare_owner(fs, inode, (owners_after(inode, changes), values), cred)?
        }
        false => None,
    };
    let strips = takes_privileges(inode.kind, changes);
    let capable = strips && xattr::exists(fs, inode, &CAPABILITY)?;
    let list_len = match changes.perm {
        Some(_) => acl::access_len(fs, inode)?,
        None => None,
    };
    let mut needed = credits::INODE_UPDATE;
    if capable {
        needed = credits::sum([needed, xattr::credits(fs, inode, 0)?]);
    }
    if let Some(len) = list_len {
        needed = credits::sum([needed, xattr::credits(fs, inode, len)?]);
    }
    if needed > fs.journal.max_credits() {
        return Err(Error::NoSpace);
    }
    let mut h = fs.start(needed)?;
    inode.not_plain();
    let at = inode::now();
    all_or_abort(&mut h, |h| {
        // The attributes first: only they may find no space. A privilege that is gone by then stays
        // away.
        if capable {
            xattr::set_stored(fs, h, inode, &CAPABILITY, None, cred)?;
        }
        if list_len.is_some() {
            let mut core = inode.core.read().clone();
            let mode = apply(&mut core, inode.kind, changes, cred, at);
            acl::chmod(fs, h, inode, mode, cred)?;
        }
        inode.update(fs, h, |core| {
            apply(core, inode.kind, changes, cred, at);
        })
    })
}

/// The ids of `inode` once the changes are made.
fn owners_after(inode: &Inode, changes: &SetAttr) -> OwnerIds {
    let core = inode.core.read();
    let uid = changes.uid.unwrap_or(core.uid);
    OwnerIds::new(uid, changes.gid.unwrap_or(core.gid), core.projid)
}

/// Fails if the inode's flags or kind forbid the changes.
fn check(inode: &Inode, changes: &SetAttr) -> Result<()> {
    let flags = inode.flags();
    let touch = is_touch(changes);
    if flags.contains(InodeFlags::IMMUTABLE) || (flags.contains(InodeFlags::APPEND) && !touch) {
        // A front end's own bookkeeping (dropping privileges, its change time) is not a user's
        // request.
        let asked = changes.perm.is_some()
            || changes.uid.is_some()
            || changes.gid.is_some()
            || changes.atime.is_some()
            || (changes.mtime.is_some() && !changes.noted);
        if asked {
            return Err(Error::NotPermitted);
        }
    }
    if changes.size.is_some() {
        inode.check_changeable(false)?;
        match inode.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsDir),
            _ => return Err(Error::Invalid),
        }
    }
    if changes.perm.is_some() && inode.kind == FileKind::Symlink {
        return Err(Error::NotSupported("permissions of a symbolic link"));
    }
    if changes.uid == Some(u32::MAX) || changes.gid == Some(u32::MAX) {
        return Err(Error::Invalid);
    }
    Ok(())
}

/// Applies everything but the size. Returns the new mode.
fn apply(
    core: &mut InodeCore,
    kind: FileKind,
    changes: &SetAttr,
    cred: &Cred,
    at: InodeTime,
) -> u16 {
    let wide = core.has_wide_times();
    if takes_privileges(kind, changes) {
        let new_owner = changes.uid.is_some() || changes.gid.is_some();
        let outsider = new_owner && cred.is_outsider(core.gid);
        core.mode = stripped(core.mode, outsider);
    }
    if let Some(uid) = changes.uid {
        core.uid = uid;
    }
    if let Some(gid) = changes.gid {
        core.gid = gid;
    }
    if let Some(perm) = changes.perm {
        let mut perm = perm & PERM;
        if cred.is_outsider(core.gid) {
            perm &= !SGID;
        }
        core.mode = (core.mode & !PERM) | perm;
    }
    let when = |time: SetTime| match time {
        SetTime::Now => at.clamped(wide),
        SetTime::At(t) => InodeTime::from(t).clamped(wide),
    };
    if let Some(time) = changes.atime {
        core.atime = when(time);
    }
    if let Some(time) = changes.mtime {
        core.mtime = when(time);
    } else if changes.size.is_some() {
        core.mtime = at.clamped(wide);
    }
    inode::changed(core, changes.ctime.map_or(at, Into::into));
    core.mode
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_rig::blank_core;
    use crate::types::Timestamp;

    fn core(mode: u16) -> InodeCore {
        let mut core = blank_core();
        core.mode = mode;
        core.gid = 50;
        core
    }

    fn member() -> Cred {
        Cred {
            uid: 1000,
            gid: 50,
            privileged: false,
            ..Cred::root()
        }
    }

    fn outsider() -> Cred {
        Cred {
            gid: 60,
            ..member()
        }
    }

    fn after(mode: u16, changes: &SetAttr, cred: &Cred) -> InodeCore {
        let kind = FileKind::from_mode(mode).unwrap_or(FileKind::Regular);
        let mut core = core(mode);
        apply(
            &mut core,
            kind,
            changes,
            cred,
            InodeTime { secs: 7, nanos: 8 },
        );
        core
    }

    #[test]
    fn chmod_keeps_the_kind_and_outsiders_lose_setgid() {
        let to = SetAttr {
            perm: Some(0o7777),
            ..SetAttr::default()
        };
        assert_eq!(after(0o100_000, &to, &member()).mode, 0o107_777);
        assert_eq!(after(0o100_000, &to, &outsider()).mode, 0o105_777);
        assert_eq!(after(0o040_000, &to, &outsider()).mode, 0o045_777);
        assert_eq!(after(0o100_000, &to, &Cred::root()).mode, 0o107_777);
    }

    #[test]
    fn chown_takes_set_id_bits_but_not_from_directories() {
        let to = SetAttr {
            uid: Some(9),
            ..SetAttr::default()
        };
        assert_eq!(after(0o106_755, &to, &Cred::root()).mode, 0o100_755);
        assert_eq!(after(0o106_745, &to, &Cred::root()).mode, 0o102_745);
        assert_eq!(after(0o046_755, &to, &Cred::root()).mode, 0o046_755);
        assert_eq!(after(0o106_755, &to, &Cred::root()).uid, 9);
    }

    #[test]
    fn times_are_clamped_and_truncation_is_a_modification() {
        let late = Timestamp {
            secs: i64::MAX,
            nanos: 3,
        };
        let to = SetAttr {
            atime: Some(SetTime::At(late)),
            size: Some(0),
            ..SetAttr::default()
        };
        let core = after(0o100_644, &to, &member());
        assert_eq!(core.atime.secs, InodeTime::MAX_SECS_WIDE);
        assert_eq!((core.mtime.secs, core.ctime.secs), (7, 7));
        assert_eq!(core.version, 1);
    }
}
