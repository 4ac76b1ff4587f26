//! The crc32 of checksum version 1: polynomial 04c11db7, most significant bit first, no final
//! inversion.

/// Result of eight shifts of each top byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut top = 0u32;
    while top < 256 {
        let mut value = top << 24;
        let mut bit = 0;
        while bit < 8 {
            let carry = value >> 31 != 0;
            value <<= 1;
            if carry {
                value ^= 0x04c1_1db7;
            }
            bit += 1;
        }
        table[top as usize] = value;
        top += 1;
    }
    table
};

/// A running crc32 of a transaction's descriptor blocks and copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Crc32(u32);

impl Crc32 {
    /// The value before the first block.
    pub const START: Self = Self(!0);

    /// The value after `bytes`.
    #[must_use]
    pub fn feed(self, bytes: &[u8]) -> Self {
        Self(bytes.iter().fold(self.0, |value, byte| {
            let [top, ..] = value.to_be_bytes();
            (value << 8) ^ TABLE[usize::from(top ^ byte)]
        }))
    }

    /// The value as stored.
    pub const fn raw(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Crc32;

    #[test]
    fn the_published_check_value() {
        // CRC-32/MPEG-2 is this very variant.
        assert_eq!(Crc32::START.feed(b"123456789").raw(), 0x0376_e6e7);
    }
}
