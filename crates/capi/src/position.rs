//! Calls at the position of an open file: read, write, their vectored forms, and lseek.
//!
//! # Concurrency
//! A call holds the position from its begin to its end, so calls of several threads follow one
//! another, as those on one open file description of Linux do.

use std::ffi::{c_int, c_void};

use extant::SeekTarget;
use libc::iovec;

use crate::arguments;
use crate::file::{OpenFile, position};
use crate::outcome::{Failure, Result, bytes, on};

/// Moves a position past `count` bytes: no file reaches past 2^63 bytes.
fn advance(pos: &mut u64, count: usize) {
    *pos += count as u64;
}

/// Reads from the file's position, and moves it.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_read(
    file: Option<&OpenFile>,
    buf: *mut c_void,
    len: usize,
) -> isize {
    on(file, |file| {
        // SAFETY: null or `len` bytes, by the contract of this crate.
        let buf = unsafe { arguments::buffer(buf, len) }?;
        let mut pos = file.pos.lock();
        let count = file.file.read_at(buf, *pos)?;
        advance(&mut pos, count);
        bytes(count)
    })
}

/// Writes at the file's position, or at the end of a file that was opened with `O_APPEND`, and
/// moves the position behind it.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_write(
    file: Option<&OpenFile>,
    buf: *const c_void,
    len: usize,
) -> isize {
    on(file, |file| {
        // SAFETY: null or `len` bytes, by the contract of this crate.
        let data = unsafe { arguments::data(buf, len) }?;
        let mut pos = file.pos.lock();
        let count = if file.appends {
            let (at, count) = file.file.append(data)?;
            *pos = at;
            count
        } else {
            file.file.write_at(data, *pos)?
        };
        advance(&mut pos, count);
        bytes(count)
    })
}

/// As `extant_read`, into several buffers.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_readv(
    file: Option<&OpenFile>,
    vectors: *const iovec,
    count: c_int,
) -> isize {
    on(file, |file| {
        // SAFETY: null or `count` vectors, by the contract of this crate.
        let mut bufs = unsafe { arguments::buffer_vectors(vectors, count) }?;
        let mut pos = file.pos.lock();
        let count = file.file.read_vectored_at(&mut bufs, *pos)?;
        advance(&mut pos, count);
        bytes(count)
    })
}

/// As `extant_write`, from several buffers.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_writev(
    file: Option<&OpenFile>,
    vectors: *const iovec,
    count: c_int,
) -> isize {
    on(file, |file| {
        // SAFETY: null or `count` vectors, by the contract of this crate.
        let bufs = unsafe { arguments::data_vectors(vectors, count) }?;
        let mut pos = file.pos.lock();
        let count = if file.appends {
            let (at, count) = file.file.append_vectored(&bufs)?;
            *pos = at;
            count
        } else {
            file.file.write_vectored_at(&bufs, *pos)?
        };
        advance(&mut pos, count);
        bytes(count)
    })
}

/// Moves the file's position, as lseek(2) with `SEEK_DATA` and `SEEK_HOLE`; returns the new one.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_lseek(file: Option<&OpenFile>, offset: i64, whence: c_int) -> i64 {
    on(file, |file| {
        let mut pos = file.pos.lock();
        let to = match whence {
            libc::SEEK_SET => position(offset)?,
            libc::SEEK_CUR => moved(*pos, offset)?,
            libc::SEEK_END => moved(file.file.metadata()?.len(), offset)?,
            libc::SEEK_DATA => file.file.find(SeekTarget::Data(position(offset)?))?,
            libc::SEEK_HOLE => file.file.find(SeekTarget::Hole(position(offset)?))?,
            _ => {
                return Err(Failure::invalid(format!(
                    "lseek: whence {whence}: not known"
                )));
            }
        };
        let told = i64::try_from(to).map_err(|_| Failure::invalid("a position past 2^63"))?;
        *pos = to;
        Ok(told)
    })
}

/// The position `by` bytes from `from`.
fn moved(from: u64, by: i64) -> Result<u64> {
    let to = from.checked_add_signed(by);
    to.ok_or_else(|| Failure::invalid("a position before the file"))
}
