//! Headers of an archive: their fields, the members that they describe, and numbers in them.

use std::io::{self, Read};

/// A point in time: seconds since 1970 (negative before) and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since the epoch.
    pub secs: i64,
    /// Nanoseconds past `secs`, below 1,000,000,000.
    pub nanos: u32,
}

/// Bytes of the blocks that an archive is made of.
pub const BLOCK: usize = 512;
/// The prefix of extended attributes in pax headers.
pub(super) const XATTR: &[u8] = b"SCHILY.xattr.";
/// The prefix that libarchive has for them: names with `%` and hexadecimal digits, values in base
/// 64.
pub(super) const LIBARCHIVE: &[u8] = b"LIBARCHIVE.xattr.";
/// The prefix of ACLs in words.
pub(super) const ACL: &[u8] = b"SCHILY.acl.";

// Fields of a header: where they begin and end.
pub(super) type Field = std::ops::Range<usize>;
pub(super) const NAME: Field = 0..100;
pub(super) const MODE: Field = 100..108;
pub(super) const UID: Field = 108..116;
pub(super) const GID: Field = 116..124;
pub(super) const SIZE: Field = 124..136;
pub(super) const MTIME: Field = 136..148;
pub(super) const CHECKSUM: Field = 148..156;
pub(super) const KIND: usize = 156;
pub(super) const LINK: Field = 157..257;
pub(super) const MAGIC: Field = 257..265;
pub(super) const MAJOR: Field = 329..337;
pub(super) const MINOR: Field = 337..345;
pub(super) const PREFIX: Field = 345..500;

/// Kinds of members, as headers write them.
pub mod kind {
    /// A regular file.
    pub const REGULAR: u8 = b'0';
    /// A hard link.
    pub const LINK: u8 = b'1';
    /// A symbolic link.
    pub const SYMLINK: u8 = b'2';
    /// A character device.
    pub const CHAR: u8 = b'3';
    /// A block device.
    pub const BLOCK: u8 = b'4';
    /// A directory.
    pub const DIRECTORY: u8 = b'5';
    /// A named pipe.
    pub const FIFO: u8 = b'6';
    /// A name for the archive.
    pub const VOLUME: u8 = b'V';
    /// A regular file, as some writers of old mark it.
    pub const CONTIGUOUS: u8 = b'7';
    /// A pax header for the next member.
    pub const PAX: u8 = b'x';
    /// A pax header for all members that follow.
    pub const PAX_GLOBAL: u8 = b'g';
    /// The next member's name, where it is long.
    pub const GNU_NAME: u8 = b'L';
    /// The target of the next member, where it is long.
    pub const GNU_LINK: u8 = b'K';
    /// A file with holes, in GNU's own format.
    pub const GNU_SPARSE: u8 = b'S';
}

/// One thing in an archive, without its bytes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Member {
    /// See [`kind`].
    pub kind: u8,
    /// Its path.
    pub name: Vec<u8>,
    /// The target of a link.
    pub link: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of the file.
    pub size: u64,
    /// Modification time.
    pub mtime: Timestamp,
    /// Access time, where the archive has it.
    pub atime: Option<Timestamp>,
    /// Major number of a device.
    pub major: u32,
    /// Minor number of a device.
    pub minor: u32,
    /// Extended attributes: names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// ACLs in words, by the end of their key: `access`, `default`.
    pub acls: Vec<(Vec<u8>, Vec<u8>)>,
    /// For a file with holes: what lies between them. The archive has these bytes only, while
    /// `size` is the file's.
    pub pieces: Option<Vec<Piece>>,
    /// The damage for which it cannot be made.
    pub damage: Option<&'static str>,
}

pub(super) fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// A piece of a file between holes. One without bytes may end a map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Its first byte in the file.
    pub start: u64,
    /// Its bytes.
    pub len: u64,
}

/// A number without a sign.
pub(super) fn decimal(value: &[u8]) -> Option<u64> {
    let digits = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    digits.then(|| str::from_utf8(value).ok()?.parse().ok())?
}

