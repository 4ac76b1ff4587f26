//! Records of pax headers: lines `LENGTH KEY=VALUE`, whose values may have any bytes.
//!
//! A header is about the member after it, or about all that follow. What is said of one member goes
//! before what is said of all, and that before its plain header. An empty value takes back what was
//! said of all.

use std::collections::{BTreeMap, BTreeSet};
use std::io;

use super::acl;
use super::header::{ACL, LIBARCHIVE, Member, Timestamp, XATTR, bad, decimal};
use super::sparse::SparseHeaders;

/// Most that is kept of what is said of all members: each of them is gone over with it.
const MAX_GLOBAL: usize = 64 << 10;
/// Most extended attributes of a member: more than any file system has room for in a file.
const MAX_XATTRS: usize = 4096;

/// Keys whose value has to be there: an empty one takes a value back.
const PLAIN: [&[u8]; 7] = [
    b"path",
    b"linkpath",
    b"size",
    b"uid",
    b"gid",
    b"mtime",
    b"atime",
];

/// Prefixes of the keys of attributes.
const XATTRS: [&[u8]; 3] = [XATTR, LIBARCHIVE, ACL];

/// The records of all members that follow.
#[derive(Default)]
pub(super) struct Globals {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Globals {
    /// Takes in a header that is about all that follow.
    pub(super) fn learn(&mut self, lines: &[u8]) -> io::Result<()> {
        for record in Records(lines) {
            let (key, value) = record?;
            let known = PLAIN.contains(&key) || XATTRS.iter().any(|prefix| key.starts_with(prefix));
            if value.is_empty() && PLAIN.contains(&key) {
                self.records.remove(key);
            } else if known {
                self.records.insert(key.to_vec(), value.to_vec());
            }
        }
        let bytes: usize = self.records.iter().map(|(k, v)| k.len() + v.len()).sum();
        if bytes > MAX_GLOBAL {
            return Err(bad(format!("headers of {bytes} bytes for all files")));
        }
        Ok(())
    }

    /// Applies the headers for all members, and those in `lines` for one. Returns the headers about
    /// holes. The work grows with the bytes of the headers, whatever they repeat.
    pub(super) fn apply(&self, lines: &[u8], member: &mut Member) -> io::Result<SparseHeaders> {
        let mut said = Said {
            member,
            sparse: SparseHeaders::default(),
            xattrs: BTreeMap::new(),
        };
        let mut own = BTreeSet::new();
        for record in Records(lines) {
            let (key, _) = record?;
            if self.records.contains_key(key) {
                own.insert(key);
            }
        }
        for (key, value) in &self.records {
            if !own.contains(key.as_slice()) {
                said.take(key, value)?;
            }
        }
        for record in Records(lines) {
            let (key, value) = record?;
            if !value.is_empty() || !PLAIN.contains(&key) {
                said.take(key, value)?;
            }
        }
        Ok(said.finish())
    }
}

/// The keys and values of a header.
struct Records<'a>(&'a [u8]);

impl<'a> Iterator for Records<'a> {
    type Item = io::Result<(&'a [u8], &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let record = record(self.0);
        self.0 = record.as_ref().map_or(&[], |(_, rest)| rest);
        Some(record.map(|(record, _)| record).ok_or_else(wrong))
    }
}

type Record<'a> = (&'a [u8], &'a [u8]);

/// The first record, and what follows it.
fn record(lines: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let blank = lines.iter().position(|&byte| byte == b' ')?;
    let len = usize::try_from(decimal(lines.get(..blank)?)?).ok()?;
    let line = lines.get(blank + 1..len)?.strip_suffix(b"\n")?;
    let equals = line.iter().position(|&byte| byte == b'=')?;
    let record = (line.get(..equals)?, line.get(equals + 1..)?);
    Some((record, lines.get(len..)?))
}

fn wrong() -> io::Error {
    bad("a pax header that is damaged")
}

