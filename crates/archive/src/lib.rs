//! Archives: headers of 512 bytes, each followed by its member's bytes, padded to 512.
//!
//! Reads ustar, pax and GNU's format; writes pax headers where a plain one has no room. An archive
//! is not trusted: what a header says is checked, and only headers are kept in memory, up to a
//! limit.
//!
//! The format is read here because the `tar` crate (0.4.46) cuts pax headers at line ends, where
//! this goes by the length that each record says (tar-rs#428, #452): there an attribute with a line
//! end in its value is lost, and one that looks like a record renames its file.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

use std::io::{self, Read};

pub mod acl;
mod header;
mod input;
mod pax;
mod sparse;
mod window;
mod writer;

pub use header::{BLOCK, Member, Piece, Timestamp, fill, kind};
pub use input::{Input, Stream};
pub use pax::timestamp;
pub use sparse::MAX_PIECES;
pub use window::Window;
pub use writer::Writer;

use header::{bad, plain, text};
use pax::Globals;
use sparse::{Form, SparseHeaders};

/// Longest header that names, links and attributes may need.
const MAX_EXTRA: u64 = 16 << 20;
/// The longest archive without a member, which is zeros: 8 of the largest records that are in use.
const MAX_EMPTY: u64 = 16 << 20;

/// Reads members in their order.
pub struct Reader<R> {
    input: R,
    /// Bytes of the last member that the caller has not read yet.
    left: u64,
    padding: u64,
    /// It had a mark at its end.
    marked: bool,
    /// A header was read.
    begun: bool,
    globals: Globals,
}

impl<R: Input> Reader<R> {
    /// Reads from the beginning of `input`.
    pub fn new(input: R) -> Reader<R> {
        Reader {
            input,
            left: 0,
            padding: 0,
            marked: false,
            begun: false,
            globals: Globals::default(),
        }
    }

    /// The input. Right after [`Reader::next_member`] it stands at the first byte of the member's
    /// content.
    pub fn input(&mut self) -> &mut R {
        &mut self.input
    }

    /// Bytes of the member's content in the archive that were not read yet.
    pub fn left(&self) -> u64 {
        self.left
    }

    /// Returns whether it ended, when [`Reader::next_member`] said `None`, as archives do: with a
    /// block of zeros. Without, it may have been cut short.
    pub fn marked(&self) -> bool {
        self.marked
    }

    /// The next member; `None` at the end. Its content can be read from the reader until the next
    /// call.
    ///
    /// # Errors
    /// Those of the input; `InvalidData` if it is no archive.
    pub fn next_member(&mut self) -> io::Result<Option<Member>> {
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
                self.check_empty(len)?;
                return Ok(None);
            }
            self.begun = true;
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
                kind::GNU_NAME => name = Some(text(&self.extra(member.size)?).to_vec()),
                kind::GNU_LINK => link = Some(text(&self.extra(member.size)?).to_vec()),
                _ => {
                    member.name = name.unwrap_or(member.name);
                    member.link = link.unwrap_or(member.link);
                    let sparse = self.globals.apply(&extra, &mut member)?;
                    // By the whole name: what a header has room for may end at a slash.
                    if member.kind == kind::REGULAR && member.name.ends_with(b"/") {
                        member.kind = kind::DIRECTORY;
                    }
                    self.begin(&header, &mut member, sparse)?;
                    return Ok(Some(member));
                }
            }
        }
    }

    /// Checks at the end that an archive without a member is one: it has a mark, and zeros behind
    /// it. What else begins with zeros, as images do, is none.
    fn check_empty(&mut self, len: usize) -> io::Result<()> {
        if self.begun {
            return Ok(());
        }
        if len == 0 {
            return Err(bad("nothing in it"));
        }
        let (mut buf, mut read) = ([0; 16 * BLOCK], 0);
        while read < MAX_EMPTY {
            let len = fill(&mut self.input, &mut buf)?;
            if buf.iter().take(len).any(|&byte| byte != 0) {
                break;
            }
            if len < buf.len() {
                return Ok(());
            }
            read += len as u64;
        }
        Err(bad("it begins with zeros, and is none"))
    }

    /// Goes to the bytes of a member. One with holes gets its pieces, and the size and name that
    /// the file has.
    fn begin(
        &mut self,
        header: &[u8; BLOCK],
        member: &mut Member,
        sparse: SparseHeaders,
    ) -> io::Result<()> {
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
            let pieces = match sparse.form() {
                Form::None => return Ok(()),
                _ if member.kind != kind::REGULAR => return Ok(()),
                Form::Here(pieces) => Some(pieces),
                Form::Before => sparse::before(self)?,
                Form::Unknown => None,
            };
            member.name = sparse.name.unwrap_or(std::mem::take(&mut member.name));
            member.size = sparse.size.unwrap_or(member.size);
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
        // A size near the largest number ends in an error when the input does.
        let rest = self.left.saturating_add(self.padding);
        if self.input.pass(rest)? < rest {
            return Err(bad("it ends in the middle of a file"));
        }
        (self.left, self.padding) = (0, 0);
        Ok(())
    }
}

impl<R: Input> Read for Reader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let len = (&mut self.input).take(self.left).read(buf)?;
        assert!(len as u64 <= self.left, "a limited read");
        self.left -= len as u64;
        Ok(len)
    }
}

#[cfg(test)]
mod tests;
