//! Positions: bytes in a file, blocks in a file, blocks on disk, bytes on a device.

use core::fmt;

macro_rules! position {
    ($(#[$meta:meta])* $name:ident($inner:ty)) => {
        $(#[$meta])*
        #[repr(transparent)]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name($inner);

        impl $name {
            /// Position zero.
            pub const ZERO: Self = Self(0);
            /// The largest value of this type.
            pub const MAX: Self = Self(<$inner>::MAX);

            /// Wraps a raw number.
            #[inline]
            pub const fn new(raw: $inner) -> Self {
                Self(raw)
            }

            /// The raw number.
            #[inline]
            pub const fn get(self) -> $inner {
                self.0
            }

            /// This position moved forward by `delta`, or `None` past the largest value.
            #[inline]
            pub const fn checked_add(self, delta: $inner) -> Option<Self> {
                match self.0.checked_add(delta) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// This position moved forward by `delta`, stopping at the largest value.
            #[inline]
            pub const fn saturating_add(self, delta: $inner) -> Self {
                Self(self.0.saturating_add(delta))
            }

            /// This position moved forward by `delta`: the sum names something that exists, and
            /// fits.
            #[inline]
            #[track_caller]
            pub fn plus(self, delta: $inner) -> Self {
                debug_assert!(self.0.checked_add(delta).is_some(), "{self} + {delta}");
                self.saturating_add(delta)
            }

            /// This position moved back by `delta`, or `None` below zero.
            #[inline]
            pub const fn checked_sub(self, delta: $inner) -> Option<Self> {
                match self.0.checked_sub(delta) {
                    Some(raw) => Some(Self(raw)),
                    None => None,
                }
            }

            /// The distance from `earlier` to this position, or `None` if `earlier` is later.
            #[inline]
            pub const fn distance_from(self, earlier: Self) -> Option<$inner> {
                self.0.checked_sub(earlier.0)
            }

            /// The distance from `start` to this position, which is not before it.
            #[inline]
            #[track_caller]
            pub fn since(self, start: Self) -> $inner {
                debug_assert!(start <= self, "{start} is behind {self}");
                self.0.saturating_sub(start.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

position! {
    /// A byte position in a file.
    Pos(u64)
}
position! {
    /// A block position in a file (logical block). ext4 files have fewer than 2^32 blocks.
    Lblk(u32)
}
position! {
    /// A block position on the file system's device (physical block).
    Pblk(u64)
}
position! {
    /// A byte position on a block device.
    DevOff(u64)
}
position! {
    /// The index of a page in a file's mapping: byte position divided by the page size.
    PageIdx(u64)
}

impl Pos {
    /// The page that holds this byte.
    #[inline]
    pub const fn page(self) -> PageIdx {
        PageIdx(self.0 >> crate::PAGE_SHIFT)
    }
}

impl PageIdx {
    /// The first byte of this page, or `None` if it lies past 2^64 bytes.
    #[inline]
    pub const fn pos(self) -> Option<Pos> {
        if self.0 >> (64 - crate::PAGE_SHIFT) != 0 {
            return None;
        }
        Some(Pos(self.0 << crate::PAGE_SHIFT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_checked() {
        assert_eq!(Lblk::MAX.checked_add(1), None);
        assert_eq!(Lblk::new(3).checked_sub(4), None);
        assert_eq!(Pos::new(7).distance_from(Pos::new(5)), Some(2));
        assert_eq!(Pos::new(5).distance_from(Pos::new(7)), None);
        assert_eq!(Pos::new(7).since(Pos::new(5)), 2);
        assert_eq!(Pos::new(5).plus(2), Pos::new(7));
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = " + 1")]
    fn no_position_passes_the_largest() {
        let _ = Pos::MAX.plus(1);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "behind")]
    fn no_distance_is_negative() {
        let _ = Lblk::new(3).since(Lblk::new(4));
    }

    #[test]
    fn pages_and_bytes_cross() {
        assert_eq!(Pos::new(8191).page(), PageIdx::new(1));
        assert_eq!(PageIdx::new(1).pos(), Some(Pos::new(4096)));
        assert_eq!(PageIdx::MAX.pos(), None);
    }
}
