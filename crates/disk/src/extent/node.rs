//! Read access to a node, and the checks of untrusted ones.

use extant_units::{BlockSize, Lblk, Pblk, exact_u16};
use zerocopy::FromBytes;

use super::{
    ENTRY_BYTES, Extent, ExtentError, Index, MAGIC, MAX_DEPTH, MAX_END, ROOT_BYTES, ROOT_CAPACITY,
    RawHeader, Slot, Tail, block_capacity,
};
use crate::csum::Crc32c;

/// Bounds that a parent sets to its child, or an inode to its root.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Expect {
    /// The depth the node must have; `None` for a root: any up to [`MAX_DEPTH`].
    pub depth: Option<u16>,
    /// The file block of the parent's entry: the first entry must start exactly there. `None` for a
    /// root.
    pub first: Option<Lblk>,
    /// The file block at which the next entry of the parent starts: nothing may reach past it.
    pub end: u64,
}

impl Expect {
    /// Bounds of a root.
    pub const ROOT: Self = Self {
        depth: None,
        first: None,
        end: MAX_END,
    };
}

/// A node whose header is sound: magic, depth and counts fit the bytes. Accesses are bounded by its
/// count.
#[derive(Clone, Copy, Debug)]
pub struct Node<'a> {
    slots: &'a [Slot],
    max: u16,
    depth: u16,
}

impl<'a> Node<'a> {
    /// Opens a node: the root's 60 bytes or a block. Looks at the header alone.
    pub fn open(bytes: &'a [u8]) -> Result<Self, ExtentError> {
        let short = ExtentError::TooShort { len: bytes.len() };
        let (header, rest) = RawHeader::ref_from_prefix(bytes).map_err(|_| short)?;
        // A node has at most 64 KiB, so 5461 entries; more bytes would hold any count.
        let capacity = u16::try_from(rest.len() / ENTRY_BYTES).unwrap_or(u16::MAX);
        let (magic, max, depth) = (header.magic.get(), header.max.get(), header.depth.get());
        let entries = header.entries.get();
        if magic != MAGIC {
            return Err(ExtentError::BadMagic { found: magic });
        }
        if depth > MAX_DEPTH {
            return Err(ExtentError::BadDepth {
                found: depth,
                expected: MAX_DEPTH,
            });
        }
        if max == 0 || max > capacity {
            return Err(ExtentError::BadMax { max, capacity });
        }
        if entries > max {
            return Err(ExtentError::BadCount { entries, max });
        }
        let (slots, _) = rest.as_chunks::<ENTRY_BYTES>();
        let slots = slots.get(..usize::from(entries)).ok_or(short)?;
        Ok(Self { slots, max, depth })
    }

    /// Levels below this node: 0 for a leaf, at most [`MAX_DEPTH`].
    #[inline]
    pub fn depth(&self) -> u16 {
        self.depth
    }

    /// Entries in use.
    #[inline]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns whether the node has no entries.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Entries that fit.
    #[inline]
    pub fn max(&self) -> u16 {
        self.max
    }

