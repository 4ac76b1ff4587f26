//! The mapping of a range of file bytes.

use std::sync::Arc;

use extant_units::{DevOff, Pos};

bitflags::bitflags! {
    /// What a file system says about a mapping beside its kind.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct IomapFlags: u32 {
        /// The space was made for this operation: what a write misses is zeroed, and a failure is undone by
        /// [`crate::IomapOps::end`].
        const NEW = 1;
        /// Metadata that fdatasync needs is not committed yet, counting a size change still to come.
        const DIRTY = 1 << 1;
        /// Other files share the space.
        const SHARED = 1 << 2;
        /// Several extents were joined.
        const MERGED = 1 << 3;
    }
}

/// What is behind a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IomapKind {
    /// Nothing: reads as zero. Never the answer to a write.
    Hole,
    /// Space that is promised, but not chosen. The data is in the cache.
    Delalloc,
    /// Space with data, from this device byte on.
    Mapped(DevOff),
    /// Space without data: reads as zero.
    Unwritten(DevOff),
    /// The bytes themselves.
    Inline(Arc<[u8]>),
}

/// One mapping: `length` bytes of a file from `offset` on, whole blocks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Iomap {
    /// The first byte.
    pub offset: Pos,
    /// The number of bytes, at least one block.
    pub length: u64,
    /// What is there.
    pub kind: IomapKind,
    /// More about it.
    pub flags: IomapFlags,
    /// The state of the file's map that this was made from, for [`crate::IomapOps::is_valid`].
    pub cookie: u64,
}

impl Iomap {
    /// The byte after the last.
    pub fn end(&self) -> Pos {
        self.offset.saturating_add(self.length)
    }

    /// The bytes of this mapping that lie at `pos` and after, at most `len`; zero if `pos` is outside.
    pub fn clamp(&self, pos: Pos, len: u64) -> u64 {
        if pos < self.offset {
            return 0;
        }
        self.end().distance_from(pos).unwrap_or(0).min(len)
    }

    /// The device byte of `pos`, which lies inside; `None` if the kind has none.
    pub fn device_at(&self, pos: Pos) -> Option<DevOff> {
        match self.kind {
            IomapKind::Mapped(addr) | IomapKind::Unwritten(addr) => {
                addr.checked_add(pos.distance_from(self.offset)?)
            }
            IomapKind::Hole | IomapKind::Delalloc | IomapKind::Inline(_) => None,
        }
    }
}
