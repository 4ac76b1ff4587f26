//! Records of pax headers: lines `LENGTH KEY=VALUE`, whose values may have any bytes.
//!
//! A header is about the member after it, or about all that follow. What is said of one member goes
//! before what is said of all, and that before its plain header. An empty value takes back what was
//! said of all.

use std::collections::BTreeMap;
use std::io;

use extant::Timestamp;

use super::header::{ACL, Member, XATTR, bad, decimal};
use super::sparse::SparseHeaders;

/// Most that is kept of what is said of all members: each of them is gone over with it.
const MAX_GLOBAL: usize = 64 << 10;

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

/// What is said of all members that follow.
#[derive(Default)]
pub(super) struct Globals {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Globals {
    /// Takes in a header that is about all that follow.
    pub(super) fn learn(&mut self, lines: &[u8]) -> io::Result<()> {
        for record in Records(lines) {
            let (key, value) = record?;
            let known = PLAIN.contains(&key) || key.starts_with(XATTR) || key.starts_with(ACL);
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
    /// holes.
    pub(super) fn apply(&self, lines: &[u8], member: &mut Member) -> io::Result<SparseHeaders> {
        let mut sparse = SparseHeaders::default();
        let own = Records(lines).collect::<io::Result<Vec<_>>>()?;
        for (key, value) in &self.records {
            if !own.iter().any(|(name, _)| name == key) {
                set(key, value, member, &mut sparse)?;
            }
        }
        for (key, value) in own {
            if !value.is_empty() || !PLAIN.contains(&key) {
                set(key, value, member, &mut sparse)?;
            }
        }
        Ok(sparse)
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

fn set(
    key: &[u8],
    value: &[u8],
    member: &mut Member,
    sparse: &mut SparseHeaders,
) -> io::Result<()> {
    let id = || {
        let id = decimal(value).and_then(|id| u32::try_from(id).ok());
        id.ok_or_else(wrong)
    };
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
        _ => {
            if let Some(name) = key.strip_prefix(XATTR) {
                member.xattrs.push((name.to_vec(), value.to_vec()));
            } else if let Some(name) = key.strip_prefix(ACL) {
                member.acls.push((name.to_vec(), value.to_vec()));
            } else if let Some(name) = key.strip_prefix(b"GNU.sparse.") {
                sparse.take(name, value);
            }
        }
    }
    Ok(())
}

/// Reads seconds with a fraction, as pax writes them.
pub(super) fn timestamp(value: &[u8]) -> Option<Timestamp> {
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
    // -1.25 is a quarter before -1.
    Some(Timestamp {
        secs: secs.checked_sub(1)?,
        nanos: 1_000_000_000 - nanos,
    })
}
