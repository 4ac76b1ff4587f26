//! Reading from files, and looking for data in them.

pub(in crate::file) mod view;

use std::io::IoSliceMut;
use std::sync::Arc;

use extant_iomap::{Miss, Scatter, Target};
use extant_units::Pos;

use crate::file::Whence;
use crate::file::data_path;
use crate::file::file_state_init::require_regular;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::verity;
use crate::inline_data;
use crate::inode;
use crate::state::file::OpenState;
use crate::state::inode::Inode;

use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Use of the page cache by a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ReadMode {
    /// The bytes stay cached, and more are read ahead: the caller may read them again.
    Buffered,
    /// Nothing is added to the cache: the caller, such as a kernel above a mount, has its own.
    Uncached,
}

/// Reads into `buf` from byte `pos`, up to the end of the file; returns the bytes read. `open` is
/// the reader's own state, if it has one. Notes the access.
///
/// # Errors
/// [`Error::Io`] if the device fails before anything was read; damage in the map; a shut down file
/// system; a kind that holds no data.
pub(crate) fn read(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    mode: ReadMode,
    pos: u64,
    buf: &mut [u8],
) -> Result<usize> {
    read_into(fs, inode, open, mode, pos, buf)
}

/// The number of bytes that a read of `len` bytes from `pos` on finds, if all of them are zeros
/// that take no space and are not cached: a read without a buffer. Zero if they are not, or there
/// are none. Notes the access in the first case.
///
/// # Errors
/// As [`read()`].
pub(crate) fn read_hole(fs: &Arc<Fs>, inode: &Arc<Inode>, pos: u64, len: usize) -> Result<usize> {
    fs.fault.check_alive()?;
    require_regular(inode)?;
    let cx = FileContext::new(fs, inode);
    let found = data_path::hole_at(&cx, Pos::new(pos), len);
    let found = found.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))?;
    if found > 0 {
        inode::touch_atime(fs, inode);
    }
    Ok(found)
}

/// [`read()`] into several buffers, one after the other, as one read.
///
/// # Errors
/// As [`read()`].
pub(crate) fn read_vectored(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    mode: ReadMode,
    pos: u64,
    bufs: &mut [IoSliceMut<'_>],
) -> Result<usize> {
    read_into(fs, inode, open, mode, pos, &mut Scatter::new(bufs))
}

#[inline]
fn read_into(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    mode: ReadMode,
    pos: u64,
    buf: &mut (impl Target + ?Sized),
) -> Result<usize> {
    fs.fault.check_alive()?;
    require_regular(inode)?;
    let cx = FileContext::new(fs, inode);
    let open = open.unwrap_or(&cx.state.shared);
    let on_miss = match mode {
        ReadMode::Buffered => Miss::Fill(&open.readahead),
        ReadMode::Uncached => Miss::Bypass(&open.readahead),
    };
    let done = data_path::read(&cx, &open.recent, on_miss, Pos::new(pos), buf);
    let done = done.inspect_err(|error| crate::file::latch_if_corrupt(fs, error))?;
    debug_assert!(done <= buf.len(), "{done} of {} bytes", buf.len());
    if !buf.is_empty() {
        inode::touch_atime(fs, inode);
    }
    Ok(done)
}

/// The next data or hole at or after byte `pos`; the end of the file counts as a hole. Takes the
/// inode's `lock`: operations that move data within the file hold it exclusively, so that a search,
/// which asks for one mapping after the other, does not miss what moves past it.
///
/// # Errors
/// [`Error::NoSuchAddress`] at or past the end, or if no data follows.
pub(crate) fn seek(fs: &Arc<Fs>, inode: &Arc<Inode>, whence: Whence, pos: u64) -> Result<u64> {
    fs.fault.check_alive()?;
    require_regular(inode)?;
    let _shared = inode.lock_shared();
    // A hole of a file that fs-verity protects is verified as it is read.
    if inline_data::is_inline(inode) || verity::is_protected(inode.flags()) {
        let size = inode.size();
        return match whence {
            _ if pos >= size => Err(Error::NoSuchAddress),
            Whence::Data => Ok(pos),
            Whence::Hole => Ok(size),
        };
    }
    let cx = FileContext::new(fs, inode);
    let found = extant_iomap::seek(&cx, whence, Pos::new(pos))?;
    found.map(Pos::get).ok_or(Error::NoSuchAddress)
}
