//! The words of the library about itself: its version, and the words of the last failure.

use std::ffi::c_char;

use crate::arguments;
use crate::outcome::{bytes, last_failure, of_call};

/// Copies the message of this thread's last failed call, cut to `size` bytes with its NUL, into
/// `buf`. Returns the length of the whole message without the NUL.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_error(buf: *mut c_char, size: usize) -> isize {
    // SAFETY: by the contract of this crate.
    unsafe { copy(&last_failure().message, buf, size) }
}

/// As [`extant_error`], with the name of the kind of damage that this thread's last failed call
/// found, such as `ExtentNode.BadMagic`; empty if it failed for another reason.
///
/// # Safety
/// As of this crate.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_error_kind(buf: *mut c_char, size: usize) -> isize {
    // SAFETY: by the contract of this crate.
    unsafe { copy(&last_failure().kind, buf, size) }
}

/// Copies `text`, cut to `size` bytes with its NUL; returns the length of the whole.
///
/// # Safety
/// `buf` is null or has `size` bytes.
unsafe fn copy(text: &str, buf: *mut c_char, size: usize) -> isize {
    of_call(|| {
        if size > 0 {
            // SAFETY: the caller vouches for it.
            let buf = unsafe { arguments::bytes_mut(buf.cast(), size, "the buffer") }?;
            let len = text.len().min(size - 1);
            buf[..len].copy_from_slice(&text.as_bytes()[..len]);
            buf[len] = 0;
        }
        bytes(text.len())
    })
}

/// The version of the library, as `MAJOR.MINOR.PATCH`.
// SAFETY: no other function of the process has this name.
#[unsafe(no_mangle)]
pub extern "C" fn extant_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Failure;
    use extant::damage::ExtentError;
    use extant::{Error, Location};

    #[test]
    fn a_message_is_cut_to_its_buffer() {
        let _: i32 = of_call(|| Err(Failure::invalid("too long")));
        let mut buf = [7_u8; 8];
        // SAFETY: the buffers have the lengths that are given.
        let (cut, none, null) = unsafe {
            let cut = extant_error(buf.as_mut_ptr().cast(), 4);
            let none = extant_error(std::ptr::null_mut(), 0);
            (cut, none, extant_error(std::ptr::null_mut(), 4))
        };
        assert_eq!((cut, none, null), (8, 8, -14));
        assert_eq!(buf, *b"too\0\x07\x07\x07\x07");
    }

    #[test]
    fn damage_has_the_name_of_its_kind() {
        let kind = || {
            let mut buf = [0_u8; 32];
            // SAFETY: the buffer has the length that is given.
            let len = unsafe { extant_error_kind(buf.as_mut_ptr().cast(), buf.len()) };
            String::from_utf8(buf[..usize::try_from(len).unwrap()].to_vec()).unwrap()
        };
        let magic = ExtentError::BadMagic { found: 7 };
        let damage = Error::corrupt(Location::Superblock, magic);
        let _: i32 = of_call(|| Err(Failure::from(damage)));
        assert_eq!(kind(), "ExtentNode.BadMagic");
        let _: i32 = of_call(|| Err(Failure::invalid("something else")));
        assert_eq!(kind(), "");
    }
}
