//! The index of a directory: root and node blocks of an htree.
//!
//! Block 0 of an indexed directory is the root: "." and "..", whose record hides the rest of the
//! block from readers that know no index, then [`RootInfo`] and index entries. Below it are zero,
//! one or (with `large_dir`) two levels of nodes, then leaves ([`crate::dirent`]). An index entry
//! says "names with this hash or a higher one are in that block", blocks being numbered within the
//! directory; the first has no hash of its own (it stands for zero) and keeps the table's limit and
//! count in its place. The lowest bit of a key says that the block before ends with names of the
//! same hash.
//!
//! As in [`crate::dirent`]: pure functions over one block, bounded by it; what changes a block
//! leaves it sealed.

use core::mem::{offset_of, size_of};

use extant_units::{Ino, Lblk, exact_u16};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::dir_edit::NewEntry;
use crate::dirent::{DOT_LEN, DirEntryHeader, DirFormat, DirentError, FileType, rec_len_for};

/// Info of a root about its tree (`dx_root_info`), at byte 24 of the block.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RootInfo {
    /// Zero.
    pub reserved_zero: U32,
    /// See [`crate::dir_hash::DirHasher::new`].
    pub hash_version: u8,
    /// 8: the size of this structure.
    pub info_length: u8,
    /// Levels of nodes between root and leaves.
    pub indirect_levels: u8,
    /// Bit 0 says "unknown to this version"; Linux refuses it.
    pub unused_flags: u8,
}

/// Limit and count of a table, in place of its first entry's hash (`dx_countlimit`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct CountLimit {
    /// Entries that fit, this one included.
    pub limit: U16,
    /// Entries in use, this one included.
    pub count: U16,
}

/// An entry of a table (`dx_entry`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct IndexEntry {
    /// The lowest hash in the block, bit 0 being the collision bit. In the first entry:
    /// [`CountLimit`].
    pub hash: U32,
    /// The block within the directory; the upper four bits are reserved.
    pub block: U32,
}

/// The last eight bytes of a checksummed index block (`dx_tail`).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct IndexTail {
    /// Zero.
    pub reserved: U32,
    /// crc32c of the header, the entries in use and this tail with a zero in this field.
    pub checksum: U32,
}

const _: () = assert!(size_of::<RootInfo>() == 8);
const _: () = assert!(offset_of!(RootInfo, indirect_levels) == 6);
const _: () = assert!(size_of::<CountLimit>() == 4);
const _: () = assert!(size_of::<IndexEntry>() == ENTRY);
const _: () = assert!(size_of::<IndexTail>() == 8);

/// Bytes of an index entry.
const ENTRY: usize = 8;
/// Start of the table of a root: two dot records and the info.
const ROOT_TABLE: usize = INFO + size_of::<RootInfo>();
/// Start of the info of a root.
const INFO: usize = 2 * DOT_LEN;
/// Start of the table of a node: one record without a name.
const NODE_TABLE: usize = size_of::<DirEntryHeader>();
/// The bits of [`IndexEntry::block`] that are a block number.
const BLOCK_MASK: u32 = 0x0fff_ffff;

/// Damage of an index block.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HtreeError {
    /// The part of it that is a directory block.
    #[error(transparent)]
    Entry(#[from] DirentError),
    /// The root's info is not one.
    #[error("index root with a bad header (info length {info_length}, flags {flags:#x})")]
    RootInfo {
        /// Should be 8.
        info_length: u8,
        /// Should be 0.
        flags: u8,
    },
    /// More levels than the file system's features allow.
    #[error("index of {0} indirect levels")]
    Levels(u8),
    /// A node does not begin with a free record that hides it.
    #[error("index node with a bad header")]
    NodeHeader,
    /// The table's limit is not what fits into the block.
    #[error("index with a limit of {found}, expected {expected}")]
    Limit {
        /// Stored.
        found: usize,
        /// The number that fits.
        expected: usize,
    },
    /// The table has no entries, or more than its limit.
    #[error("index with {count} entries of at most {limit}")]
    Count {
        /// Stored.
        count: usize,
        /// The number that fits.
        limit: usize,
    },
    /// Keys in falling order.
    #[error("index entry {at} is out of order")]
    Order {
        /// Its number.
        at: usize,
    },
    /// An entry of the table that is not there: the caller's idea of the block is out of date.
    #[error("no index entry {at}")]
    NoEntry {
        /// Its number.
        at: usize,
    },
    /// The checksum does not match.
    #[error("index block checksum {found:#010x}, expected {expected:#010x}")]
    Checksum {
        /// Stored.
        found: u32,
        /// Computed.
        expected: u32,
    },
}

/// Which kind of index block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum IndexKind {
    /// Block 0 of the directory.
    Root,
    /// Any other.
    Node,
}

