//! Extent trees: the map from a file's blocks to the device's.
//!
//! A tree's root lies in the inode's `i_block` (60 bytes, four entries); every other node fills one
//! block. Each node is a header of 12 bytes and entries of 12 bytes: [`Extent`]s in a leaf (depth
//! 0), [`Index`] entries above. With `metadata_csum` a block's entries are followed by a [`Tail`].
//!
//! * [`Node`]: read access. [`Node::open`] looks at the header alone (cheap, every access does it);
//!   [`Node::check`] looks at every entry and belongs to the moment a block comes from the device.
//! * [`NodeMut`]: edits of one node's bytes, which keep the count and nothing else: order and
//!   ranges are the tree's business.
//! * [`store_tree`]: a whole tree, made of a list of extents.
//!
//! Nothing here panics on any bytes: an access outside of a node is `None` or an error.

mod edit;
mod node;
#[cfg(test)]
mod tests;
mod tree;

use core::mem::{offset_of, size_of};

use extant_units::{BlockSize, Lblk, Pblk};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::csum::Crc32c;

pub use edit::{NodeMut, set_checksum};
pub use node::{Expect, Node, verify_checksum};
pub use tree::{StoredTree, node_count, store_tree};

/// `eh_magic` of every node.
pub const MAGIC: u16 = 0xf30a;
/// The deepest tree: a root of depth 5 and five levels of blocks below it.
pub const MAX_DEPTH: u16 = 5;
/// Bytes of the root node in the inode.
pub const ROOT_BYTES: usize = 60;
/// Bytes of a header and of any entry.
pub const ENTRY_BYTES: usize = 12;
/// The longest written extent, in blocks.
pub const MAX_WRITTEN: u32 = 1 << 15;
/// The longest unwritten extent, in blocks.
pub const MAX_UNWRITTEN: u32 = MAX_WRITTEN - 1;
/// The largest physical block that an entry can hold (48 bits).
pub const MAX_PBLK: u64 = (1 << 48) - 1;

/// `struct ext4_extent_header`.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawHeader {
    /// [`MAGIC`].
    pub magic: U16,
    /// Entries in use.
    pub entries: U16,
    /// Entries that fit. Also says where the checksum lies.
    pub max: U16,
    /// Levels below this node; 0 in a leaf.
    pub depth: U16,
    /// Generation of the tree; unused by ext4, preserved.
    pub generation: U32,
}

/// `struct ext4_extent`: an entry of a leaf.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawExtent {
    /// First file block.
    pub block: U32,
    /// Length; above [`MAX_WRITTEN`] it is unwritten and that much shorter.
    pub len: U16,
    /// Upper 16 bits of the first physical block.
    pub start_hi: U16,
    /// Lower 32 bits of the first physical block.
    pub start_lo: U32,
}

/// `struct ext4_extent_idx`: an entry above the leaves.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct RawIndex {
    /// First file block below this entry.
    pub block: U32,
    /// Lower 32 bits of the child's block.
    pub leaf_lo: U32,
    /// Upper 16 bits of the child's block.
    pub leaf_hi: U16,
    /// Unused.
    pub unused: U16,
}

/// `struct ext4_extent_tail`: lies directly after the last slot (`eh_max` says where).
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy, Debug)]
#[repr(C)]
pub struct Tail {
    /// Checksum over all bytes before it, seeded by file system, inode number and generation.
    pub checksum: U32,
}

const _: () = assert!(size_of::<RawHeader>() == ENTRY_BYTES);
const _: () = assert!(size_of::<RawExtent>() == ENTRY_BYTES);
const _: () = assert!(size_of::<RawIndex>() == ENTRY_BYTES);
const _: () = assert!(size_of::<Tail>() == 4);
const _: () = assert!(offset_of!(RawHeader, depth) == 6);
const _: () = assert!(offset_of!(RawExtent, start_hi) == 6);
const _: () = assert!(offset_of!(RawExtent, start_lo) == 8);
const _: () = assert!(offset_of!(RawIndex, leaf_hi) == 8);

/// Bytes that hold one entry of a node.
pub type Slot = [u8; ENTRY_BYTES];

/// A run of file blocks that lies in a run of physical blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Extent {
    /// First file block.
    pub lblk: Lblk,
    /// Number of blocks: 1..=[`MAX_WRITTEN`] if written, 1..=[`MAX_UNWRITTEN`] if not.
    pub len: u32,
    /// First physical block, at most [`MAX_PBLK`].
    pub pblk: Pblk,
    /// Allocated but not written: reads as zeros.
    pub unwritten: bool,
}

