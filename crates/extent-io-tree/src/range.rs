//! A range of bytes with an inclusive end, so that "from here to infinity" is a range like any
//! other. Never empty.

use std::fmt;

/// The bytes `start..=last` of a file. Never empty; `last` may be `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    start: u64,
    last: u64,
}

impl ByteRange {
    /// Every byte there is.
    pub const ALL: Self = Self {
        start: 0,
        last: u64::MAX,
    };

    /// The bytes `start..=last`; `None` if there are none.
    #[inline]
    pub const fn new(start: u64, last: u64) -> Option<Self> {
        if start <= last {
            Some(Self { start, last })
        } else {
            None
        }
    }

    /// `len` bytes from `start` on; `None` if there are none, or the last one has no offset.
    #[inline]
    pub const fn from_len(start: u64, len: u64) -> Option<Self> {
        let Some(more) = len.checked_sub(1) else {
            return None;
        };
        match start.checked_add(more) {
            Some(last) => Some(Self { start, last }),
            None => None,
        }
    }

    /// All bytes from `start` on.
    #[inline]
    pub const fn to_infinity(start: u64) -> Self {
        Self {
            start,
            last: u64::MAX,
        }
    }

    /// The first byte's offset.
    #[inline]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The last byte's offset.
    #[inline]
    pub const fn last(self) -> u64 {
        self.last
    }

    /// How many bytes; `u64::MAX` for [`ByteRange::ALL`], too, which has one more.
    #[inline]
    pub const fn bytes(self) -> u64 {
        (self.last - self.start).saturating_add(1)
    }

    /// Returns whether both have a byte in common.
    #[inline]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    /// Returns whether `at` is one of the bytes.
    #[inline]
    pub const fn contains(self, at: u64) -> bool {
        self.start <= at && at <= self.last
    }

    /// Returns whether every byte of `other` is one of ours.
    #[inline]
    pub const fn covers(self, other: Self) -> bool {
        self.start <= other.start && other.last <= self.last
    }
}

impl fmt::Debug for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ByteRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.last {
            u64::MAX => write!(f, "[{}, end]", self.start),
            last => write!(f, "[{}, {last}]", self.start),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_never_empty_and_never_wrap() {
        assert_eq!(ByteRange::new(5, 4), None);
        assert_eq!(ByteRange::from_len(5, 0), None);
        assert_eq!(ByteRange::from_len(u64::MAX, 2), None);
        let one = ByteRange::from_len(u64::MAX, 1).unwrap();
        assert_eq!(one, ByteRange::to_infinity(u64::MAX));
        assert_eq!((one.bytes(), ByteRange::ALL.bytes()), (1, u64::MAX));
    }

    #[test]
    fn ends_belong_to_the_range() {
        let range = ByteRange::from_len(10, 10).unwrap();
        assert!(range.contains(10) && range.contains(19) && !range.contains(20));
        assert!(range.overlaps(ByteRange::to_infinity(19)));
        assert!(!range.overlaps(ByteRange::to_infinity(20)));
        assert!(range.covers(range) && !range.covers(ByteRange::ALL));
        assert_eq!(format!("{range} {:?}", ByteRange::ALL), "[10, 19] [0, end]");
    }
}