/// The records of one member.
struct Said<'a> {
    member: &'a mut Member,
    sparse: SparseHeaders,
    /// Extended attributes by their names.
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Said<'_> {
    fn take(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let id = || {
            let id = decimal(value).and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(wrong)
        };
        let member = &mut *self.member;
        match key {
            b"path" => member.name = value.to_vec(),
            b"linkpath" => member.link = value.to_vec(),
            b"size" => {
                let size = decimal(value).filter(|&size| i64::try_from(size).is_ok());
                member.size = size.ok_or_else(wrong)?;
            }
            b"uid" => member.uid = id()?,
            b"gid" => member.gid = id()?,
            b"mtime" => member.mtime = timestamp(value).ok_or_else(wrong)?,
            b"atime" => member.atime = Some(timestamp(value).ok_or_else(wrong)?),
            _ => return self.attribute(key, value),
        }
        Ok(())
    }

    fn attribute(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if let Some(name) = key.strip_prefix(XATTR) {
            self.xattr(name.to_vec(), true, value.to_vec());
        } else if let Some(name) = key.strip_prefix(LIBARCHIVE) {
            let name = percent(name).ok_or_else(wrong)?;
            let value = base64(value).ok_or_else(wrong)?;
            self.xattr(name, false, value);
        } else if let Some(name) = key.strip_prefix(ACL) {
            if acl::KINDS.iter().any(|(kind, _)| *kind == name) {
                let acls = &mut self.member.acls;
                acls.retain(|(known, _)| known != name);
                acls.push((name.to_vec(), value.to_vec()));
            }
        } else if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
            self.sparse.take(name, value);
        }
        Ok(())
    }

    /// Adds an attribute. A value that came as it is goes before an encoded one.
    fn xattr(&mut self, name: Vec<u8>, plain: bool, value: Vec<u8>) {
        let has_room = self.xattrs.len() < MAX_XATTRS;
        match self.xattrs.get_mut(&name) {
            Some(_) if !plain => {}
            Some(known) => *known = value,
            None if has_room => {
                self.xattrs.insert(name, value);
            }
            None => self.member.damage = Some("more than 4096 extended attributes"),
        }
    }

    /// Gives the member its attributes.
    fn finish(self) -> SparseHeaders {
        self.member.xattrs = self.xattrs.into_iter().collect();
        self.sparse
    }
}

/// A name in which `%` and two hexadecimal digits stand for a byte.
fn percent(name: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some((&first, after)) = rest.split_first() {
        if first == b'%' {
            let digits = str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(first);
            rest = after;
        }
    }
    Some(bytes)
}

/// Bytes in base 64, with or without the padding at their end.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.trim_ascii();
    let text = text.strip_suffix(b"=").unwrap_or(text);
    let text = text.strip_suffix(b"=").unwrap_or(text);
    let mut bytes = Vec::new();
    let (mut bits, mut sum) = (0, 0_u32);
    for &letter in text {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (sum, bits) = ((sum << 6 | u32::from(value)) & 0xFFFF, bits + 6);
        if bits >= 8 {
            bits -= 8;
            bytes.push(u8::try_from(sum >> bits & 0xFF).ok()?);
        }
    }
    Some(bytes)
}

/// Reads seconds with a fraction, as pax writes them: -1.25 is a quarter before -1.
pub fn timestamp(value: &[u8]) -> Option<Timestamp> {
    let (whole, fraction) = match value.iter().position(|&byte| byte == b'.') {
        Some(dot) => (value.get(..dot)?, value.get(dot + 1..)?),
        None => (value, &[][..]),
    };
    let secs: i64 = str::from_utf8(whole).ok()?.parse().ok()?;
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let digits = fraction
        .iter()
        .copied()
        .chain(std::iter::repeat(b'0'))
        .take(9);
    let nanos = digits.fold(0, |sum, digit| sum * 10 + u32::from(digit - b'0'));
    if !whole.starts_with(b"-") || nanos == 0 {
        return Some(Timestamp { secs, nanos });
    }
    Some(Timestamp {
        secs: secs.checked_sub(1)?,
        nanos: 1_000_000_000 - nanos,
    })
}
