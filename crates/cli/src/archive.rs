//! The format of archives: headers of 512 bytes, each followed by its member's bytes, padded to
//! 512.
//!
//! Reads ustar, pax and GNU's format; writes pax headers where a plain one has no room. An archive
//! is not trusted: what a header says is checked, and only headers are kept in memory, up to a
//! limit.
//!
//! The format is read here because the `tar` crate (0.4.46) cuts pax headers at line ends, where
//! this goes by the length that each record says (tar-rs#428, #452): there an attribute with a line
//! end in its value is lost, and one that looks like a record renames its file.

use std::io::{self, Read};

use extant::Timestamp;

pub(crate) mod acl;
mod pax;
mod sparse;
mod writer;

pub(crate) use sparse::{MAX_PIECES, Piece};
pub(crate) use writer::Writer;

use pax::Globals;
use sparse::{Form, Told};

/// What an archive is made of.
pub(crate) const BLOCK: usize = 512;
/// Longest header that names, links and attributes may need.
const MAX_EXTRA: u64 = 16 << 20;
/// Where pax headers keep extended attributes.
const XATTR: &[u8] = b"SCHILY.xattr.";
/// Where they keep ACLs in words.
const ACL: &[u8] = b"SCHILY.acl.";

// Fields of a header: where they begin and end.
type Field = std::ops::Range<usize>;
const NAME: Field = 0..100;
const MODE: Field = 100..108;
const UID: Field = 108..116;
const GID: Field = 116..124;
const SIZE: Field = 124..136;
const MTIME: Field = 136..148;
const CHECKSUM: Field = 148..156;
const KIND: usize = 156;
const LINK: Field = 157..257;
const MAGIC: Field = 257..265;
const MAJOR: Field = 329..337;
const MINOR: Field = 337..345;
const PREFIX: Field = 345..500;

/// Kinds of members, as headers write them.
pub(crate) mod kind {
    pub(crate) const REGULAR: u8 = b'0';
    pub(crate) const LINK: u8 = b'1';
    pub(crate) const SYMLINK: u8 = b'2';
    pub(crate) const CHAR: u8 = b'3';
    pub(crate) const BLOCK: u8 = b'4';
    pub(crate) const DIRECTORY: u8 = b'5';
    pub(crate) const FIFO: u8 = b'6';
    /// A name for the archive.
    pub(crate) const VOLUME: u8 = b'V';
    pub(super) const CONTIGUOUS: u8 = b'7';
    pub(super) const PAX: u8 = b'x';
    pub(super) const PAX_GLOBAL: u8 = b'g';
    pub(super) const GNU_NAME: u8 = b'L';
    pub(super) const GNU_LINK: u8 = b'K';
    pub(super) const GNU_SPARSE: u8 = b'S';
}

/// One thing in an archive, without its bytes.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) kind: u8,
    pub(crate) name: Vec<u8>,
    /// What a link says.
    pub(crate) link: Vec<u8>,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) size: u64,
    pub(crate) mtime: Timestamp,
    pub(crate) atime: Option<Timestamp>,
    pub(crate) major: u32,
    pub(crate) minor: u32,
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// ACLs in words, by the end of their key: `access`, `default`.
    pub(crate) acls: Vec<(Vec<u8>, Vec<u8>)>,
    /// For a file with holes: what lies between them. The archive has these bytes only, while
    /// `size` is the file's.
    pub(crate) pieces: Option<Vec<Piece>>,
    /// What is wrong with it, so that it cannot be made.
    pub(crate) damage: Option<&'static str>,
}

