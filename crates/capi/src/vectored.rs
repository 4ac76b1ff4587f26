//! Calls on several buffers at a position that the call names.

use std::ffi::c_int;

use libc::iovec;

use crate::arguments;
use crate::file::{OpenFile, position};
use crate::outcome::{bytes, on};

/// Fills the buffers, one after the other, from byte `pos`, as one read.
///
/// # Safety
/// As of this crate; the buffers do not overlap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_preadv(
    file: Option<&OpenFile>,
    vectors: *const iovec,
    count: c_int,
    pos: i64,
) -> isize {
    on(file, |file| {
        // SAFETY: null or `count` vectors, by the contract of this crate.
        let mut bufs = unsafe { arguments::buffer_vectors(vectors, count) }?;
        bytes(file.file.read_vectored_at(&mut bufs, position(pos)?)?)
    })
}

/// Writes the buffers, one after the other, at byte `pos`, as one write.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_pwritev(
    file: Option<&OpenFile>,
    vectors: *const iovec,
    count: c_int,
    pos: i64,
) -> isize {
    on(file, |file| {
        // SAFETY: null or `count` vectors, by the contract of this crate.
        let bufs = unsafe { arguments::data_vectors(vectors, count) }?;
        bytes(file.file.write_vectored_at(&bufs, position(pos)?)?)
    })
}
