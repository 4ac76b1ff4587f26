//! fs-verity on a mount: the ioctls of Linux, and their arguments.
//!
//! `FS_IOC_ENABLE_VERITY` seals a file, and `FS_IOC_MEASURE_VERITY` returns its digest. Both have
//! arguments whose length their number does not say; the kernel knows these two since Linux 6.10,
//! and appends salt and signature to the argument, or makes room for the digest.
//! `server/verity_calls.rs` says which callers may ask.

#![allow(unsafe_code, reason = "the requests are ioctls")]

use std::fs::File;
use std::io;
use std::path::Path;

use extant_engine::{MAX_SALT, MAX_SIGNATURE, TreeHash, VerityParams};
use rustix::io::Errno as SystemErrno;
use rustix::ioctl::{Opcode, Setter, Updater, ioctl};

use crate::abi::op;
use crate::errno::Errno;
use crate::request::{Op, Request};

/// `FS_IOC_ENABLE_VERITY`: `_IOW('f', 133, struct fsverity_enable_arg)`.
pub(crate) const ENABLE: u32 = 0x4080_6685;
/// `FS_IOC_MEASURE_VERITY`: `_IOWR('f', 134, struct fsverity_digest)`.
pub(crate) const MEASURE: u32 = 0xc004_6686;
const ENABLE_OPCODE: Opcode = ENABLE as Opcode;
const MEASURE_OPCODE: Opcode = MEASURE as Opcode;
/// Bytes of `struct fsverity_enable_arg`.
const ARGUMENT: usize = 128;
/// Bytes of `struct fsverity_digest` before the digest.
const DIGEST_HEAD: usize = 4;
/// The longest digest.
const MAX_DIGEST: u16 = 64;
/// `version`.
const VERSION: u32 = 1;

/// `struct fsverity_enable_arg`, as the kernel reads it.
#[repr(C)]
struct EnableArg {
    version: u32,
    hash_algorithm: u32,
    block_size: u32,
    salt_size: u32,
    salt: u64,
    sig_size: u32,
    reserved: u32,
    sig: u64,
    reserved_too: [u64; 11],
}

const _: () = assert!(size_of::<EnableArg>() == ARGUMENT);

/// Returns whether a request seals a file.
pub(crate) fn is_asked(request: &Request<'_>) -> bool {
    let is_ioctl = request.header.opcode == op::IOCTL;
    is_ioctl && matches!(request.op(false), Ok(Op::Ioctl { command, .. }) if command == ENABLE)
}

/// Seals the file at `path`, which lies in a mount of Extant, or in any file system with fs-verity.
///
/// # Errors
/// Those of opening the file to read it, and of the ioctl; [`io::ErrorKind::Unsupported`] where
/// there is no fs-verity.
pub fn enable_verity(path: &Path, params: &VerityParams) -> io::Result<()> {
    let file = File::open(path)?;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(io::Error::other);
    let argument = EnableArg {
        version: VERSION,
        hash_algorithm: params.hash.number().into(),
        block_size: params.block_size,
        salt_size: length(&params.salt)?,
        salt: address(&params.salt),
        sig_size: length(&params.signature)?,
        reserved: 0,
        sig: address(&params.signature),
        reserved_too: [0; 11],
    };
    // SAFETY: the number says that the kernel reads an `EnableArg`, which is there; and so are the
    // bytes that it points to, as many as it says.
    let done = unsafe { ioctl(&file, Setter::<ENABLE_OPCODE, _>::new(argument)) };
    done.map_err(failure)
}

/// The digest of the sealed file at `path`, which lies in a mount of Extant or in any file system
/// with fs-verity, and its hash function.
///
/// # Errors
/// As [`enable_verity`]; "no data available" for a file that is not sealed.
pub fn measure_verity(path: &Path) -> io::Result<(TreeHash, Vec<u8>)> {
    let file = File::open(path)?;
    let mut answer = [0_u8; DIGEST_HEAD + MAX_DIGEST as usize];
    answer[2..DIGEST_HEAD].copy_from_slice(&MAX_DIGEST.to_ne_bytes());
    // SAFETY: the kernel writes behind the four bytes that the number tells of as many as the
    // argument says, which are there.
    let done = unsafe { ioctl(&file, Updater::<MEASURE_OPCODE, _>::new(&mut answer)) };
    done.map_err(failure)?;
    let half = |at: usize| u16::from_ne_bytes([answer[at], answer[at + 1]]);
    let hash = TreeHash::of_number(half(0).into()).ok_or(io::ErrorKind::InvalidData)?;
    let digest = answer[DIGEST_HEAD..].get(..half(2).into());
    Ok((hash, digest.ok_or(io::ErrorKind::InvalidData)?.to_vec()))
}

/// The address of `bytes`, as the kernel takes it.
fn address(bytes: &[u8]) -> u64 {
    bytes.as_ptr().expose_provenance() as u64
}

