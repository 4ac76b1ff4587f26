//! Entries that come and go, as fast commits tell them.
//!
//! A replay adds and removes entries by itself, so blocks of a directory follow from its entries.
//! Fast commits have names as callers give them, and no replay makes a directory or another inode
//! than a file.

use extant_jbd2::Handle;
use extant_units::Ino;

use crate::inode::InodeFlags;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::Fs;

/// Directories whose entries are not told: the inode holds them, or their names are not as stored.
const UNTOLD: InodeFlags = InodeFlags::INLINE_DATA
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::CASEFOLD);

/// Runs `change` of an entry of `dir`, which the caller notes once it is done.
pub(super) fn change<R>(
    fs: &Fs,
    h: &mut Handle,
    dir: &Inode,
    change: impl FnOnce(&mut Handle) -> Result<R>,
) -> Result<R> {
    match &fs.operations {
        Some(_) if !dir.flags().intersects(UNTOLD) => h.telling(change),
        _ => change(h),
    }
}

/// Notes that `dir` has the new entry `name` to the inode `target`.
pub(super) fn note_added(
    fs: &Fs,
    h: &mut Handle,
    dir: &Inode,
    (name, target): (&[u8], (Ino, FileKind)),
) {
    let Some(operations) = &fs.operations else {
        return;
    };
    match target {
        (ino, FileKind::Regular) => operations.add_entry(h, dir.ino, (ino, name)),
        _ => h.set_untold(),
    }
}

/// Notes that `dir` has lost the entry `name`, which led to `ino`. If that is no file, the change
/// of its links is not told.
pub(super) fn note_removed(fs: &Fs, h: &mut Handle, dir: &Inode, (name, ino): (&[u8], Ino)) {
    if let Some(operations) = &fs.operations {
        operations.remove_entry(h, dir.ino, (ino, name));
    }
}
