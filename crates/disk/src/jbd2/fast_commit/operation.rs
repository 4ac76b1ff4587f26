//! Operations that a fast commit records.

use extant_units::{Ino, Lblk};

use super::record::{
    RECORD_HEADER, TAG_ADD_RANGE, TAG_CREAT, TAG_DEL_RANGE, TAG_HEAD, TAG_INODE, TAG_LINK, TAG_PAD,
    TAG_UNLINK, field, split_record,
};
use crate::dirent::MAX_NAME_LEN;
use crate::extent::Extent;
use crate::inode::GOOD_OLD_SIZE;

/// A record that is none of the known ones, or whose length its tag does not allow.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[error("a record with tag {tag} and {len} bytes")]
pub struct OperationError {
    /// Its tag.
    pub tag: u16,
    /// Bytes of its value.
    pub len: usize,
}

/// An entry of a directory that came or went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EntryChange<'a> {
    /// The directory.
    pub parent: Ino,
    /// The inode that the entry leads to.
    pub ino: Ino,
    /// Its name, 1 to 255 bytes of any value.
    pub name: &'a [u8],
}

/// Something that was done since the last transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation<'a> {
    /// Blocks of a file have this location and state.
    AddRange(Ino, Extent),
    /// `len` blocks from a block on are a hole.
    DelRange {
        /// The file.
        ino: Ino,
        /// Its first block.
        lblk: Lblk,
        /// Their number.
        len: u32,
    },
    /// A new inode, whose record came before, has its first name.
    Create(EntryChange<'a>),
    /// An inode has one more name.
    Link(EntryChange<'a>),
    /// A name is gone.
    Unlink(EntryChange<'a>),
    /// The record of an inode, or the part of it in front of the attributes.
    Inode(Ino, &'a [u8]),
    /// Nothing: a head, or padding.
    Nothing,
}

impl<'a> Operation<'a> {
    /// Reads the record of `tag` with `value`.
    pub(super) fn parse(tag: u16, value: &'a [u8]) -> Result<Self, OperationError> {
        let parsed = match tag {
            TAG_ADD_RANGE => add_range(value),
            TAG_DEL_RANGE => del_range(value),
            TAG_CREAT => entry(value).map(Self::Create),
            TAG_LINK => entry(value).map(Self::Link),
            TAG_UNLINK => entry(value).map(Self::Unlink),
            TAG_INODE => ino(value).and_then(|ino| {
                let record = value.get(4..)?;
                (record.len() >= GOOD_OLD_SIZE).then_some(Self::Inode(ino, record))
            }),
            TAG_HEAD if value.len() != 8 => None,
            TAG_HEAD | TAG_PAD => Some(Self::Nothing),
            _ => None,
        };
        let len = value.len();
        parsed.ok_or(OperationError { tag, len })
    }

    /// The tag and the value of a record that says this; `None` for what no record says.
    pub(super) fn encode(&self) -> Option<(u16, Vec<u8>)> {
        let (tag, ino) = match self {
            Self::AddRange(ino, _) => (TAG_ADD_RANGE, *ino),
            Self::DelRange { ino, .. } => (TAG_DEL_RANGE, *ino),
            Self::Create(change) => (TAG_CREAT, change.parent),
            Self::Link(change) => (TAG_LINK, change.parent),
            Self::Unlink(change) => (TAG_UNLINK, change.parent),
            Self::Inode(ino, _) => (TAG_INODE, *ino),
            Self::Nothing => return None,
        };
        let mut value = ino.get().to_le_bytes().to_vec();
        match self {
            Self::AddRange(_, extent) => value.extend(extent.encode().ok()?),
            Self::DelRange { lblk, len, .. } => {
                value.extend(lblk.get().to_le_bytes());
                value.extend(len.to_le_bytes());
            }
            Self::Create(change) | Self::Link(change) | Self::Unlink(change) => {
                let fits = (1..=MAX_NAME_LEN).contains(&change.name.len());
                value.extend(fits.then_some(change.ino.get().to_le_bytes())?);
                value.extend(change.name);
            }
            Self::Inode(_, record) if record.len() >= GOOD_OLD_SIZE => value.extend(*record),
            Self::Inode(..) => return None,
            Self::Nothing => {}
        }
        Some((tag, value))
    }
}

fn ino(value: &[u8]) -> Option<Ino> {
    Ino::new(field(value, 0)?)
}

fn add_range(value: &[u8]) -> Option<Operation<'_>> {
    let slot = value.get(4..)?.try_into().ok()?;
    let extent = Extent::decode(slot);
    (extent.len > 0).then_some(Operation::AddRange(ino(value)?, extent))
}

fn del_range(value: &[u8]) -> Option<Operation<'_>> {
    let range = Operation::DelRange {
        ino: ino(value)?,
        lblk: Lblk::new(field(value, 4)?),
        len: field(value, 8)?,
    };
    (value.len() == 12).then_some(range)
}

fn entry(value: &[u8]) -> Option<EntryChange<'_>> {
    let name = value.get(8..)?;
    (1..=MAX_NAME_LEN).contains(&name.len()).then_some(())?;
    Some(EntryChange {
        parent: ino(value)?,
        ino: Ino::new(field(value, 4)?)?,
        name,
    })
}

/// The operations of one fast commit, in order.
#[derive(Clone, Debug)]
pub struct Operations<'a>(&'a [u8]);

impl<'a> Operations<'a> {
    /// Those of the records of a fast commit, as [`super::FastCommitScan::into_complete`] returns
    /// them.
    pub const fn of(records: &'a [u8]) -> Self {
        Self(records)
    }
}

impl<'a> Iterator for Operations<'a> {
    type Item = Result<Operation<'a>, OperationError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let Some((tag, value)) = split_record(self.0) else {
            let len = self.0.len();
            self.0 = &[];
            return Some(Err(OperationError { tag: 0, len }));
        };
        self.0 = self
            .0
            .get(RECORD_HEADER + value.len()..)
            .unwrap_or_default();
        Some(Operation::parse(tag, value))
    }
}
