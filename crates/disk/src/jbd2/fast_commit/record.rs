//! Records of the fast-commit area: tag, length, value.

use zerocopy::FromBytes;
use zerocopy::little_endian::{U16, U32};

pub(super) const RECORD_HEADER: usize = 4;

pub(super) const TAG_ADD_RANGE: u16 = 1;
pub(super) const TAG_DEL_RANGE: u16 = 2;
pub(super) const TAG_CREAT: u16 = 3;
pub(super) const TAG_LINK: u16 = 4;
pub(super) const TAG_UNLINK: u16 = 5;
pub(super) const TAG_INODE: u16 = 6;
pub(super) const TAG_PAD: u16 = 7;
pub(super) const TAG_TAIL: u16 = 8;
pub(super) const TAG_HEAD: u16 = 9;

/// The tag and the value of the record at the beginning of `bytes`, `None` if there is no whole
/// one.
pub(super) fn split_record(bytes: &[u8]) -> Option<(u16, &[u8])> {
    let (tag, rest) = U16::read_from_prefix(bytes).ok()?;
    let (len, rest) = U16::read_from_prefix(rest).ok()?;
    Some((tag.get(), rest.get(..usize::from(len.get()))?))
}

/// The 32-bit field at `at` of `value`.
pub(super) fn field(value: &[u8], at: usize) -> Option<u32> {
    let (field, _) = U32::read_from_prefix(value.get(at..)?).ok()?;
    Some(field.get())
}
