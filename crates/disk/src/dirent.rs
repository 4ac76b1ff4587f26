//! Directory entries: the blocks of a linear directory and the leaves of an indexed one.
//!
//! A block is a chain of records, each `rec_len` bytes long, that fills it exactly. A record with
//! inode 0 is free space; a record longer than its name needs has free space behind the name. With
//! `metadata_csum` the last 12 bytes look like one more free record and hold the block's checksum
//! ([`DirTail`]).
//!
//! [`DirFormat`] carries what the directory and the file system say about the blocks (size, file
//! types, checksum seed, largest inode number); every function is bounded by the block it is given,
//! and every function that changes a block leaves it sealed. Changes are in [`crate::dir_edit`],
//! index blocks in [`crate::htree`].

use core::mem::{offset_of, size_of};
use core::ops::Range;

use extant_units::{BlockSize, Ino};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use extant_casefold as casefold;

use crate::csum::Crc32c;
use crate::dir_hash::DirHash;
use crate::entry_hash;

/// The longest name in bytes (`EXT4_NAME_LEN`).
pub const MAX_NAME_LEN: usize = 255;

/// The fixed part of a record (`ext4_dir_entry_2`): the name follows.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DirEntryHeader {
    /// The inode, or zero for free space.
    pub inode: U32,
    /// Bytes to the next record, see [`DirFormat::decode_rec_len`].
    pub rec_len: U16,
    /// Bytes of the name.
    pub name_len: u8,
    /// [`FileType`] with the `filetype` feature, else zero: the high half of a 16-bit name length.
    pub file_type: u8,
}

/// The record that ends a checksummed block (`ext4_dir_entry_tail`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct DirTail {
    /// Zero: no inode.
    pub zero_inode: U32,
    /// 12.
    pub rec_len: U16,
    /// Zero: no name.
    pub zero_name_len: u8,
    /// [`DirTail::FILE_TYPE`].
    pub file_type: u8,
    /// crc32c of the block up to this record, seeded by inode number and generation.
    pub checksum: U32,
}

const _: () = assert!(size_of::<DirEntryHeader>() == 8);
const _: () = assert!(offset_of!(DirEntryHeader, rec_len) == 4);
const _: () = assert!(size_of::<DirTail>() == 12);
const _: () = assert!(offset_of!(DirTail, checksum) == 8);

impl DirTail {
    /// The file type that marks a tail.
    pub const FILE_TYPE: u8 = 0xde;
    /// Bytes of a tail.
    pub const SIZE: usize = size_of::<Self>();
}

/// The kind of file an entry says it leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(u8)]
pub enum FileType {
    /// Not recorded: the file system has no `filetype` feature, or the byte is unknown.
    Unknown = 0,
    /// A regular file.
    Regular = 1,
    /// A directory.
    Directory = 2,
    /// A character device.
    CharDevice = 3,
    /// A block device.
    BlockDevice = 4,
    /// A named pipe.
    Fifo = 5,
    /// A socket.
    Socket = 6,
    /// A symbolic link.
    Symlink = 7,
}

impl FileType {
    /// The type for an on-disk byte; unknown ones are [`FileType::Unknown`].
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Regular,
            2 => Self::Directory,
            3 => Self::CharDevice,
            4 => Self::BlockDevice,
            5 => Self::Fifo,
            6 => Self::Socket,
            7 => Self::Symlink,
            _ => Self::Unknown,
        }
    }
}

