//! Views of a file's bytes where they lie in the page cache.
//!
//! A read view is a snapshot that holds no lock; see `iomap`. An edit changes bytes in place: the
//! caller's code runs with the range locked, as for a write, and with one folio locked. Calls of
//! the same file system that this code makes on its thread fail with [`Error::Deadlock`]
//! (`editing`).

use std::sync::Arc;

use extant_disk::inode::InodeFlags;
use extant_iomap::ReadView;
use extant_units::Pos;

use crate::alloc;
use crate::file::file_state_init::require_regular;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{lock_range, round_out_to_blocks};
use crate::file::{data_path, switch_path};
use crate::inode;
use crate::state::file::OpenState;
use crate::state::inode::Inode;
use crate::state::volume::edit_marks;
use crate::types::Cred;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::xattr::privileges;

/// Shows up to `len` bytes from byte `pos` on, fewer where the file ends. Notes the access.
///
/// # Errors
/// As reading.
pub(crate) fn view(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    pos: u64,
    len: usize,
) -> Result<ReadView> {
    fs.fault.check_alive()?;
    require_regular(inode)?;
    let cx = FileContext::new(fs, inode);
    let open = open.unwrap_or(&cx.state.shared);
    let view = data_path::view(&cx, &open.readahead, Pos::new(pos), len);
    let view = view.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))?;
    if len > 0 {
        inode::touch_atime(fs, inode);
    }
    Ok(view)
}

/// Lets `change` alter up to `len` bytes from byte `pos` on in place, piece by piece, each with its
/// position; never past the end of the file. Returns the number of bytes it was shown. Takes
/// privileges away and notes the time, as a write does.
///
/// # Errors
/// As writing, if nothing was shown.
pub(crate) fn edit(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    (pos, len): (u64, usize),
    cred: &Cred,
    mut change: impl FnMut(u64, &mut [u8]),
) -> Result<usize> {
    fs.check_writable()?;
    require_regular(inode)?;
    if inode.flags().contains(InodeFlags::INLINE_DATA) {
        // It is changed in place, in the cache.
        let whole = crate::file::lock_whole_file(fs, inode);
        inode.check_changeable(false)?;
        switch_path::leave_inode(fs, &whole, inode, alloc::may_use_reserve(fs, cred))?;
    }
    let (done, flags) = {
        let end = pos.saturating_add(len as u64);
        let range = round_out_to_blocks(fs.layout.block_size, pos, end);
        let _one_writer = lock_range(fs, inode, range)?;
        let cx = FileContext::new(fs, inode).with_cred(cred);
        if cx
            .flags
            .intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND)
        {
            return Err(Error::NotPermitted);
        }
        data_path::require_changeable(fs, inode, cx.flags)?;
        privileges::file_modified(fs, inode, cred)?;
        let open = open.unwrap_or(&cx.state.shared);
        let mut guarded = |at: Pos, bytes: &mut [u8]| {
            edit_marks::during(&fs.fault, || change(at.get(), bytes));
        };
        let done = data_path::edit(&cx, &open.readahead, Pos::new(pos), len, &mut guarded);
        (done, cx.flags)
    };
    let done = done.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))?;
    debug_assert!(done <= len, "{done} of {len} bytes");
    if fs.options.sync() || flags.contains(InodeFlags::SYNC) {
        crate::file::fsync(fs, inode, None, false)?;
    }
    Ok(done)
}
