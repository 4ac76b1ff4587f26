//! The checksum of ext4 and jbd2 metadata: crc32c without the final inversion.
//!
//! Linux keeps the raw register between steps and stores it raw; the well-known crc32c inverts at
//! both ends. [`Crc32c`] hides the difference: a running value that is fed byte ranges and read at
//! the end.

/// A running crc32c in the form that ext4 stores: start at all ones (or a stored seed), feed bytes,
/// no final inversion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc32c(u32);

impl Crc32c {
    /// The start value of every chain that has no seed of its own: all ones.
    pub const START: Self = Self(!0);

    /// Continues from a stored value, such as `s_checksum_seed` or an inode's seed.
    #[inline]
    pub const fn from_raw(raw: u32) -> Self {
        Self(raw)
    }

    /// The value after `bytes`.
    #[inline]
    #[must_use]
    pub fn feed(self, bytes: &[u8]) -> Self {
        Self(!crc32c::crc32c_append(!self.0, bytes))
    }

    /// The value as stored on disk.
    #[inline]
    pub const fn raw(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Crc32c;

    #[test]
    fn the_check_value_uninverted() {
        // The published check value of crc32c("123456789") is e3069283, inverted at the end.
        assert_eq!(Crc32c::START.feed(b"123456789").raw(), !0xe306_9283);
        let halves = Crc32c::START.feed(b"1234").feed(b"56789");
        assert_eq!(halves, Crc32c::START.feed(b"123456789"));
    }
}
