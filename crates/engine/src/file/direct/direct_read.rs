//! Direct reads.

use std::sync::Arc;

use extant_iomap::{DeviceFault, DeviceRequest, IomapKind, IomapOps};
use extant_units::{Pos, at_most_usize, index};

use crate::file::direct::clear_cache;
use crate::file::file_state_init::require_regular;
use crate::file::mapping::iomap_ops::FileContext;
use crate::file::range_lock::{lock_range, round_out_to_blocks};
use crate::file::read::{ReadMode, read as read_cached};
use crate::file::{block_span, data_path};
use crate::state::file::OpenState;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;
use crate::{file, inline_data, inode, map};

/// Reads into `buf` from byte `pos`, up to the end of the file, from the device; returns the bytes
/// read. Data that goes through the journal is read through the cache instead. Notes the access.
///
/// # Errors
/// As a buffered read; what kept newer data of the range from being written.
pub(crate) fn read(
    fs: &Arc<Fs>,
    inode: &Arc<Inode>,
    open: Option<&OpenState>,
    pos: u64,
    buf: &mut [u8],
) -> Result<usize> {
    fs.fault.check_alive()?;
    require_regular(inode)?;
    let read = read_range(fs, inode, pos, buf);
    let Some(done) = read.inspect_err(|error| file::latch_if_corrupt(fs, error))? else {
        fs.stats.direct_fallbacks.bump();
        return read_cached(fs, inode, open, ReadMode::Buffered, pos, buf);
    };
    if !buf.is_empty() {
        inode::touch_atime(fs, inode);
    }
    Ok(done)
}

/// [`read`] with the range locked; `None` if it must go through the cache.
fn read_range(fs: &Arc<Fs>, inode: &Arc<Inode>, pos: u64, buf: &mut [u8]) -> Result<Option<usize>> {
    let left = || at_most_usize(inode.size().saturating_sub(pos));
    let want = buf.len().min(left());
    if want == 0 {
        return Ok(Some(0));
    }
    let bs = fs.layout.block_size;
    let end = pos + want as u64;
    let held = lock_range(fs, inode, round_out_to_blocks(bs, pos, end))?;
    let cx = FileContext::new(fs, inode);
    if inline_data::is_inline(inode) {
        return Ok(None);
    }
    data_path::require_data_in_blocks(&cx)?;
    if cx.needs_cache() {
        return Ok(None);
    }
    fs.stats.direct_reads.bump();
    cx.state.direct.announce(&cx.state.address_space);
    // The file may have been cut before the range was locked.
    let buf = &mut buf[..want.min(left())];
    let last = bs.round_up(Pos::new(end)).ok_or(Error::FileTooBig)?;
    clear_cache::write_back_range(&cx, &held, bs.round_down(Pos::new(pos)), last)?;
    let mut done = 0;
    while done < buf.len() {
        let at = Pos::new(pos).plus(done as u64);
        match read_run(&cx, at, &mut buf[done..]) {
            Ok(Some(more)) => done += more,
            Ok(None) if done == 0 => return Ok(None),
            Err(error) if done == 0 => return Err(error),
            // The next call meets the error again.
            Ok(None) | Err(_) => break,
        }
    }
    Ok(Some(done))
}

/// Reads what lies in one run of the map from `at` on. Returns the number of bytes, or `None` if
/// only the cache has them.
fn read_run(cx: &FileContext<'_>, at: Pos, buf: &mut [u8]) -> Result<Option<usize>> {
    let (lblk, count) = block_span(cx.fs, at, buf.len() as u64).ok_or(Error::FileTooBig)?;
    let mapping = cx.to_iomap(&map::lookup(cx.fs, cx.inode, lblk, count)?)?;
    let len = index(mapping.clamp(at, buf.len() as u64));
    let Some(buf) = buf.get_mut(..len).filter(|buf| !buf.is_empty()) else {
        return Ok(None);
    };
    match (&mapping.kind, mapping.device_at(at)) {
        (IomapKind::Hole | IomapKind::Unwritten(_), _) => buf.fill(0),
        (IomapKind::Mapped(_), Some(from)) => {
            let read = cx.device().read_at(from, buf);
            read.map_err(|source| DeviceFault {
                request: DeviceRequest::Read,
                at: from,
                len: len as u64,
                source,
            })?;
        }
        _ => return Ok(None),
    }
    Ok(Some(len))
}