    /// Returns whether no entry fits any more.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.slots.len() >= usize::from(self.max)
    }

    /// Leaf entry `at`; `None` past the last one or above the leaves.
    #[inline]
    pub fn extent(&self, at: usize) -> Option<Extent> {
        if self.depth != 0 {
            return None;
        }
        self.slots.get(at).map(Extent::decode)
    }

    /// Index entry `at`; `None` past the last one or in a leaf.
    #[inline]
    pub fn index(&self, at: usize) -> Option<Index> {
        if self.depth == 0 {
            return None;
        }
        self.slots.get(at).map(Index::decode)
    }

    /// The first file block of entry `at`, leaf or not.
    #[inline]
    pub fn lblk(&self, at: usize) -> Option<Lblk> {
        // Both kinds of entries begin with it.
        self.slots.get(at).map(|slot| Index::decode(slot).lblk)
    }

    /// The raw entries, for moving them to another node.
    #[inline]
    pub fn slots(&self) -> &'a [Slot] {
        self.slots
    }

    /// A leaf's entries in order; none above the leaves.
    pub fn extents(&self) -> impl DoubleEndedIterator<Item = Extent> + use<'a> {
        let slots = if self.depth == 0 { self.slots } else { &[] };
        slots.iter().map(Extent::decode)
    }

    /// The last entry that starts at or before `lblk`, if any does.
    pub fn find(&self, lblk: Lblk) -> Option<usize> {
        self.slots
            .partition_point(|slot| Index::decode(slot).lblk <= lblk)
            .checked_sub(1)
    }

    /// The file block at which the entry after `at` starts, or `end` if it is the last.
    pub fn next_start(&self, at: usize, end: u64) -> u64 {
        self.lblk(at + 1).map_or(end, |l| u64::from(l.get()))
    }

    /// Returns whether the node is where its parent says, in constant time: depth, first file
    /// block, and the end of the last entry. Done on every descent, since a node may be reached by
    /// a way other than the one that led to it when it was checked.
    pub fn agrees(&self, expect: &Expect) -> Result<(), ExtentError> {
        if let Some(expected) = expect.depth
            && self.depth != expected
        {
            return Err(ExtentError::BadDepth {
                found: self.depth,
                expected,
            });
        }
        if self.slots.is_empty() {
            // A leaf may be empty; an index node that leads nowhere may not.
            return match self.depth {
                0 => Ok(()),
                _ => Err(ExtentError::BadCount {
                    entries: 0,
                    max: self.max,
                }),
            };
        }
        let last = self.slots.len() - 1;
        let first = self.lblk(0).map_or(0, |l| u64::from(l.get()));
        let end = match self.extent(last) {
            Some(extent) => extent.end(),
            None => self.lblk(last).map_or(0, |l| u64::from(l.get()) + 1),
        };
        let low = expect.first.map_or(first, |l| u64::from(l.get()));
        if first != low || end > expect.end {
            return Err(ExtentError::OutsideParent {
                first,
                last: end,
                low,
                high: expect.end,
            });
        }
        Ok(())
    }

    /// Looks at every entry: sorted, disjoint, lengths possible, physical ranges accepted by
    /// `usable`.
    ///
    /// `usable(first, count)` says whether a file may own these blocks: inside of the device,
    /// outside of the file system's own metadata.
    pub fn check(&self, usable: impl Fn(Pblk, u32) -> bool) -> Result<(), ExtentError> {
        let mut end = 0u64;
        for (at, slot) in self.slots.iter().enumerate() {
            // There are at most `max` slots, which has 16 bits.
            let index = exact_u16(at as u64);
            let (lblk, pblk, len) = if self.depth == 0 {
                let e = Extent::decode(slot);
                if e.len == 0 || e.end() > MAX_END {
                    return Err(ExtentError::BadLength {
                        lblk: e.lblk,
                        len: e.len,
                    });
                }
                (e.lblk, e.pblk, e.len)
            } else {
                let i = Index::decode(slot);
                (i.lblk, i.child, 1)
            };
            if u64::from(lblk.get()) < end {
                return Err(ExtentError::OutOfOrder { index, lblk });
            }
            if !usable(pblk, len) {
                return Err(ExtentError::OutsideDevice { pblk, len });
            }
            end = u64::from(lblk.get()) + u64::from(len);
        }
        Ok(())
    }

    /// Opens and checks the root in an inode's `i_block`. Its bytes are covered by the inode's
    /// checksum.
    pub fn check_root(
        i_block: &'a [u8; ROOT_BYTES],
        usable: impl Fn(Pblk, u32) -> bool,
    ) -> Result<Self, ExtentError> {
        let node = Self::open(i_block)?;
        if node.max > ROOT_CAPACITY {
            return Err(ExtentError::BadMax {
                max: node.max,
                capacity: ROOT_CAPACITY,
            });
        }
        node.agrees(&Expect::ROOT)?;
        node.check(usable)?;
        Ok(node)
    }

    /// Opens and checks a block that came from the device. `seed` is the owner's (see
    /// [`owner_seed`](super::owner_seed)) on a file system with `metadata_csum`, else `None`.
    pub fn check_block(
        block: &'a [u8],
        bs: BlockSize,
        seed: Option<Crc32c>,
        usable: impl Fn(Pblk, u32) -> bool,
    ) -> Result<Self, ExtentError> {
        let node = Self::open(block)?;
        let capacity = block_capacity(bs);
        if node.max > capacity {
            return Err(ExtentError::BadMax {
                max: node.max,
                capacity,
            });
        }
        if let Some(seed) = seed {
            verify_checksum(block, seed)?;
        }
        node.check(usable)?;
        Ok(node)
    }
}

/// Byte of a block's [`Tail`], by its header.
pub(super) fn tail_offset(block: &[u8]) -> Result<usize, ExtentError> {
    let short = ExtentError::TooShort { len: block.len() };
    let (header, rest) = RawHeader::ref_from_prefix(block).map_err(|_| short)?;
    let max = header.max.get();
    let offset = usize::from(max) * ENTRY_BYTES;
    if rest.len() < offset + size_of::<Tail>() {
        // Bytes that are too short for a tail hold no entry. The capacity is at most `max`.
        let capacity = rest.len().saturating_sub(size_of::<Tail>()) / ENTRY_BYTES;
        return Err(ExtentError::BadMax {
            max,
            capacity: u16::try_from(capacity).unwrap_or(u16::MAX),
        });
    }
    Ok(offset + ENTRY_BYTES)
}

/// Compares a block's checksum with its bytes.
pub fn verify_checksum(block: &[u8], seed: Crc32c) -> Result<(), ExtentError> {
    let offset = tail_offset(block)?;
    let short = ExtentError::TooShort { len: block.len() };
    let (covered, rest) = block.split_at_checked(offset).ok_or(short)?;
    let (tail, _) = Tail::ref_from_prefix(rest).map_err(|_| short)?;
    let (stored, computed) = (tail.checksum.get(), seed.feed(covered).raw());
    if stored == computed {
        Ok(())
    } else {
        Err(ExtentError::BadChecksum { stored, computed })
    }
}
