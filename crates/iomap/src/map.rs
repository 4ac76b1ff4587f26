//! The mapping of a range of a file: what is behind its bytes.

use extant_units::{DevOff, Pos};

/// The space behind a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IomapKind {
    /// Nothing: reads as zero. Never the answer to a write.
    Hole,
    /// Space that is reserved, and not allocated yet (delayed allocation). The data is in the
    /// cache.
    Delalloc,
    /// Space with data, from this device byte on.
    Mapped(DevOff),
    /// Allocated space without data: reads as zero.
    Unwritten(DevOff),
}

/// One mapping: `length` bytes of a file from `offset` on, whole blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Iomap {
    /// The first byte.
    pub offset: Pos,
    /// The number of bytes, at least one block.
    pub length: u64,
    /// The space behind the bytes.
    pub kind: IomapKind,
    /// The space was made for this operation: the blocks have no content yet, and
    /// [`crate::IomapOps::end`] gives back what the operation does not use.
    pub new: bool,
    /// The sequence of the file's map that this was made from, for [`crate::IomapOps::is_valid`].
    pub cookie: u64,
}

impl Iomap {
    /// The byte after the last.
    pub fn end(&self) -> Pos {
        self.offset.plus(self.length)
    }

    /// The bytes of this mapping that lie at `pos` and after, at most `len`; zero if `pos` is
    /// outside.
    pub fn clamp(&self, pos: Pos, len: u64) -> u64 {
        if pos < self.offset {
            return 0;
        }
        // Nothing of the mapping lies after its end.
        self.end().distance_from(pos).unwrap_or(0).min(len)
    }

    /// Returns whether a write to the range needs no more space.
    pub(crate) fn has_space(&self) -> bool {
        !matches!(self.kind, IomapKind::Hole)
    }

    /// The device byte of `pos`, which lies inside; `None` if the range has no space on the device.
    pub fn device_at(&self, pos: Pos) -> Option<DevOff> {
        match self.kind {
            IomapKind::Mapped(at) | IomapKind::Unwritten(at) => {
                debug_assert!(self.clamp(pos, 1) > 0, "{pos:?} lies in {self:?}");
                Some(at.plus(pos.since(self.offset)))
            }
            IomapKind::Hole | IomapKind::Delalloc => None,
        }
    }
}
