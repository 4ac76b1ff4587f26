//! The record of one block.

use extant_units::DevOff;

use crate::ops::{BlockLocation, BlockMap};

bitflags::bitflags! {
    /// What is known of a block.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub struct BufferState: u16 {
        /// The folio holds its bytes.
        const UPTODATE = 1;
        /// They are newer than the device's.
        const DIRTY = 1 << 1;
        /// The file system was asked: `DELAY`, `UNWRITTEN`, or a device address is true.
        const MAPPED = 1 << 2;
        /// The space was made for the write under way.
        const NEW = 1 << 3;
        /// Space is promised, but not chosen.
        const DELAY = 1 << 4;
        /// Space is chosen and reads as zero.
        const UNWRITTEN = 1 << 5;
        /// On its way to the device.
        const ASYNC_WRITE = 1 << 6;
    }
}

/// The record of one block. Equality is of state and place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BufferHead {
    state: BufferState,
    at: Option<DevOff>,
}

impl BufferHead {
    /// A record with `state` and no place.
    pub fn new(state: BufferState) -> Self {
        Self { state, at: None }
    }

    /// The state.
    #[inline]
    pub fn state(&self) -> BufferState {
        self.state
    }

    /// Where the block is, if it has a place.
    #[inline]
    pub fn at(&self) -> Option<DevOff> {
        self.at
    }

    /// Whether all of `state` is set.
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

    /// Notes the file system's answer.
    pub fn map(&mut self, map: BlockMap) {
        self.forget_place();
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

    /// Forgets where the block is: the file system will be asked again.
    pub fn forget_place(&mut self) {
        self.state -=
            BufferState::MAPPED | BufferState::DELAY | BufferState::UNWRITTEN | BufferState::NEW;
        self.at = None;
    }

    /// Whether a write home needs no mapping: the block has written space.
    #[inline]
    pub fn has_written_space(&self) -> bool {
        self.is(BufferState::MAPPED)
            && !self
                .state
                .intersects(BufferState::DELAY | BufferState::UNWRITTEN)
    }
}