fn failure(error: SystemErrno) -> io::Error {
    match error {
        SystemErrno::NOTTY | SystemErrno::NOSYS => io::Error::new(
            io::ErrorKind::Unsupported,
            "not a file system with fs-verity",
        ),
        other => other.into(),
    }
}

/// The parameters that a request to seal asks for: `data` is the argument with salt and signature
/// behind it.
pub(crate) fn asked(data: &[u8]) -> Result<VerityParams, Errno> {
    let (argument, behind) = data.split_at_checked(ARGUMENT).ok_or(Errno::INVAL)?;
    let word = |at: usize| {
        let bytes = argument[at..].first_chunk();
        bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    };
    let reserved = argument[28..32].iter().chain(&argument[40..]);
    if word(0) != VERSION || reserved.copied().any(|byte| byte != 0) {
        return Err(Errno::INVAL);
    }
    let hash = TreeHash::of_number(word(4)).ok_or(Errno::INVAL)?;
    let (salt, signature) = (word(12) as usize, word(24) as usize);
    if salt > MAX_SALT || signature > MAX_SIGNATURE {
        return Err(Errno::MSGSIZE);
    }
    // An older kernel passes the argument alone.
    let (salt, behind) = behind.split_at_checked(salt).ok_or(Errno::OPNOTSUPP)?;
    let signature = behind.get(..signature).ok_or(Errno::OPNOTSUPP)?;
    Ok(VerityParams {
        hash,
        block_size: word(8),
        salt: salt.to_vec(),
        signature: signature.to_vec(),
    })
}

/// The answer with a digest to a request whose argument is `data`.
pub(crate) fn answer(data: &[u8], hash: TreeHash, digest: &[u8]) -> Result<Vec<u8>, Errno> {
    let room = data
        .get(2..DIGEST_HEAD)
        .and_then(|bytes| bytes.try_into().ok());
    let room = u16::from_ne_bytes(room.ok_or(Errno::INVAL)?);
    let len = u16::try_from(digest.len()).map_err(|_| Errno::OVERFLOW)?;
    if room < len {
        return Err(Errno::OVERFLOW);
    }
    let mut answer = u16::from(hash.number()).to_ne_bytes().to_vec();
    answer.extend(len.to_ne_bytes());
    answer.extend(digest);
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(change: impl FnOnce(&mut [u8])) -> Result<VerityParams, Errno> {
        let mut data = [0; ARGUMENT + 7];
        for (at, word) in [(0, 1), (4, 2), (8, 1024), (12, 4_u32), (24, 3)] {
            data[at..at + 4].copy_from_slice(&word.to_ne_bytes());
        }
        data[ARGUMENT..].copy_from_slice(b"saltsig");
        change(&mut data);
        asked(&data)
    }

    #[test]
    fn arguments_are_linux_s() {
        assert_eq!(ENABLE >> 16 & 0x3fff, 128);
        assert_eq!(MEASURE >> 16 & 0x3fff, 4);
        let params = VerityParams {
            hash: TreeHash::Sha512,
            block_size: 1024,
            salt: b"salt".to_vec(),
            signature: b"sig".to_vec(),
        };
        assert_eq!(request(|_| ()).unwrap(), params);
        type Change = fn(&mut [u8]);
        let faults: [(Change, Errno); 8] = [
            (|data| data[0] = 2, Errno::INVAL),
            (|data| data[4] = 3, Errno::INVAL),
            (|data| data[28] = 1, Errno::INVAL),
            (|data| data[127] = 1, Errno::INVAL),
            (|data| data[12] = 33, Errno::MSGSIZE),
            (|data| data[25] = 0x80, Errno::MSGSIZE),
            (|data| data[12] = 8, Errno::OPNOTSUPP),
            (|data| data[24] = 4, Errno::OPNOTSUPP),
        ];
        for (number, (fault, errno)) in faults.into_iter().enumerate() {
            assert_eq!(request(fault).unwrap_err(), errno, "fault {number}");
        }
        assert_eq!(asked(&[0; 127]).unwrap_err(), Errno::INVAL);
    }

    #[test]
    fn a_digest_needs_room() {
        let room = |len: u16| [&[0, 0][..], &len.to_ne_bytes()].concat();
        let full = answer(&room(64), TreeHash::Sha256, &[7; 32]).unwrap();
        assert_eq!(full[..2], 1_u16.to_ne_bytes());
        assert_eq!(full[2..4], 32_u16.to_ne_bytes());
        assert_eq!(full[4..], [7; 32]);
        let short = answer(&room(31), TreeHash::Sha256, &[7; 32]);
        assert_eq!(short, Err(Errno::OVERFLOW));
        assert_eq!(answer(&[0; 3], TreeHash::Sha256, &[]), Err(Errno::INVAL));
    }
}