/// The table of an index block: at least one entry, keys in rising order.
#[derive(Clone, Copy, Debug)]
pub struct HashIndex<'a> {
    entries: &'a [IndexEntry],
    limit: usize,
}

impl HashIndex<'_> {
    /// Entries in use: at least one.
    #[allow(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether no entry can be added.
    pub const fn is_full(&self) -> bool {
        self.entries.len() >= self.limit
    }

    /// The key of entry `at`, with its collision bit; zero for the first.
    pub fn key(&self, at: usize) -> Option<u32> {
        let entry = self.entries.get(at)?;
        Some(if at == 0 { 0 } else { entry.hash.get() })
    }

    /// The block that entry `at` leads to.
    pub fn block(&self, at: usize) -> Option<Lblk> {
        let entry = self.entries.get(at)?;
        Some(Lblk::new(entry.block.get() & BLOCK_MASK))
    }

    /// The entry whose block is the first that may hold names of hash `hash`.
    pub fn search(&self, hash: u32) -> usize {
        let keyed = &self.entries[1..];
        keyed.partition_point(|entry| entry.hash.get() <= hash)
    }
}

/// The outcome of [`DirFormat::split_node`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeSplit {
    /// The node for the lower keys: replaces the one that was full.
    pub low: Vec<u8>,
    /// The node for the higher ones: new.
    pub high: Vec<u8>,
    /// The key of `high` in its parent.
    pub key: u32,
}

impl DirFormat {
    const fn table_start(kind: IndexKind) -> usize {
        match kind {
            IndexKind::Root => ROOT_TABLE,
            IndexKind::Node => NODE_TABLE,
        }
    }

    /// Entries that fit into an index block.
    pub const fn index_limit(&self, kind: IndexKind) -> usize {
        let tail = if self.seed.is_some() {
            size_of::<IndexTail>()
        } else {
            0
        };
        (self.block_size.bytes() - Self::table_start(kind) - tail) / ENTRY
    }

    /// Returns whether `block`, not the first of its directory, has the shape of an index node: one
    /// free record over the whole block. A leaf with a tail cannot; without tails an empty leaf
    /// does, and reads the same.
    pub fn looks_like_node(&self, block: &[u8]) -> bool {
        DirEntryHeader::ref_from_prefix(block).is_ok_and(|(header, _)| {
            header.inode.get() == 0
                && self.decode_rec_len(header.rec_len.get()) == self.block_size.bytes()
        })
    }

    /// The info of a root block whose shape is checked; the table and the checksum are not.
    ///
    /// # Errors
    /// Bad dot records, a bad header, or more than `max_levels` indirect levels (1, or 2 with
    /// `large_dir`).
    pub fn root_info(&self, block: &[u8], max_levels: u8) -> Result<RootInfo, HtreeError> {
        self.check_size(block)?;
        self.dots(block)?;
        let (info, _) = RootInfo::read_from_prefix(block.get(INFO..).unwrap_or_default())
            .map_err(|_| HtreeError::NodeHeader)?;
        if usize::from(info.info_length) != size_of::<RootInfo>()
            || info.reserved_zero.get() != 0
            || info.unused_flags & 1 != 0
        {
            return Err(HtreeError::RootInfo {
                info_length: info.info_length,
                flags: info.unused_flags,
            });
        }
        if info.indirect_levels > max_levels {
            return Err(HtreeError::Levels(info.indirect_levels));
        }
        Ok(info)
    }

