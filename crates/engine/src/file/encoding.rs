//! The form in which the device has the data of encrypted files.

use extant_crypt::ContentsCipher;
use extant_units::{Pos, exact_u32, index};

use crate::crypt;
use crate::state::inode::Inode;
use crate::types::error::{Error, Result};
use crate::volume::Fs;

/// Decrypts whole blocks of an encrypted file, which the device has at byte `pos` of it.
///
/// # Errors
/// [`Error::NoKey`]; as [`crypt::key`].
pub(in crate::file) fn decode(fs: &Fs, inode: &Inode, pos: Pos, bytes: &mut [u8]) -> Result<()> {
    with_cipher(fs, inode, pos, |cipher, unit, len| {
        cipher.decrypt_units(unit, len, bytes);
    })
}

/// Encrypts whole blocks at byte `pos` of an encrypted file.
///
/// # Errors
/// As [`decode`].
pub(in crate::file) fn encode(fs: &Fs, inode: &Inode, pos: Pos, bytes: &mut [u8]) -> Result<()> {
    with_cipher(fs, inode, pos, |cipher, unit, len| {
        cipher.encrypt_units(unit, len, bytes);
    })
}

/// Calls `f` with the file's cipher, and number and length in bytes of the data unit at `pos`.
fn with_cipher(
    fs: &Fs,
    inode: &Inode,
    pos: Pos,
    f: impl FnOnce(&ContentsCipher, u64, usize),
) -> Result<()> {
    let key = crypt::require_key(fs, inode)?;
    let cipher = key.contents().ok_or(Error::NoKey)?;
    let block = exact_u32(fs.layout.block_size.bytes_u64());
    let unit = key.context.policy.unit_bytes(block);
    debug_assert_eq!(pos.get() % u64::from(unit), 0, "whole data units");
    f(cipher, pos.get() / u64::from(unit), index(unit.into()));
    Ok(())
}