/// Damage of a directory block. Offsets are bytes in the block.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DirentError {
    /// The bytes are not one block.
    #[error("directory block has {found} bytes, not {expected}")]
    BlockSize {
        /// Bytes given.
        found: usize,
        /// Bytes in a block.
        expected: usize,
    },
    /// A record too short for its header and name, or not a multiple of four.
    #[error(
        "directory entry at byte {offset}: bad record length {rec_len} \
         for a name of {name_len} bytes"
    )]
    RecordLength {
        /// Byte at which the record starts.
        offset: usize,
        /// Its length.
        rec_len: usize,
        /// The length of its name.
        name_len: usize,
    },
    /// A record that ends past the block, or leaves a rest too small for a record.
    #[error("directory entry at byte {offset}: record of {rec_len} bytes overruns the block")]
    Overrun {
        /// Byte at which the record starts.
        offset: usize,
        /// Its length.
        rec_len: usize,
    },
    /// An inode number past the last inode.
    #[error("directory entry at byte {offset}: inode {inode} out of bounds")]
    InodeRange {
        /// Byte at which the record starts.
        offset: usize,
        /// The inode number.
        inode: u32,
    },
    /// A name that is empty or holds a slash or a NUL.
    #[error("directory entry at byte {offset}: impossible name")]
    Name {
        /// Byte at which the record starts.
        offset: usize,
    },
    /// The first block does not begin with "." and "..".
    #[error("directory does not begin with '.' and '..'")]
    NoDots,
    /// `metadata_csum` is on and the block has no checksum record.
    #[error("directory block without a checksum record")]
    NoTail,
    /// The checksum does not match.
    #[error("directory block checksum {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Stored.
        found: u32,
        /// Computed.
        expected: u32,
    },
    /// No record starts at this byte: the caller's idea of the block is out of date.
    #[error("no directory entry at byte {offset}")]
    NoEntry {
        /// The byte.
        offset: usize,
    },
}

/// A record of a directory block, free space included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record<'a> {
    /// Byte of the block at which it starts.
    pub offset: usize,
    /// Its length: a multiple of four, within the block.
    pub rec_len: usize,
    /// The inode, or `None` for free space.
    pub ino: Option<Ino>,
    /// The kind of file recorded.
    pub file_type: FileType,
    /// The name. Unchecked beyond its length, see [`Record::check_name`]; meaningless for free
    /// space.
    pub name: &'a [u8],
    /// The hash behind the name, in a directory that has such; not of "." and "..".
    pub hash: Option<DirHash>,
}

impl Record<'_> {
    /// Bytes of the record that its header and name need: zero for free space.
    pub const fn used(&self) -> usize {
        match self.ino {
            Some(_) => rec_len_for(self.name.len()) + entry_hash::room_of(self.hash),
            None => 0,
        }
    }

    /// Returns whether the name is one that a path could hold: not empty, no slash, no NUL.
    ///
    /// # Errors
    /// [`DirentError::Name`].
    pub fn check_name(&self) -> Result<(), DirentError> {
        if self.name.is_empty() || self.name.iter().any(|&b| b == 0 || b == b'/') {
            return Err(DirentError::Name {
                offset: self.offset,
            });
        }
        Ok(())
    }
}

/// An entry of a block, as the search for its name found it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntrySlot {
    /// Byte of the block at which it starts.
    pub offset: usize,
    /// The same of the record before it; `None` if it is the block's first.
    pub(crate) before: Option<usize>,
}

/// Record as a walk that looks for one of them sees it.
#[derive(Clone, Copy)]
pub(crate) struct Glimpse {
    /// Byte of the block at which it starts.
    pub(crate) offset: usize,
    /// Its length: a multiple of four, within the block.
    pub(crate) rec_len: usize,
    /// True if it has an inode.
    pub(crate) in_use: bool,
    /// The length of its name, which may be too long for the record.
    pub(crate) name_len: usize,
}

impl Glimpse {
    /// Byte at which the next record starts.
    #[inline]
    pub(crate) const fn end(&self) -> usize {
        self.offset + self.rec_len
    }
}

/// The record length that a name of `name_len` bytes needs: header and name, rounded up to four. A
/// damaged entry without a name keeps the least that a record may have.
#[inline]
pub const fn rec_len_for(name_len: usize) -> usize {
    let name_len = if name_len == 0 { 1 } else { name_len };
    (size_of::<DirEntryHeader>() + name_len + 3) & !3
}

