//! C's arguments as Rust's: strings, buffers, vectors and places for results, each checked.
//!
//! # Errors
//! `-EFAULT` for a null pointer, `-ENAMETOOLONG` for a string without an end in its bounds,
//! `-EINVAL` for a length that no object has.

use std::ffi::{OsStr, c_char, c_int, c_void};
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::slice;

use libc::iovec;

use crate::outcome::{Failure, Result};

/// The longest string: a path of Linux without its NUL.
const MAX_TEXT: usize = 4095;
/// The most buffers of one vectored call: `IOV_MAX` of Linux.
const MAX_VECTORS: usize = 1024;
/// The most bytes of one call: Linux's limit, all whole pages of a signed 32-bit count.
const MAX_BYTES: usize = 0x7FFF_F000;

/// A place for a result that C gives: null, or memory with any content.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// The place, which must be there.
pub(crate) fn slot<'a, T>(out: Out<'a, T>) -> Result<&'a mut MaybeUninit<T>> {
    out.ok_or_else(|| Failure::null("the result"))
}

/// The bytes of a string.
///
/// # Safety
/// `text` is null, or points to a string that ends with NUL.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a [u8]> {
    if text.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: the string has a NUL, and nothing behind it is read.
    let len = unsafe { libc::strnlen(text, MAX_TEXT + 1) };
    if len > MAX_TEXT {
        let why = format!("{what}: longer than {MAX_TEXT} bytes");
        return Err(Failure::new(libc::ENAMETOOLONG, why));
    }
    // SAFETY: strnlen has read these bytes.
    Ok(unsafe { slice::from_raw_parts(text.cast(), len) })
}

/// A path.
///
/// # Safety
/// As of [`text`].
pub(crate) unsafe fn path<'a>(path: *const c_char) -> Result<&'a Path> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { text(path, "the path") }?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// A string that may be absent, in UTF-8.
///
/// # Safety
/// As of [`text`].
pub(crate) unsafe fn optional<'a>(words: *const c_char, what: &str) -> Result<&'a str> {
    if words.is_null() {
        return Ok("");
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { text(words, what) }?;
    std::str::from_utf8(bytes).map_err(|_| Failure::invalid(format!("{what}: not UTF-8")))
}

/// Refuses a length that no object has.
fn check_len(len: usize, what: &str) -> Result<()> {
    match isize::try_from(len) {
        Ok(_) => Ok(()),
        Err(_) => Err(Failure::invalid(format!(
            "{what}: {len} bytes, more than SSIZE_MAX"
        ))),
    }
}

/// Bytes that C shows: all of them.
///
/// # Safety
/// `ptr` is null, or points to `len` bytes.
pub(crate) unsafe fn bytes<'a>(ptr: *const c_void, len: usize, what: &str) -> Result<&'a [u8]> {
    check_len(len, what)?;
    if len == 0 {
        return Ok(&[]);
    }
    if ptr.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: `ptr` is not null, and the caller promises `len` bytes, which fit an object.
    Ok(unsafe { slice::from_raw_parts(ptr.cast(), len) })
}

/// Bytes that C gives to be filled: all of them.
///
/// # Safety
/// `ptr` is null, or points to `len` bytes that nothing else uses.
pub(crate) unsafe fn bytes_mut<'a>(
    ptr: *mut c_void,
    len: usize,
    what: &str,
) -> Result<&'a mut [u8]> {
    check_len(len, what)?;
    if len == 0 {
        return Ok(&mut []);
    }
    if ptr.is_null() {
        return Err(Failure::null(what));
    }
    // SAFETY: `ptr` is not null, and the caller promises `len` bytes, which fit an object.
    Ok(unsafe { slice::from_raw_parts_mut(ptr.cast(), len) })
}

/// The data of a write: as read(2) and write(2), one call moves [`MAX_BYTES`] at most.
///
/// # Safety
/// As of [`bytes`].
pub(crate) unsafe fn data<'a>(ptr: *const c_void, len: usize) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise.
    let all = unsafe { bytes(ptr, len, "the data") }?;
    Ok(&all[..len.min(MAX_BYTES)])
}

/// The buffer of a read, cut as [`data`].
///
/// # Safety
/// As of [`bytes_mut`].
pub(crate) unsafe fn buffer<'a>(ptr: *mut c_void, len: usize) -> Result<&'a mut [u8]> {
    // SAFETY: the caller's promise.
    let all = unsafe { bytes_mut(ptr, len, "the buffer") }?;
    Ok(&mut all[..len.min(MAX_BYTES)])
}

