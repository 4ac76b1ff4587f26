//! State bits of a range of bytes, and control bits of a call.
//!
//! Both come in one word, as callers want to give them together; [`Bits::resolve`] is the only
//! place that takes them apart again, and does so before anything is decided by them.

use bitflags::bitflags;

bitflags! {
    /// State bits, which records carry, and control bits, which only steer the call that they
    /// are given to.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Bits: u32 {
        /// A thread has these bytes locked against changes by others.
        const LOCKED = 1 << 0;
        /// A direct read or write of these bytes is under way.
        const DIO_LOCKED = 1 << 1;
        /// Space is reserved for the bytes and not allocated yet.
        const DELALLOC = 1 << 2;
        /// Newer than what is stored.
        const DIRTY = 1 << 3;
        /// As good as what is stored.
        const UPTODATE = 1 << 4;
        /// With [`Bits::DELALLOC`]: no space was reserved. Goes together with it.
        const NORESERVE = 1 << 5;

        /// Control, for hooks: what is cleared gives its reservation back.
        const CLEAR_DATA_RESV = 1 << 24;
        /// Control, for hooks: what is cleared counts as allocated to the file from now on.
        const ADD_INODE_BYTES = 1 << 25;
        /// Control: clear every state bit but the locks, which their holders clear.
        const CLEAR_ALL = 1 << 26;
        /// Control: do not let go of the tree's lock to get memory.
        const NOWAIT = 1 << 27;

        /// Locks: set for one owner at a time.
        const LOCKS = Self::LOCKED.bits() | Self::DIO_LOCKED.bits();
        /// All that steers only.
        const CONTROL = Self::CLEAR_DATA_RESV.bits() | Self::ADD_INODE_BYTES.bits()
            | Self::CLEAR_ALL.bits() | Self::NOWAIT.bits();
        /// All that records carry.
        const STATE = (1 << 6) - 1;
    }
}

/// The bits of a call, taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Resolved {
    /// State bits to set or to clear: nothing else ever reaches a record.
    pub(crate) state: Bits,
    /// The control bits.
    pub(crate) control: Bits,
}

impl Bits {
    /// The state bits that a call to clear `self` means, implied ones included.
    pub(crate) fn to_clear(self) -> Resolved {
        let mut state = self.resolve();
        if self.contains(Self::CLEAR_ALL) {
            state.state |= Self::STATE.difference(Self::LOCKS);
        }
        if state.state.contains(Self::DELALLOC) {
            state.state |= Self::NORESERVE;
        }
        state
    }

    /// State and control bits, apart.
    pub(crate) fn resolve(self) -> Resolved {
        Resolved {
            state: self & Self::STATE,
            control: self & Self::CONTROL,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_and_control_share_no_bit() {
        assert_eq!(Bits::STATE & Bits::CONTROL, Bits::empty());
        assert_eq!(Bits::STATE | Bits::CONTROL, Bits::all());
    }

    #[test]
    fn implied_bits_are_in_the_mask() {
        let all = (Bits::CLEAR_ALL | Bits::NOWAIT).to_clear();
        assert_eq!(all.state, Bits::STATE - Bits::LOCKS);
        assert_eq!(all.control, Bits::CLEAR_ALL | Bits::NOWAIT);
        let delalloc = Bits::DELALLOC.to_clear().state;
        assert_eq!(delalloc, Bits::DELALLOC | Bits::NORESERVE);
        assert_eq!(Bits::DIRTY.to_clear().state, Bits::DIRTY);
        // What is named beside that stays in it.
        let named = (Bits::CLEAR_ALL | Bits::DIRTY).to_clear();
        assert_eq!(named.state, all.state);
        let both = Bits::DELALLOC | Bits::NORESERVE;
        assert_eq!(both.to_clear().state, both);
    }
}
