//! Transaction ids: sequence numbers that wrap.

use core::fmt;

/// The id of a journal transaction. Ids wrap around, so there is no `Ord`: ask
/// [`Tid::is_after`], which is right as long as the two are less than 2^31 apart.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tid(u32);

impl Tid {
    /// Wraps a raw sequence number.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The raw sequence number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The id of the transaction after this one.
    #[inline]
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }

    /// Returns whether this transaction comes later than `other`, across a wrap as well.
    #[inline]
    pub const fn is_after(self, other: Self) -> bool {
        let ahead = self.0.wrapping_sub(other.0);
        ahead != 0 && ahead < 1 << 31
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tid({})", self.0)
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::Tid;

    #[test]
    fn order_survives_a_wrap() {
        let last = Tid::new(u32::MAX);
        assert!(last.next().is_after(last));
        assert!(!last.is_after(last.next()));
        assert!(!last.is_after(last));
    }
}
