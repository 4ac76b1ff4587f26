//! The record of one block.

use extant_units::DevOff;

use crate::ops::{BlockLocation, BlockMap};

bitflags::bitflags! {
    /// State of a block, as far as it is known.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct BufferState: u16 {
        /// The folio holds its bytes.
        const UPTODATE = 1;
        /// The folio's bytes are newer than the device's.
        const DIRTY = 1 << 1;
        /// The file system was asked: `DELAY`, `UNWRITTEN` or the device address is valid.
        const MAPPED = 1 << 2;
        /// The space was made for the write under way.
        const NEW = 1 << 3;
        /// Space is reserved, and not allocated yet.
        const DELAY = 1 << 4;
        /// Space is allocated and reads as zero.
        const UNWRITTEN = 1 << 5;
        /// Under writeback.
        const ASYNC_WRITE = 1 << 6;
    }
}

/// The record of one block. Equality is of state and location.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BufferHead {
    state: BufferState,
    at: Option<DevOff>,
}

impl BufferHead {
    /// A record with `state` and no location.
    pub fn new(state: BufferState) -> Self {
        Self { state, at: None }
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> BufferState {
        self.state
    }

    /// Offset of the block on the device, if it has one.
    #[inline]
    pub fn at(&self) -> Option<DevOff> {
        self.at
    }

    /// Returns whether all of `state` is set.
    #[inline]
    pub fn is(&self, state: BufferState) -> bool {
        self.state.contains(state)
    }

    /// Sets `state`.
    #[inline]
    pub fn set(&mut self, state: BufferState) {
        self.state |= state;
    }

    /// Clears `state`.
    #[inline]
    pub fn clear(&mut self, state: BufferState) {
        self.state -= state;
    }

    /// Records the file system's answer.
    pub fn map(&mut self, map: BlockMap) {
        self.unmap();
        self.state |= BufferState::MAPPED;
        match map.location {
            BlockLocation::Delayed => self.state |= BufferState::DELAY,
            BlockLocation::Unwritten(at) => {
                self.state |= BufferState::UNWRITTEN;
                self.at = Some(at);
            }
            BlockLocation::Written(at) => self.at = Some(at),
        }
        if map.new {
            self.state |= BufferState::NEW;
        }
    }

    /// Forgets where the block is: the file system is asked again.
    pub fn unmap(&mut self) {
        self.state -=
            BufferState::MAPPED | BufferState::DELAY | BufferState::UNWRITTEN | BufferState::NEW;
        self.at = None;
    }

    /// Returns whether writeback needs no mapping: the block has written space.
    #[inline]
    pub fn has_written_space(&self) -> bool {
        debug_assert!(
            !self
                .state
                .contains(BufferState::DELAY | BufferState::UNWRITTEN),
            "delayed space is not allocated (J7): {self:?}"
        );
        self.is(BufferState::MAPPED)
            && !self
                .state
                .intersects(BufferState::DELAY | BufferState::UNWRITTEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unmapped_is_asked_for_again_and_keeps_its_bytes() {
        let at = DevOff::new(8192);
        let cached = BufferState::UPTODATE | BufferState::DIRTY;
        for location in [
            BlockLocation::Delayed,
            BlockLocation::Unwritten(at),
            BlockLocation::Written(at),
        ] {
            let mut head = BufferHead::new(cached);
            head.map(BlockMap {
                location,
                new: true,
            });
            assert!(head.is(BufferState::MAPPED | BufferState::NEW | cached));
            head.unmap();
            assert_eq!(head, BufferHead::new(cached), "{location:?}");
            // Nothing of the location before is left.
            head.map(BlockMap {
                location: BlockLocation::Written(at),
                new: false,
            });
            assert!(head.has_written_space() && head.at() == Some(at));
        }
    }
}