impl Extent {
    /// The file block after the last, which may be 2^32.
    #[inline]
    pub const fn end(&self) -> u64 {
        self.lblk.get() as u64 + self.len as u64
    }

    /// The longest extent of this one's kind.
    #[inline]
    pub const fn max_len(unwritten: bool) -> u32 {
        if unwritten {
            MAX_UNWRITTEN
        } else {
            MAX_WRITTEN
        }
    }

    /// Returns whether `lblk` lies in the extent.
    #[inline]
    pub const fn contains(&self, lblk: Lblk) -> bool {
        self.lblk.get() <= lblk.get() && (lblk.get() as u64) < self.end()
    }

    /// The part from `from` on with at most `len` blocks, or `None` if nothing is left.
    #[must_use]
    pub fn slice(&self, from: Lblk, len: u32) -> Option<Self> {
        let skip = from.distance_from(self.lblk)?;
        let left = self.len.checked_sub(skip).filter(|&left| left > 0)?;
        let len = left.min(len);
        (len > 0).then_some(Self {
            lblk: from,
            len,
            pblk: self.pblk.checked_add(u64::from(skip))?,
            unwritten: self.unwritten,
        })
    }

    /// Returns whether `next` continues this extent in the file, on the device and in kind, and
    /// both fit one entry.
    pub fn merges_with(&self, next: &Self) -> bool {
        self.unwritten == next.unwritten
            && self.end() == u64::from(next.lblk.get())
            && self.pblk.checked_add(u64::from(self.len)) == Some(next.pblk)
            && self.len + next.len <= Self::max_len(self.unwritten)
    }

    /// Decodes a leaf's entry. Any bytes decode; only [`Node::check`] says whether they make sense.
    #[inline]
    pub fn decode(slot: &Slot) -> Self {
        let raw: RawExtent = zerocopy::transmute!(*slot);
        let len = u32::from(raw.len.get());
        let unwritten = len > MAX_WRITTEN;
        Self {
            lblk: Lblk::new(raw.block.get()),
            len: if unwritten { len - MAX_WRITTEN } else { len },
            pblk: join48(raw.start_hi.get(), raw.start_lo.get()),
            unwritten,
        }
    }

    /// Encodes a leaf's entry, or refuses one that the format cannot hold.
    pub fn encode(&self) -> Result<Slot, ExtentError> {
        let bad = ExtentError::BadLength {
            lblk: self.lblk,
            len: self.len,
        };
        if self.len == 0 || self.len > Self::max_len(self.unwritten) || self.end() > MAX_END {
            return Err(bad);
        }
        let len = if self.unwritten {
            self.len + MAX_WRITTEN
        } else {
            self.len
        };
        let (hi, lo) = split48(self.pblk).ok_or(ExtentError::OutsideDevice {
            pblk: self.pblk,
            len: self.len,
        })?;
        let raw = RawExtent {
            block: U32::new(self.lblk.get()),
            len: U16::new(u16::try_from(len).map_err(|_| bad)?),
            start_hi: U16::new(hi),
            start_lo: U32::new(lo),
        };
        Ok(zerocopy::transmute!(raw))
    }
}

/// An entry above the leaves: the child that holds the file blocks from `lblk` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub struct Index {
    /// First file block below the child. Equals the first block of the child's first entry.
    pub lblk: Lblk,
    /// The child's block, at most [`MAX_PBLK`].
    pub child: Pblk,
}

impl Index {
    /// Decodes an index entry. Any bytes decode.
    #[inline]
    pub fn decode(slot: &Slot) -> Self {
        let raw: RawIndex = zerocopy::transmute!(*slot);
        Self {
            lblk: Lblk::new(raw.block.get()),
            child: join48(raw.leaf_hi.get(), raw.leaf_lo.get()),
        }
    }

    /// Encodes an index entry, or refuses a child that the format cannot name.
    pub fn encode(&self) -> Result<Slot, ExtentError> {
        let (hi, lo) = split48(self.child).ok_or(ExtentError::OutsideDevice {
            pblk: self.child,
            len: 1,
        })?;
        let raw = RawIndex {
            block: U32::new(self.lblk.get()),
            leaf_lo: U32::new(lo),
            leaf_hi: U16::new(hi),
            unused: U16::new(0),
        };
        Ok(zerocopy::transmute!(raw))
    }
}

/// The largest end of an extent: file block 2^32 - 1 is never mapped, as in Linux.
pub const MAX_END: u64 = u32::MAX as u64;

