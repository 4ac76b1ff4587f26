//! The ring of log blocks: arithmetic on positions in the log that wraps around.

/// The log blocks `first..end` as a ring. Block 0 of the log is its superblock and not part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    first: u32,
    end: u32,
}

impl Ring {
    /// The ring `first..end`, which must not be empty: parsing the superblock made sure of that.
    pub(crate) fn new(first: u32, end: u32) -> Self {
        assert!(first < end, "a log has at least one block: {first}..{end}");
        Self { first, end }
    }

    /// The first block of the ring.
    pub(crate) fn first(self) -> u32 {
        self.first
    }

    /// Blocks in the ring: at least one.
    pub(crate) fn len(self) -> u32 {
        self.end - self.first
    }

    /// Returns whether `at` is a block of the ring.
    pub(crate) fn contains(self, at: u32) -> bool {
        (self.first..self.end).contains(&at)
    }

    /// The block `by` blocks after `at`, a block of the ring.
    pub(crate) fn advance(self, at: u32, by: u32) -> u32 {
        debug_assert!(self.contains(at), "{at} is not in {self:?}");
        let inside = u64::from(at - self.first) + u64::from(by);
        #[allow(clippy::cast_possible_truncation, reason = "below the length, a u32")]
        let wrapped = (inside % u64::from(self.len())) as u32;
        self.first + wrapped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_wrap_around() {
        let ring = Ring::new(5, 10);
        assert!(ring.contains(5) && ring.contains(9));
        assert!(!ring.contains(4) && !ring.contains(10));
        assert_eq!(ring.advance(5, 4), 9);
        assert_eq!(ring.advance(9, 1), 5);
        assert_eq!(ring.advance(7, 13), 5);
        assert_eq!(Ring::new(1, u32::MAX).advance(7, u32::MAX), 8);
    }
}