/// Fills the buffer as far as there is something to read. Returns how far.
///
/// # Errors
/// Those of the input.
pub fn fill(from: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while let Some(rest) = buf.get_mut(len..).filter(|rest| !rest.is_empty()) {
        match from.read(rest) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

pub(super) fn field(header: &[u8; BLOCK], at: Field) -> &[u8] {
    &header[at]
}

/// Bytes up to the first zero.
pub(super) fn text(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|&byte| byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}

/// A number: octal digits among blanks, or big-endian bytes where the first bit is set.
pub(super) fn number(header: &[u8; BLOCK], at: Field) -> io::Result<i64> {
    let bytes = field(header, at.clone());
    let wrong = || bad(format!("a header with no number at byte {}", at.start));
    if let Some((&first, rest)) = bytes.split_first()
        && first & 0x80 != 0
    {
        // Two's complement, but for the bit that says so.
        let sign = if first & 0x40 != 0 { -1i64 } else { 0 };
        let head = if sign < 0 {
            i64::from(first) - 0x100
        } else {
            i64::from(first & 0x3f)
        };
        let wide = rest.iter().try_fold(i128::from(head), |sum, &byte| {
            sum.checked_mul(256)?.checked_add(i128::from(byte))
        });
        return wide.and_then(|n| i64::try_from(n).ok()).ok_or_else(wrong);
    }
    let word = text(bytes);
    let word = str::from_utf8(word).map_err(|_| wrong())?.trim();
    if word.is_empty() {
        return Ok(0);
    }
    if word.starts_with(['+', '-']) {
        return Err(wrong());
    }
    i64::from_str_radix(word, 8).map_err(|_| wrong())
}

/// The sums that the checksum of a header may be. The checksum itself counts as blanks.
fn sums(header: &[u8; BLOCK]) -> [i64; 2] {
    let add = |bytes: &[u8]| -> i32 { bytes.iter().map(|&byte| i32::from(byte)).sum() };
    let large = |bytes: &[u8]| -> i32 { bytes.iter().map(|&byte| i32::from(byte >> 7)).sum() };
    let own = field(header, CHECKSUM);
    let blanks = add(&[b' '; CHECKSUM.end - CHECKSUM.start]);
    let sum = add(header) - add(own) + blanks;
    // Some writers of old add signed bytes.
    let signed = sum - 256 * (large(header) - large(own));
    [sum.into(), signed.into()]
}

/// The member that a header describes by itself.
pub(super) fn plain(header: &[u8; BLOCK]) -> io::Result<Member> {
    let sum = number(header, CHECKSUM).map_err(|_| bad("no header of an archive"))?;
    if !sums(header).contains(&sum) {
        return Err(bad("no header of an archive: its checksum is wrong"));
    }
    let mut name = text(field(header, NAME)).to_vec();
    let prefix = text(field(header, PREFIX));
    if field(header, MAGIC) == b"ustar\x0000" && !prefix.is_empty() {
        name = [prefix, b"/", &name].concat();
    }
    let kind = match header[KIND] {
        0 | kind::CONTIGUOUS => kind::REGULAR,
        kind => kind,
    };
    let small = |at: Field| -> io::Result<u32> {
        let start = at.start;
        let number = number(header, at)?;
        u32::try_from(number).map_err(|_| bad(format!("{number} in a header at byte {start}")))
    };
    let size = number(header, SIZE)?;
    let device = matches!(kind, kind::CHAR | kind::BLOCK);
    Ok(Member {
        kind,
        name,
        link: text(field(header, LINK)).to_vec(),
        mode: small(MODE)? & 0o7777,
        uid: small(UID)?,
        gid: small(GID)?,
        size: u64::try_from(size).map_err(|_| bad(format!("a size of {size} bytes")))?,
        mtime: Timestamp {
            secs: number(header, MTIME)?,
            nanos: 0,
        },
        major: if device { small(MAJOR)? } else { 0 },
        minor: if device { small(MINOR)? } else { 0 },
        ..Member::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with a byte above 127 and the checksum `sum`.
    fn header(sum: i64) -> [u8; BLOCK] {
        let mut header = [0; BLOCK];
        header[..3].copy_from_slice(&[b'a', 0xC4, b'b']);
        header[KIND] = b'0';
        header[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header
    }

    #[test]
    fn a_header_is_known_by_the_sum_of_its_bytes_with_or_without_signs() {
        let sum: i64 = 97 + 0xC4 + 98 + 48 + 8 * 32;
        for good in [sum, sum - 256] {
            assert_eq!(plain(&header(good)).unwrap().name, [b'a', 0xC4, b'b']);
        }
        for wrong in [sum + 1, sum - 255, sum - 512] {
            assert!(plain(&header(wrong)).is_err());
        }
    }
}