/// The elements of an array of C's.
///
/// # Safety
/// `array` is null, or points to `count` elements.
pub(crate) unsafe fn array<'a, T>(array: *const T, count: usize, what: &str) -> Result<&'a [T]> {
    check_len(count.saturating_mul(size_of::<T>()), what)?;
    if count == 0 {
        return Ok(&[]);
    }
    if array.is_null() {
        return Err(Failure::null(what));
    }
    if !array.is_aligned() {
        return Err(Failure::invalid(format!("{what}: not aligned")));
    }
    // SAFETY: `array` is aligned and not null, and the caller promises `count` elements.
    Ok(unsafe { slice::from_raw_parts(array, count) })
}

/// Places for the elements of an array, with any content.
///
/// # Safety
/// `array` is null, or points to memory for `count` elements that nothing else uses.
pub(crate) unsafe fn places<'a, T>(
    array: *mut T,
    count: usize,
    what: &str,
) -> Result<&'a mut [MaybeUninit<T>]> {
    check_len(count.saturating_mul(size_of::<T>()), what)?;
    if count == 0 {
        return Ok(&mut []);
    }
    if array.is_null() {
        return Err(Failure::null(what));
    }
    if !array.is_aligned() {
        return Err(Failure::invalid(format!("{what}: not aligned")));
    }
    // SAFETY: `array` is aligned and not null; the content does not matter.
    Ok(unsafe { slice::from_raw_parts_mut(array.cast(), count) })
}

/// The parts of a vectored call, which together fit one call.
///
/// # Safety
/// `vectors` is null, or points to `count` elements.
unsafe fn checked_vectors<'a>(vectors: *const iovec, count: c_int) -> Result<&'a [iovec]> {
    let count = usize::try_from(count).ok().filter(|&n| n <= MAX_VECTORS);
    let count = count.ok_or_else(|| Failure::invalid("the number of buffers: 0 to 1024"))?;
    // SAFETY: the caller's promise.
    let vectors = unsafe { array(vectors, count, "the vectors") }?;
    let lens = vectors.iter().map(|one| one.iov_len);
    let total = lens.fold(0_usize, usize::saturating_add);
    if total > MAX_BYTES {
        return Err(Failure::invalid(
            "the buffers: more bytes than one call moves",
        ));
    }
    Ok(vectors)
}

/// The data of a vectored write.
///
/// # Safety
/// `vectors` is null, or points to `count` elements, each of which promises as [`bytes`].
pub(crate) unsafe fn data_vectors<'a>(
    vectors: *const iovec,
    count: c_int,
) -> Result<Vec<IoSlice<'a>>> {
    // SAFETY: the caller's promise.
    let vectors = unsafe { checked_vectors(vectors, count) }?;
    let slice_of = |one: &iovec| {
        // SAFETY: the caller promises that each element shows its bytes.
        let bytes = unsafe { bytes(one.iov_base, one.iov_len, "a buffer of the vectors") }?;
        Ok(IoSlice::new(bytes))
    };
    vectors.iter().map(slice_of).collect()
}

/// The buffers of a vectored read.
///
/// # Safety
/// As of [`data_vectors`], and the buffers do not overlap.
pub(crate) unsafe fn buffer_vectors<'a>(
    vectors: *const iovec,
    count: c_int,
) -> Result<Vec<IoSliceMut<'a>>> {
    // SAFETY: the caller's promise.
    let vectors = unsafe { checked_vectors(vectors, count) }?;
    let slice_of = |one: &iovec| {
        // SAFETY: the caller promises that each element gives its bytes, and that none overlap.
        let bytes = unsafe { bytes_mut(one.iov_base, one.iov_len, "a buffer of the vectors") }?;
        Ok(IoSliceMut::new(bytes))
    };
    vectors.iter().map(slice_of).collect()
}

/// Copies a value of variable length out, as getxattr(2) does: with `size` 0 only its length is
/// returned.
///
/// # Errors
/// `-ERANGE` if the buffer is too small.
///
/// # Safety
/// As of [`bytes_mut`].
pub(crate) unsafe fn put_value(value: &[u8], buf: *mut c_void, size: usize) -> Result<isize> {
    if size > 0 {
        // SAFETY: the caller's promise.
        let buf = unsafe { bytes_mut(buf, size, "the buffer") }?;
        let Some(start) = buf.get_mut(..value.len()) else {
            let why = format!("a value of {} bytes, a buffer of {size}", value.len());
            return Err(Failure::new(libc::ERANGE, why));
        };
        start.copy_from_slice(value);
    }
    crate::outcome::bytes(value.len())
}
