//! Growing a mount from outside of its daemon: the request and its answer.
//!
//! `EXT4_IOC_RESIZE_FS` answers with an error number only, so there is a second ioctl, whose answer
//! says why the volume did not grow. `server/ioctls.rs` says which callers may ask.

#![allow(unsafe_code, reason = "the request is an ioctl")]

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};

/// `_IOWR('E', 82, [u8; 256])`.
pub(crate) const GROW: u32 = 0xc100_4552;
/// The same, as wide as system calls take it: over the C library it is a long.
const OPCODE: Opcode = GROW as Opcode;
/// Bytes of its argument: the size in bytes, 8 of them; behind it, in the answer, what went wrong,
/// and zeros.
const ARGUMENT: usize = 256;
const SIZE: usize = 8;

/// Grows the file system of the Extant mount at `dir` to at most `bytes`, and the image file with
/// it.
///
/// # Errors
/// [`io::ErrorKind::Unsupported`] if it is not a mount of Extant;
/// [`io::ErrorKind::PermissionDenied`] if the mount is another user's; why it did not grow; those
/// of reaching `dir`.
pub fn grow(dir: &Path, bytes: u64) -> io::Result<()> {
    let file = File::open(dir)?;
    let mut argument = [0; ARGUMENT];
    argument[..SIZE].copy_from_slice(&bytes.to_ne_bytes());
    // SAFETY: the number says that the kernel reads and writes `ARGUMENT` bytes, which are there.
    let done = unsafe { ioctl(&file, Updater::<OPCODE, [u8; ARGUMENT]>::new(&mut argument)) };
    match done {
        Ok(()) => {}
        Err(Errno::NOTTY | Errno::NOSYS) => {
            let what = "not a mount of Extant that can grow";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        Err(error) => return Err(error.into()),
    }
    let text = argument[SIZE..].split(|byte| *byte == 0).next();
    match text.map(String::from_utf8_lossy) {
        Some(text) if !text.is_empty() => Err(io::Error::other(text.into_owned())),
        _ => Ok(()),
    }
}

/// The size that `data`, the argument of a request, asks for.
pub(crate) fn asked(data: &[u8]) -> Option<u64> {
    let size = data.get(..SIZE)?.try_into().ok()?;
    Some(u64::from_ne_bytes(size))
}

/// The answer to a request for `bytes`.
pub(crate) fn answer(bytes: u64, failure: Option<String>) -> Vec<u8> {
    let mut answer = bytes.to_ne_bytes().to_vec();
    let mut text = failure.unwrap_or_default();
    text.truncate(text.floor_char_boundary(ARGUMENT - SIZE - 1));
    answer.extend_from_slice(text.as_bytes());
    answer.resize(ARGUMENT, 0);
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_fits_its_argument() {
        assert_eq!(GROW >> 16 & 0x3fff, 256);
        let long = answer(7, Some("ü".repeat(300)));
        assert_eq!(long.len(), ARGUMENT);
        assert_eq!(long.last(), Some(&0));
        assert_eq!(asked(&long), Some(7));
        assert!(std::str::from_utf8(&long[SIZE..]).is_ok());
        assert_eq!(asked(&[0; 7]), None);
    }
}