/// How the blocks of one directory are laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirFormat {
    /// The block size.
    pub block_size: BlockSize,
    /// True if entries record file types (`filetype`).
    pub file_type: bool,
    /// The largest inode number (`s_inodes_count`).
    pub max_ino: u32,
    /// With `metadata_csum`: the directory's checksum seed
    /// ([`crate::inode::InodeFormat::inode_seed`]).
    pub seed: Option<Crc32c>,
    /// A name is found in any spelling of its case (`casefold`, the directory's flag), by its
    /// [`casefold::key`].
    pub folded: bool,
    /// Entries have the hashes of their names behind them ([`crate::entry_hash`]).
    pub hashes: bool,
}

impl DirFormat {
    /// End of the entries of a block: its size, less the tail.
    #[inline]
    pub const fn entries_end(&self) -> usize {
        match self.seed {
            Some(_) => self.block_size.bytes() - DirTail::SIZE,
            None => self.block_size.bytes(),
        }
    }

    /// The bytes that a stored record length stands for. In 64 KiB blocks the whole block is stored
    /// as 65535 or 0, and the two low bits, always free, would hold bits 16 and 17.
    #[inline]
    pub const fn decode_rec_len(&self, raw: u16) -> usize {
        let raw = raw as usize;
        if self.block_size.bytes() <= 0xffff {
            return raw;
        }
        match raw {
            0 | 0xffff => self.block_size.bytes(),
            _ => (raw & 0xfffc) | ((raw & 3) << 16),
        }
    }

    /// The stored form of a record length: at most the block size and a multiple of four.
    #[inline]
    pub fn encode_rec_len(&self, rec_len: usize) -> u16 {
        debug_assert!(rec_len <= self.block_size.bytes() && rec_len.is_multiple_of(4));
        // A whole block of 64 KiB, the one length that does not fit, is stored as 65535.
        u16::try_from(rec_len).unwrap_or(u16::MAX)
    }

