//! Writes that change cached bytes of a file and nothing else: not its map, times or privileges,
//! but that they may make it longer.
//!
//! # Locks
//! The locks of the folios, and the EOF lock for a write that moves the end.

use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_iomap::Payload;

use crate::file::data_path;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::WriteAt;
use crate::state::file::OpenState;
use crate::state::inode::Inode;
use crate::volume::Fs;
use crate::xattr::privileges;

/// Writes `bytes` if there is nothing else to do. Returns their position; `None` otherwise, and
/// nothing has changed then.
#[inline]
pub(in crate::file) fn try_write_folios(
    fs: &Fs,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    at: WriteAt,
    bytes: &(impl Payload + ?Sized),
) -> Option<u64> {
    let cx = FileContext::new(fs, inode);
    let needs_only_copy = || match at {
        WriteAt::Pos(_) | WriteAt::End => {
            !inode.flags().contains(InodeFlags::IMMUTABLE)
                && privileges::is_modification_recorded(inode)
        }
        WriteAt::UpperWriteback(_) => true,
    };
    if inode.is_gone() || !needs_only_copy() {
        return None;
    }
    let recent = &open.unwrap_or(&cx.state.shared).recent;
    // Asked again by an append: a holder of `lock` before the end is locked may have changed
    // attributes.
    data_path::try_write_cached(&cx, recent, at, bytes, needs_only_copy)
}
