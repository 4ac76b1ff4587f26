//! Ioends: runs of dirty data under writeback.

use extant_units::{DevOff, Pos};

use crate::map::{Iomap, IomapKind};

/// The state of the run's space when it was submitted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoendKind {
    /// Written space: nothing to convert.
    Mapped,
    /// Unwritten space, to be converted.
    Unwritten,
}

/// A run of bytes, contiguous in the file and on the device, of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ioend {
    /// The first byte.
    pub pos: Pos,
    /// The number of bytes: whole blocks.
    pub len: u64,
    /// The device byte of the first.
    pub at: DevOff,
    /// The state of the space.
    pub kind: IoendKind,
    /// The end of the last run before this one that the same pass failed to write into written
    /// space. What the device holds there past the end of the file must not come to lie inside of
    /// it.
    pub failed_before: Option<Pos>,
}

impl Ioend {
    /// The ioend for `len` bytes at `pos` of `map`; `None` if `map` has no space on the device.
    pub fn new(map: &Iomap, pos: Pos, len: u64) -> Option<Self> {
        let kind = match map.kind {
            IomapKind::Mapped(_) => IoendKind::Mapped,
            IomapKind::Unwritten(_) => IoendKind::Unwritten,
            IomapKind::Hole | IomapKind::Delalloc => return None,
        };
        Some(Self {
            pos,
            len,
            at: map.device_at(pos)?,
            kind,
            failed_before: None,
        })
    }

    /// The byte after the last.
    pub fn end(&self) -> Pos {
        self.pos.plus(self.len)
    }

    /// Adds `next` if it continues this run; returns whether it did.
    pub(crate) fn try_merge(&mut self, next: &Ioend) -> bool {
        let joins = self.kind == next.kind
            && self.end() == next.pos
            && self.at.checked_add(self.len) == Some(next.at);
        if joins {
            self.len += next.len;
        }
        joins
    }
}
