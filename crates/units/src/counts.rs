//! Counts and names: numbers of blocks, block groups, inode numbers.

use core::fmt;
use core::num::NonZeroU32;

/// A count of file system blocks.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Blocks(u64);

impl Blocks {
    /// No blocks.
    pub const ZERO: Self = Self(0);
    /// One block.
    pub const ONE: Self = Self(1);

    /// Wraps a raw count.
    #[inline]
    pub const fn new(raw: u64) -> Self {
        Self(raw)
    }

    /// The raw count.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns whether the count is zero.
    #[inline]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// The sum, or `None` on overflow.
    #[inline]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// The difference, or `None` if `other` is larger.
    #[inline]
    pub const fn checked_sub(self, other: Self) -> Option<Self> {
        match self.0.checked_sub(other.0) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// The difference, or zero if `other` is larger.
    #[inline]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// The sum, stopping at the largest count.
    #[inline]
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

/// The number of a block group, from zero.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Group(u32);

impl Group {
    /// Wraps a raw group number.
    #[inline]
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The raw group number.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The group number as an index into a table that holds one entry per group.
    #[inline]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// An inode number: never zero.
#[repr(transparent)]
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ino(NonZeroU32);

impl Ino {
    /// The root directory.
    pub const ROOT: Self = Self(NonZeroU32::new(2).unwrap());

    /// An inode number, or `None` for zero (which on disk means "none").
    #[inline]
    pub const fn new(raw: u32) -> Option<Self> {
        match NonZeroU32::new(raw) {
            Some(raw) => Some(Self(raw)),
            None => None,
        }
    }

    /// The raw number, at least one.
    #[inline]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

macro_rules! plain_fmt {
    ($name:ident, $get:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.$get())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.$get(), f)
            }
        }
    };
}
plain_fmt!(Blocks, get);
plain_fmt!(Group, get);
plain_fmt!(Ino, get);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_inode() {
        assert_eq!(Ino::new(0), None);
        assert_eq!(Ino::ROOT.get(), 2);
    }

    #[test]
    fn counts_are_checked() {
        assert_eq!(Blocks::ZERO.checked_sub(Blocks::ONE), None);
        assert_eq!(Blocks::new(u64::MAX).checked_add(Blocks::ONE), None);
        assert_eq!(Blocks::ZERO.saturating_sub(Blocks::ONE), Blocks::ZERO);
    }
}