    /// The records of `block`, in order. The walk ends after the first error.
    pub fn records<'a>(&self, block: &'a [u8]) -> Records<'a> {
        self.records_in(block, 0..self.entries_end())
    }

    /// The records of the bytes `part` of `data`, which they fill.
    pub(crate) fn records_in<'a>(&self, data: &'a [u8], part: Range<usize>) -> Records<'a> {
        Records {
            format: *self,
            end: part.end,
            block: data,
            offset: part.start,
        }
    }

    /// The record that starts at `offset`, checked against `end`, the end of the entries.
    fn record_at<'a>(
        &self,
        block: &'a [u8],
        offset: usize,
        end: usize,
    ) -> Result<Record<'a>, DirentError> {
        let overrun = |rec_len| DirentError::Overrun { offset, rec_len };
        let rest = block.get(offset..end).ok_or(overrun(0))?;
        let (header, tail) = DirEntryHeader::ref_from_prefix(rest).map_err(|_| overrun(0))?;
        let rec_len = self.decode_rec_len(header.rec_len.get());
        let name_len = usize::from(header.name_len);
        let has_hash = self.hashes
            && header.inode.get() != 0
            && !matches!(tail.get(..name_len), Some(b"." | b".."));
        let hash_at = has_hash.then(|| rec_len_for(name_len));
        let least = rec_len_for(name_len) + hash_at.map_or(0, |_| entry_hash::BYTES);
        if rec_len < least || !rec_len.is_multiple_of(4) {
            return Err(DirentError::RecordLength {
                offset,
                rec_len,
                name_len,
            });
        }
        if rec_len > rest.len() || (1..rec_len_for(1)).contains(&(rest.len() - rec_len)) {
            return Err(overrun(rec_len));
        }
        let inode = header.inode.get();
        if inode > self.max_ino {
            return Err(DirentError::InodeRange { offset, inode });
        }
        Ok(Record {
            offset,
            rec_len,
            ino: Ino::new(inode),
            file_type: if self.file_type {
                FileType::from_raw(header.file_type)
            } else {
                FileType::Unknown
            },
            name: tail.get(..name_len).ok_or(overrun(rec_len))?,
            hash: hash_at.and_then(|at| entry_hash::read(rest, at)),
        })
    }

    /// Calls `visit` with each record until it returns an answer. Checks of a record what the walk
    /// needs and no more: blocks are checked as a whole when they are read.
    ///
    /// # Errors
    /// A record whose length cannot be right.
    #[inline]
    pub(crate) fn scan<R>(
        &self,
        block: &[u8],
        mut visit: impl FnMut(Glimpse) -> Option<R>,
    ) -> Result<Option<R>, DirentError> {
        let end = self.entries_end();
        let mut offset = 0;
        while offset < end {
            let Some(glimpse) = self.glimpse(block, offset, end) else {
                // It refuses all that a glimpse does, and says why.
                let record = self.record_at(block, offset, end);
                return Err(record.expect_err("a record that a glimpse refuses"));
            };
            if let Some(answer) = visit(glimpse) {
                return Ok(Some(answer));
            }
            offset = glimpse.end();
        }
        Ok(None)
    }

    /// The record at `offset`, where one started when the block was searched.
    pub(crate) fn glimpse_again(&self, block: &[u8], offset: usize) -> Option<Glimpse> {
        let end = self.entries_end();
        (offset < end).then(|| self.glimpse(block, offset, end))?
    }

    /// The header of the record at `offset`, if the record ends by `end`.
    #[inline]
    fn glimpse(&self, block: &[u8], offset: usize, end: usize) -> Option<Glimpse> {
        let header: &[u8; size_of::<DirEntryHeader>()] = block.get(offset..)?.first_chunk()?;
        let [i0, i1, i2, i3, r0, r1, name_len, _] = *header;
        let rec_len = self.decode_rec_len(u16::from_le_bytes([r0, r1]));
        let fits =
            rec_len >= rec_len_for(1) && rec_len.is_multiple_of(4) && rec_len <= end - offset;
        fits.then_some(Glimpse {
            offset,
            rec_len,
            in_use: [i0, i1, i2, i3] != [0; 4],
            name_len: name_len.into(),
        })
    }

    /// Checks a block of entries: size, checksum, and that its records fill it.
    ///
    /// # Errors
    /// The first fault found.
    pub fn check_leaf(&self, block: &[u8]) -> Result<(), DirentError> {
        self.check_size(block)?;
        if let Some(seed) = self.seed {
            let (body, tail) = DirTail::ref_from_suffix(block)
                .map(|(body, tail)| (body, *tail))
                .map_err(|_| DirentError::NoTail)?;
            if tail.zero_inode.get() != 0
                || usize::from(tail.rec_len.get()) != DirTail::SIZE
                || tail.zero_name_len != 0
                || tail.file_type != DirTail::FILE_TYPE
            {
                return Err(DirentError::NoTail);
            }
            let (found, expected) = (tail.checksum.get(), seed.feed(body).raw());
            if found != expected {
                return Err(DirentError::Checksum { found, expected });
            }
        }
        self.records(block).try_for_each(|r| r.map(drop))
    }

    /// Checks that `block` is one block long.
    pub(crate) fn check_size(&self, block: &[u8]) -> Result<(), DirentError> {
        let expected = self.block_size.bytes();
        if block.len() == expected {
            Ok(())
        } else {
            Err(DirentError::BlockSize {
                found: block.len(),
                expected,
            })
        }
    }

    /// Writes the tail of a block of entries, with its checksum; nothing without `metadata_csum`.
    pub fn seal_leaf(&self, block: &mut [u8]) {
        let Some(seed) = self.seed else { return };
        let Ok((body, tail)) = DirTail::mut_from_suffix(block) else {
            return;
        };
        *tail = DirTail {
            zero_inode: U32::ZERO,
            rec_len: U16::new(12),
            zero_name_len: 0,
            file_type: DirTail::FILE_TYPE,
            checksum: U32::new(seed.feed(body).raw()),
        };
    }

    /// The entry called `name`, if the block has one.
    ///
    /// # Errors
    /// A broken record: the entry itself, or one before it that the walk cannot pass.
    pub fn find<'a>(
        &self,
        block: &'a [u8],
        name: &[u8],
    ) -> Result<Option<Record<'a>>, DirentError> {
        self.find_past(block, name, |_| ())
    }

    /// As [`DirFormat::find`], with what [`DirFormat::remove_slot`] needs.
    ///
    /// # Errors
    /// As [`DirFormat::find`].
    pub fn find_slot<'a>(
        &self,
        block: &'a [u8],
        name: &[u8],
    ) -> Result<Option<(Record<'a>, EntrySlot)>, DirentError> {
        let mut before = None;
        let found = self.find_past(block, name, |passed| before = Some(passed.offset))?;
        Ok(found.map(|record| {
            let offset = record.offset;
            (record, EntrySlot { offset, before })
        }))
    }

    /// As [`DirFormat::find`]; calls `pass` with each record before the entry.
    #[inline]
    pub(crate) fn find_past<'a>(
        &self,
        block: &'a [u8],
        name: &[u8],
        pass: impl FnMut(&Glimpse),
    ) -> Result<Option<Record<'a>>, DirentError> {
        if self.folded {
            let key = casefold::key(name);
            return self.first_of(block, pass, |start, len| {
                let entry = block.get(start..start + len);
                let is_dot = matches!(entry, Some(b"." | b".."));
                !is_dot && entry.is_some_and(|entry| casefold::has_key(entry, &key))
            });
        }
        self.first_of(block, pass, |start, len| {
            len == name.len()
                // The last byte first: names in one directory often begin alike.
                && block.get(start + len - 1) == name.last()
                && block.get(start..start + len) == Some(name)
        })
    }

    /// The first entry of which `is_wanted` knows the name, by its start and length; calls `pass`
    /// with each record before it.
    #[inline]
    pub(crate) fn first_of<'a>(
        &self,
        block: &'a [u8],
        mut pass: impl FnMut(&Glimpse),
        is_wanted: impl Fn(usize, usize) -> bool,
    ) -> Result<Option<Record<'a>>, DirentError> {
        let at = self.scan(block, |glimpse| {
            let start = glimpse.offset + size_of::<DirEntryHeader>();
            let found = glimpse.in_use && is_wanted(start, glimpse.name_len);
            if !found {
                pass(&glimpse);
            }
            found.then_some(glimpse.offset)
        })?;
        let end = self.entries_end();
        at.map(|at| self.record_at(block, at, end)).transpose()
    }

    /// The "." and ".." that begin a directory's first block, linear or index root: this
    /// directory's inode and its parent's.
    ///
    /// # Errors
    /// [`DirentError::NoDots`] if the block begins otherwise.
    pub fn dots(&self, block: &[u8]) -> Result<(Ino, Ino), DirentError> {
        let full = self.block_size.bytes();
        let dot = self.record_at(block, 0, full)?;
        let dotdot = self.record_at(block, DOT_LEN, full)?;
        match (dot.ino, dotdot.ino) {
            (Some(own), Some(parent))
                if dot.rec_len == DOT_LEN && dot.name == b"." && dotdot.name == b".." =>
            {
                Ok((own, parent))
            }
            _ => Err(DirentError::NoDots),
        }
    }
}

/// Bytes of the "." record: ".." starts here.
pub(crate) const DOT_LEN: usize = rec_len_for(1);

/// The walk of [`DirFormat::records`]. Ends by itself: every record is at least 12 bytes long.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    format: DirFormat,
    block: &'a [u8],
    offset: usize,
    end: usize,
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>, DirentError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.offset >= self.end {
            return None;
        }
        let record = self.format.record_at(self.block, self.offset, self.end);
        self.offset = match &record {
            Ok(record) => record.offset + record.rec_len,
            Err(_) => self.end,
        };
        Some(record)
    }
}

#[cfg(test)]
pub(crate) mod tests;