    /// The table of an index block, its limit and count checked.
    ///
    /// # Errors
    /// A limit other than what fits, or a count that is zero or above it.
    pub fn index<'a>(&self, block: &'a [u8], kind: IndexKind) -> Result<HashIndex<'a>, HtreeError> {
        self.check_size(block)?;
        if kind == IndexKind::Node && !self.looks_like_node(block) {
            return Err(HtreeError::NodeHeader);
        }
        let table = block.get(Self::table_start(kind)..).unwrap_or_default();
        let (head, _) = CountLimit::ref_from_prefix(table).map_err(|_| HtreeError::NodeHeader)?;
        let (limit, count) = (usize::from(head.limit.get()), usize::from(head.count.get()));
        let expected = self.index_limit(kind);
        if limit != expected {
            return Err(HtreeError::Limit {
                found: limit,
                expected,
            });
        }
        let bad_count = HtreeError::Count { count, limit };
        if count == 0 || count > limit {
            return Err(bad_count);
        }
        let (entries, _) =
            <[IndexEntry]>::ref_from_prefix_with_elems(table, count).map_err(|_| bad_count)?;
        Ok(HashIndex { entries, limit })
    }

    /// Checks an index block fresh from the disk: header, table, order of its keys, checksum.
    ///
    /// # Errors
    /// The first fault found. A root of more than `max_levels` indirect levels is one.
    pub fn check_index(
        &self,
        block: &[u8],
        kind: IndexKind,
        max_levels: u8,
    ) -> Result<(), HtreeError> {
        if kind == IndexKind::Root {
            self.root_info(block, max_levels)?;
        }
        let index = self.index(block, kind)?;
        let keyed = &index.entries[1..];
        let falls = |pair: &[IndexEntry]| matches!(pair, [a, b] if a.hash.get() > b.hash.get());
        if let Some(at) = keyed.windows(2).position(falls) {
            return Err(HtreeError::Order { at: at + 2 });
        }
        if let Some(expected) = self.index_checksum(block, kind, index.len()) {
            let found = self.stored_checksum(block);
            if found != expected {
                return Err(HtreeError::Checksum { found, expected });
            }
        }
        Ok(())
    }

    /// The checksum of an index block with `count` entries, or `None` without `metadata_csum`. It
    /// covers the block up to the last entry in use, the tail's reserved word and a zero in place
    /// of itself.
    fn index_checksum(&self, block: &[u8], kind: IndexKind, count: usize) -> Option<u32> {
        let used = block.get(..Self::table_start(kind) + count * ENTRY)?;
        let (_, tail) = IndexTail::ref_from_suffix(block).ok()?;
        let body = self.seed?.feed(used).feed(tail.reserved.as_bytes());
        Some(body.feed(&[0; 4]).raw())
    }

    fn stored_checksum(&self, block: &[u8]) -> u32 {
        IndexTail::ref_from_suffix(block).map_or(0, |(_, tail)| tail.checksum.get())
    }

    /// Stores the checksum of an index block that some change left without.
    ///
    /// # Errors
    /// A bad table.
    pub fn reseal_index(&self, block: &mut [u8], kind: IndexKind) -> Result<(), HtreeError> {
        let count = self.index(block, kind)?.len();
        self.seal_index(block, kind, count);
        Ok(())
    }

    fn seal_index(&self, block: &mut [u8], kind: IndexKind, count: usize) {
        if let Some(checksum) = self.index_checksum(block, kind, count)
            && let Ok((_, tail)) = IndexTail::mut_from_suffix(block)
        {
            tail.checksum = U32::new(checksum);
        }
    }

    /// Writes a table over what the block has, and seals it.
    fn put_table(&self, block: &mut [u8], kind: IndexKind, entries: &[(u32, Lblk)]) {
        let limit = self.index_limit(kind);
        debug_assert!(
            !entries.is_empty() && entries.len() <= limit,
            "the caller checked"
        );
        let Some(table) = block.get_mut(Self::table_start(kind)..) else {
            return;
        };
        table.fill(0);
        for (slot, (key, lblk)) in table.chunks_exact_mut(ENTRY).zip(entries) {
            let entry = IndexEntry {
                hash: U32::new(*key),
                block: U32::new(lblk.get()),
            };
            let _ = entry.write_to(slot);
        }
        // A table has at most the entries of a block of 64 KiB, 8192.
        let small = |n: usize| U16::new(exact_u16(n as u64));
        let head = CountLimit {
            limit: small(limit),
            count: small(entries.len()),
        };
        let _ = head.write_to_prefix(table);
        self.seal_index(block, kind, entries.len());
    }

    fn table(&self, block: &[u8], kind: IndexKind) -> Result<Vec<(u32, Lblk)>, HtreeError> {
        let index = self.index(block, kind)?;
        Ok((0..index.len())
            .filter_map(|at| Some((index.key(at)?, index.block(at)?)))
            .collect())
    }

    /// Adds an entry behind entry `after`.
    ///
    /// # Errors
    /// A bad table; a full one; an `after` past its end.
    pub fn insert_index(
        &self,
        block: &mut [u8],
        kind: IndexKind,
        after: usize,
        key: u32,
        lblk: Lblk,
    ) -> Result<(), HtreeError> {
        let index = self.index(block, kind)?;
        let (count, limit) = (index.len(), index.limit);
        if index.is_full() {
            return Err(HtreeError::Count {
                count: count + 1,
                limit,
            });
        }
        if after >= count {
            return Err(HtreeError::NoEntry { at: after });
        }
        let entry = IndexEntry {
            hash: U32::new(key),
            block: U32::new(lblk.get()),
        };
        let start = Self::table_start(kind);
        let (from, to) = (start + (after + 1) * ENTRY, start + count * ENTRY);
        if let Some(moved) = block.get_mut(from..to + ENTRY) {
            moved.copy_within(..to - from, ENTRY);
            let _ = entry.write_to_prefix(moved);
        }
        let count_at = start + offset_of!(CountLimit, count);
        if let Some(field) = block.get_mut(count_at..count_at + 2) {
            // At most the entries of a block of 64 KiB, 8192.
            field.copy_from_slice(&exact_u16(count as u64 + 1).to_le_bytes());
        }
        self.seal_index(block, kind, count + 1);
        Ok(())
    }

    /// Divides a full node: the upper half of its entries goes to a new one.
    ///
    /// # Errors
    /// A bad table, or one of a single entry.
    pub fn split_node(&self, source: &[u8]) -> Result<NodeSplit, HtreeError> {
        let entries = self.table(source, IndexKind::Node)?;
        let (lower, higher) = entries.split_at(entries.len() / 2);
        let (false, Some((key, _))) = (lower.is_empty(), higher.first()) else {
            return Err(HtreeError::NoEntry { at: 1 });
        };
        Ok(NodeSplit {
            low: self.new_node(lower),
            high: self.new_node(higher),
            key: *key,
        })
    }

    /// Adds a level below the root: its entries move to a node, `child`, the root's only entry.
    /// Returns the node's bytes.
    ///
    /// # Errors
    /// A bad root, or one that has `max_levels` already.
    pub fn grow(
        &self,
        root: &mut [u8],
        child: Lblk,
        max_levels: u8,
    ) -> Result<Vec<u8>, HtreeError> {
        let info = self.root_info(root, max_levels)?;
        if info.indirect_levels >= max_levels {
            return Err(HtreeError::Levels(max_levels + 1));
        }
        let node = self.new_node(&self.table(root, IndexKind::Root)?);
        if let Some(levels) = root.get_mut(INFO + offset_of!(RootInfo, indirect_levels)) {
            *levels = info.indirect_levels + 1;
        }
        self.put_table(root, IndexKind::Root, &[(0, child)]);
        Ok(node)
    }

    /// A root with `levels` levels of nodes below it: the inodes of "." and "..", then `entries`,
    /// of which there are from one to [`DirFormat::index_limit`].
    pub fn new_root(
        &self,
        dots: (Ino, Ino),
        hash_version: u8,
        levels: u8,
        entries: &[(u32, Lblk)],
    ) -> Vec<u8> {
        let mut root = vec![0; self.block_size.bytes()];
        self.put_dots(&mut root, dots.0, dots.1, self.block_size.bytes() - DOT_LEN);
        let info = RootInfo {
            reserved_zero: U32::ZERO,
            hash_version,
            info_length: 8,
            indirect_levels: levels,
            unused_flags: 0,
        };
        if let Some(place) = root.get_mut(INFO..) {
            let _ = info.write_to_prefix(place);
        }
        self.put_table(&mut root, IndexKind::Root, entries);
        root
    }

    /// A node of `entries`, of which there are from one to [`DirFormat::index_limit`].
    pub fn new_node(&self, entries: &[(u32, Lblk)]) -> Vec<u8> {
        let mut block = vec![0; self.block_size.bytes()];
        let header = DirEntryHeader {
            inode: U32::ZERO,
            rec_len: U16::new(self.encode_rec_len(block.len())),
            name_len: 0,
            file_type: 0,
        };
        let _ = header.write_to_prefix(&mut block);
        self.put_table(&mut block, IndexKind::Node, entries);
        block
    }

    /// Turns the only block of a linear directory into an index root over one leaf, block 1:
    /// returns the root and the leaf, which holds all entries but the dots.
    ///
    /// # Errors
    /// A broken record, or a block that does not begin with the dots.
    pub fn make_index(
        &self,
        first: &[u8],
        hash_version: u8,
    ) -> Result<(Vec<u8>, Vec<u8>), HtreeError> {
        self.check_size(first)?;
        let (own, parent) = self.dots(first)?;
        let dots = (own, parent);
        let root = self.new_root(dots, hash_version, 0, &[(0, Lblk::new(1))]);
        let mut leaf = vec![0; self.block_size.bytes()];
        let entries: Vec<NewEntry<'_>> = self.entries(first)?;
        self.pack(&mut leaf, entries.into_iter().skip(2));
        Ok((root, leaf))
    }

    /// Lets ".." lead to another parent: in the first block of a linear directory, or in a root.
    ///
    /// # Errors
    /// A block that does not begin with the dots; for a root, a bad table.
    pub fn set_dotdot(
        &self,
        block: &mut [u8],
        kind: Option<IndexKind>,
        parent: Ino,
    ) -> Result<(), HtreeError> {
        self.check_size(block)?;
        self.dots(block)?;
        let count = match kind {
            Some(kind) => Some((kind, self.index(block, kind)?.len())),
            None => None,
        };
        self.set_target(block, DOT_LEN, parent, FileType::Directory);
        match count {
            Some((kind, count)) => self.seal_index(block, kind, count),
            None => self.seal_leaf(block),
        }
        Ok(())
    }
}

const _: () = assert!(INFO == rec_len_for(1) + rec_len_for(2));

#[cfg(test)]
mod tests;
