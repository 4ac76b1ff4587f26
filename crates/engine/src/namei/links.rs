//! Link counts.

use std::sync::Arc;

use extant_jbd2::Handle;

use crate::inode::{ExclusiveGuards, HeldRecord, InodeCore, InodeFlags, InodeTime};
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::Fs;
use crate::{inode, orphan};

/// The most links an inode may have (`EXT4_LINK_MAX`); directories with an index may have more.
pub(super) const MAX_LINKS: u16 = 65_000;

/// Counts one more subdirectory, whose `..` is a link. An indexed directory with too many to count
/// keeps one link for good.
pub(super) fn add_subdir(core: &mut InodeCore) {
    // Saturates, as the count of a damaged directory may be anything.
    core.links = core.links.saturating_add(1);
    let indexed = core.flags.contains(InodeFlags::INDEX);
    if indexed && (core.links > MAX_LINKS || core.links == 2) {
        core.links = 1;
    }
}

/// Counts one subdirectory less, if they are counted.
pub(super) fn drop_subdir(core: &mut InodeCore) {
    if core.links > 2 {
        core.links -= 1;
    }
}

/// Takes one link off `inode`, all of them if it is a directory, under the handle that removed its
/// name. The last one makes it an orphan. The inode is one of the `locked` ones, and `record` its
/// record.
pub(super) fn drop_link(
    fs: &Fs,
    h: &mut Handle,
    locked: &ExclusiveGuards<'_>,
    (inode, record): (&Arc<Inode>, &HeldRecord),
    now: InodeTime,
) -> Result<()> {
    let left = locked.of(inode).update_held(fs, h, record, |core| {
        inode::changed(core, now);
        core.links = match inode.kind {
            FileKind::Directory => 0,
            // Zero already if the count was damaged: more entries than links.
            _ => core.links.saturating_sub(1),
        };
        core.links
    })?;
    if left == 0 {
        orphan::add(fs, h, inode)?;
    }
    debug_assert_eq!(inode.is_unlinked(), left == 0, "a copy of the count");
    Ok(())
}