/// Damage of a node, or a wrong edit of one.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ExtentError {
    /// Shorter than a header.
    #[error("extent node of {len} bytes")]
    TooShort {
        /// Bytes given.
        len: usize,
    },
    /// `eh_magic` is wrong.
    #[error("extent node with magic {found:#06x}")]
    BadMagic {
        /// The value instead of [`MAGIC`].
        found: u16,
    },
    /// The node's checksum does not match.
    #[error("extent node with checksum {stored:#010x}, computed {computed:#010x}")]
    BadChecksum {
        /// The value on disk.
        stored: u32,
        /// The value that the bytes give.
        computed: u32,
    },
    /// Deeper than [`MAX_DEPTH`], or not of the depth that the parent implies.
    #[error("extent node of depth {found}, expected {expected}")]
    BadDepth {
        /// `eh_depth`.
        found: u16,
        /// One less than the parent's, or the deepest allowed for a root.
        expected: u16,
    },
    /// `eh_max` is zero or more than fits.
    #[error("extent node for {max} entries where {capacity} fit")]
    BadMax {
        /// `eh_max`.
        max: u16,
        /// The number that the node's size allows.
        capacity: u16,
    },
    /// `eh_entries` is more than `eh_max`, or zero above the leaves.
    #[error("extent node with {entries} of {max} entries")]
    BadCount {
        /// `eh_entries`.
        entries: u16,
        /// `eh_max`.
        max: u16,
    },
    /// An entry starts before the end of the one before it.
    #[error("extent entry {index} at file block {lblk} is out of order")]
    OutOfOrder {
        /// The entry's place in its node.
        index: u16,
        /// Its first file block.
        lblk: Lblk,
    },
    /// The node's entries lie outside of what its parent says.
    #[error("extent node of file blocks {first}.. to {last} where its parent has {low} to {high}")]
    OutsideParent {
        /// First file block of the node.
        first: u64,
        /// End of the node's last entry.
        last: u64,
        /// First file block by the parent.
        low: u64,
        /// End by the parent.
        high: u64,
    },
    /// A length that the format does not allow, or an end past the last file block.
    #[error("extent at file block {lblk} with impossible length {len}")]
    BadLength {
        /// First file block.
        lblk: Lblk,
        /// Length in blocks.
        len: u32,
    },
    /// Physical blocks outside of the device or inside file system metadata.
    #[error("extent at physical block {pblk}, {len} blocks, outside of what files may use")]
    OutsideDevice {
        /// First physical block.
        pblk: Pblk,
        /// Length in blocks.
        len: u32,
    },
    /// An edit addresses an entry that is not there.
    #[error("extent entry {index} of {entries}")]
    NoSuchEntry {
        /// The place asked for.
        index: usize,
        /// Entries in the node.
        entries: u16,
    },
    /// An edit needs more room than the node has.
    #[error("extent node is full ({max} entries)")]
    Full {
        /// `eh_max`.
        max: u16,
    },
    /// A leaf's operation on an index node or the other way round.
    #[error("extent node of depth {depth} is of the other kind")]
    WrongKind {
        /// The node's depth.
        depth: u16,
    },
}

/// Entries that fit a block of size `bs`, beside the header. The checksum always finds room after
/// them.
pub const fn block_capacity(bs: BlockSize) -> u16 {
    #[allow(clippy::cast_possible_truncation, reason = "at most 65536 / 12")]
    {
        ((bs.bytes() - ENTRY_BYTES) / ENTRY_BYTES) as u16
    }
}

/// Entries that fit the root node in the inode: four.
pub const ROOT_CAPACITY: u16 = 4;
const _: () = assert!((ROOT_BYTES - ENTRY_BYTES) / ENTRY_BYTES == ROOT_CAPACITY as usize);

/// The start of the checksum of every node of one inode's tree; the same value starts that inode's
/// own checksum. `fs_seed` is the file system's, from its UUID or its stored seed.
pub fn owner_seed(fs_seed: Crc32c, ino: extant_units::Ino, generation: u32) -> Crc32c {
    fs_seed
        .feed(&ino.get().to_le_bytes())
        .feed(&generation.to_le_bytes())
}

const fn join48(hi: u16, lo: u32) -> Pblk {
    Pblk::new((hi as u64) << 32 | lo as u64)
}

fn split48(pblk: Pblk) -> Option<(u16, u32)> {
    let raw = pblk.get();
    let lo = u32::try_from(raw & u64::from(u32::MAX)).ok()?;
    Some((u16::try_from(raw >> 32).ok()?, lo))
}