fn bad(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

/// Reads members in their order.
pub(crate) struct Reader<R> {
    input: R,
    /// Bytes of the last member that the caller has not read yet.
    left: u64,
    padding: u64,
    /// It had a mark at its end.
    marked: bool,
    globals: Globals,
}

impl<R: Read> Reader<R> {
    pub(crate) fn new(input: R) -> Reader<R> {
        Reader {
            input,
            left: 0,
            padding: 0,
            marked: false,
            globals: Globals::default(),
        }
    }

    /// Whether it ended, when [`Reader::next`] said `None`, as archives do: with a block of zeros.
    /// Without, it may have been cut short.
    pub(crate) fn marked(&self) -> bool {
        self.marked
    }

    /// The next member; `None` at the end. Its content can be read from the reader until the next
    /// call.
    ///
    /// # Errors
    /// Those of the input; `InvalidData` if it is no archive.
    pub(crate) fn next(&mut self) -> io::Result<Option<Member>> {
        let (mut extra, mut name, mut link) = (Vec::new(), None, None);
        // A header has come that is about the member after it.
        let mut announced = false;
        loop {
            self.skip()?;
            let mut header = [0; BLOCK];
            let len = fill(&mut self.input, &mut header)?;
            let end = len == 0 || (len == BLOCK && header.iter().all(|&byte| byte == 0));
            if end && announced {
                return Err(bad("it ends after a header that is about what follows"));
            }
            if end {
                self.marked = len > 0;
                return Ok(None);
            }
            if len < BLOCK {
                return Err(bad("it ends in the middle of a header"));
            }
            let mut member = plain(&header)?;
            announced |= matches!(member.kind, kind::PAX | kind::GNU_NAME | kind::GNU_LINK);
            match member.kind {
                kind::PAX => extra = self.extra(member.size)?,
                kind::PAX_GLOBAL => {
                    let lines = self.extra(member.size)?;
                    self.globals.learn(&lines)?;
                }
                kind::GNU_NAME => name = Some(text(&self.extra(member.size)?)),
                kind::GNU_LINK => link = Some(text(&self.extra(member.size)?)),
                _ => {
                    member.name = name.unwrap_or(member.name);
                    member.link = link.unwrap_or(member.link);
                    let told = self.globals.tell(&extra, &mut member)?;
                    self.begin(&header, &mut member, told)?;
                    return Ok(Some(member));
                }
            }
        }
    }

    /// Goes to the bytes of a member. One with holes gets its pieces, and the size and name that
    /// the file has.
    fn begin(&mut self, header: &[u8; BLOCK], member: &mut Member, told: Told) -> io::Result<()> {
        let empty = matches!(
            member.kind,
            kind::LINK | kind::SYMLINK | kind::CHAR | kind::BLOCK | kind::DIRECTORY | kind::FIFO
        );
        let stored = if empty { 0 } else { member.size };
        let pieces = if member.kind == kind::GNU_SPARSE {
            let (pieces, size) = sparse::of_header(header, &mut self.input)?;
            (member.kind, member.size) = (kind::REGULAR, size);
            self.announce(stored);
            Some(pieces)
        } else {
            self.announce(stored);
            let pieces = match told.form() {
                Form::None => return Ok(()),
                _ if member.kind != kind::REGULAR => return Ok(()),
                Form::Here(pieces) => Some(pieces),
                Form::Before => sparse::before(self)?,
                Form::Unknown => None,
            };
            member.name = told.name.unwrap_or(std::mem::take(&mut member.name));
            member.size = told.size.unwrap_or(member.size);
            pieces
        };
        let fits = |pieces: &Vec<Piece>| sparse::fits(pieces, member.size, self.left);
        member.pieces = pieces.filter(fits);
        if member.pieces.is_none() {
            member.damage = Some("a file with holes whose map is damaged");
        }
        Ok(())
    }

    fn announce(&mut self, size: u64) {
        // At most `i64::MAX`: what headers say is checked.
        self.left = size;
        self.padding = size.wrapping_neg() % BLOCK as u64;
    }

    /// The content of a header's own.
    fn extra(&mut self, size: u64) -> io::Result<Vec<u8>> {
        if size > MAX_EXTRA {
            return Err(bad(format!("a header of {size} bytes")));
        }
        self.announce(size);
        let mut content = Vec::new();
        self.read_to_end(&mut content)?;
        if content.len() as u64 != size {
            return Err(bad("it ends in the middle of a header"));
        }
        Ok(content)
    }

    /// Goes past what was not read.
    fn skip(&mut self) -> io::Result<()> {
        let rest = self.left.saturating_add(self.padding);
        let gone = io::copy(&mut (&mut self.input).take(rest), &mut io::sink())?;
        if gone < rest {
            return Err(bad("it ends in the middle of a file"));
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }
}

impl<R: Read> Read for Reader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (&mut self.input).take(self.left).read(buf)?;
        self.left = self.left.saturating_sub(len as u64);
        Ok(len)
    }
}

/// Fills the buffer as far as there is something to read.
pub(crate) fn fill(from: &mut dyn Read, buf: &mut [u8]) -> io::Result<usize> {
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

fn field(header: &[u8; BLOCK], at: Field) -> &[u8] {
    header.get(at).unwrap_or(&[])
}

/// Bytes up to the first zero.
fn text(bytes: &[u8]) -> Vec<u8> {
    let end = bytes.iter().position(|&byte| byte == 0);
    bytes
        .get(..end.unwrap_or(bytes.len()))
        .unwrap_or(&[])
        .to_vec()
}

/// A number: octal digits among blanks, or big-endian bytes where the first bit is set.
fn number(header: &[u8; BLOCK], at: Field) -> io::Result<i64> {
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
    let word = str::from_utf8(&word).map_err(|_| wrong())?.trim();
    if word.is_empty() {
        return Ok(0);
    }
    if word.starts_with(['+', '-']) {
        return Err(wrong());
    }
    i64::from_str_radix(word, 8).map_err(|_| wrong())
}

/// What a header says by itself.
fn plain(header: &[u8; BLOCK]) -> io::Result<Member> {
    let sums = |signed: bool| -> i64 {
        let bytes = header.iter().enumerate();
        let value = |(i, &byte): (usize, &u8)| match byte {
            _ if CHECKSUM.contains(&i) => i64::from(b' '),
            byte if signed => i64::from(byte.cast_signed()),
            byte => i64::from(byte),
        };
        bytes.map(value).sum()
    };
    let sum = number(header, CHECKSUM).map_err(|_| bad("no header of an archive"))?;
    // Some writers of old add signed bytes.
    if sum != sums(false) && sum != sums(true) {
        return Err(bad("no header of an archive: its checksum is wrong"));
    }
    let mut name = text(field(header, NAME));
    let prefix = text(field(header, PREFIX));
    if field(header, MAGIC) == b"ustar\x0000" && !prefix.is_empty() {
        name = [&prefix, &b"/"[..], &name].concat();
    }
    let kind = match header.get(KIND).copied().unwrap_or(0) {
        0 | kind::REGULAR if name.ends_with(b"/") => kind::DIRECTORY,
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
        link: text(field(header, LINK)),
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
mod tests;
