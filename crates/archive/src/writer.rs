//! Writes archives: a plain header for each member, and a pax header before it for what has no room
//! there.

use std::io::{self, Read, Write};

use super::header::{
    ACL, BLOCK, CHECKSUM, Field, GID, KIND, LINK, MAGIC, MAJOR, MINOR, MODE, MTIME, Member, NAME,
    SIZE, Timestamp, UID, XATTR, bad, kind,
};
use super::{acl, sparse};

/// Seconds with a fraction, as pax writes them.
pub(super) fn seconds(time: Timestamp) -> String {
    if time.nanos == 0 {
        return time.secs.to_string();
    }
    let (sign, secs, nanos) = if time.secs < 0 {
        let whole = time.secs.saturating_add(1).unsigned_abs();
        ("-", whole, 1_000_000_000_u32.saturating_sub(time.nanos))
    } else {
        ("", time.secs.unsigned_abs(), time.nanos)
    };
    format!("{sign}{secs}.{nanos:09}")
}

/// Writes members in their order.
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Writes to `out`.
    pub fn new(out: W) -> Writer<W> {
        Writer { out }
    }

    /// Writes a member and its bytes, of which there are as many as it says.
    ///
    /// # Errors
    /// Those of the output, and of the content.
    pub fn append(&mut self, member: &Member, content: impl Read) -> io::Result<()> {
        let mut extra = Vec::new();
        let (mut map, mut stored) = (Vec::new(), member.size);
        let header = match &member.pieces {
            None => header(member, &mut extra),
            Some(pieces) => {
                map = sparse::map(pieces, member.size);
                let bytes: u64 = pieces.iter().map(|piece| piece.len).sum();
                stored = map.len() as u64 + bytes;
                header(&stand_in(member, stored, &mut extra), &mut extra)
            }
        };
        if !extra.is_empty() {
            let own = Member {
                kind: kind::PAX,
                name: b"./PaxHeader".to_vec(),
                mode: 0o644,
                size: extra.len() as u64,
                ..Member::default()
            };
            self.out.write_all(&self::header(&own, &mut Vec::new()))?;
            self.content(&mut extra.as_slice(), own.size)?;
        }
        self.out.write_all(&header)?;
        self.content(&mut map.as_slice().chain(content), stored)
    }

    fn content(&mut self, content: &mut dyn Read, size: u64) -> io::Result<()> {
        if io::copy(&mut content.take(size), &mut self.out)? != size {
            return Err(bad("a file that became shorter"));
        }
        let over = usize::try_from(size % BLOCK as u64).expect("less than a block");
        let padding = (BLOCK - over) % BLOCK;
        self.out.write_all(&[0; BLOCK][..padding])
    }

    /// Writes the end.
    ///
    /// # Errors
    /// Those of the output.
    pub fn finish(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }
}

/// The form of a file with holes for readers that do not know of them: a map and pieces, by another
/// name.
fn stand_in(member: &Member, stored: u64, extra: &mut Vec<u8>) -> Member {
    /// As much of the name as has room in a plain header.
    const NAME_LEN: usize = 64;
    line(extra, b"GNU.sparse.major", b"1");
    line(extra, b"GNU.sparse.minor", b"0");
    line(extra, b"GNU.sparse.name", &member.name);
    let size = member.size.to_string();
    line(extra, b"GNU.sparse.realsize", size.as_bytes());
    let base = member.name.rsplit(|&byte| byte == b'/').next();
    let base = base.expect("even nothing splits into one part");
    let base = base.get(..NAME_LEN).unwrap_or(base);
    Member {
        name: [b"./GNUSparseFile.0/", base].concat(),
        size: stored,
        pieces: None,
        ..member.clone()
    }
}

/// A plain header; what it has no room for goes to `extra`, as lines of a pax header.
pub(super) fn header(member: &Member, extra: &mut Vec<u8>) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: Field, bytes: &[u8]| {
        let room = &mut header[at];
        for (to, from) in room.iter_mut().zip(bytes) {
            *to = *from;
        }
        bytes.len() <= room.len()
    };
    // The largest number that fits before a zero.
    let octal = |at: &Field, number: u64| {
        let digits = at.len() - 1;
        let word = format!("{number:0digits$o}");
        if word.len() > digits {
            "0".repeat(digits)
        } else {
            word
        }
    };
    let fits = |at: &Field, number: u64| number < 1 << (3 * (at.len() - 1));
    for (at, key, bytes) in [
        (NAME, "path", &member.name),
        (LINK, "linkpath", &member.link),
    ] {
        if !put(at, bytes) {
            line(extra, key.as_bytes(), bytes);
        }
    }
    for (at, key, value) in [
        (UID, "uid", u64::from(member.uid)),
        (GID, "gid", u64::from(member.gid)),
        (SIZE, "size", member.size),
    ] {
        put(at.clone(), octal(&at, value).as_bytes());
        if !fits(&at, value) {
            line(extra, key.as_bytes(), value.to_string().as_bytes());
        }
    }
    let secs = u64::try_from(member.mtime.secs).ok();
    let secs = secs.filter(|&secs| fits(&MTIME, secs));
    put(MTIME, octal(&MTIME, secs.unwrap_or(0)).as_bytes());
    if secs.is_none() || member.mtime.nanos > 0 {
        line(extra, b"mtime", seconds(member.mtime).as_bytes());
    }
    for (name, value) in &member.xattrs {
        line(extra, &[XATTR, name.as_slice()].concat(), value);
        // For readers of the one, and for those of the other.
        for (key, attribute) in acl::KINDS {
            if name == attribute
                && let Some(text) = acl::to_text(value)
            {
                line(extra, &[ACL, key].concat(), &text);
            }
        }
    }
    put(MODE, octal(&MODE, u64::from(member.mode)).as_bytes());
    put(KIND..KIND + 1, &[member.kind]);
    put(MAGIC, b"ustar\x0000");
    put(MAJOR, octal(&MAJOR, u64::from(member.major)).as_bytes());
    put(MINOR, octal(&MINOR, u64::from(member.minor)).as_bytes());
    put(CHECKSUM, b"        ");
    let sum: u64 = header.iter().map(|&byte| u64::from(byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    for (to, from) in header.iter_mut().skip(CHECKSUM.start).zip(sum.bytes()) {
        *to = from;
    }
    header
}

/// A line of a pax header. Its length counts itself.
pub(super) fn line(extra: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while rest + len.to_string().len() != len {
        len = rest + len.to_string().len();
    }
    extra.extend(format!("{len} ").into_bytes());
    extra.extend([key, b"=", value, b"\n"].concat());
}
