//! Accounts like those of a file system: delayed bytes, and the extents that they may take.

use extant_extent_io_tree::{Bits, ByteRange, Hooks};

/// The longest extent: short, so that cutting and merging change how many there are.
const LONGEST: u128 = 7;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Accounts {
    delayed: i128,
    extents: i128,
}

fn bytes(range: ByteRange) -> u128 {
    u128::from(range.last() - range.start()) + 1
}

fn signed(count: u128) -> i128 {
    i128::try_from(count).unwrap()
}

fn extents(range: ByteRange) -> i128 {
    signed(bytes(range).div_ceil(LONGEST))
}

impl Accounts {
    /// The accounts of these records.
    pub(crate) fn of(records: &[(ByteRange, Bits)]) -> Self {
        let mut all = Self::default();
        for (range, bits) in records {
            all.set(*range, Bits::empty(), *bits, Bits::empty());
        }
        all
    }
}

impl Hooks for Accounts {
    fn set(&mut self, range: ByteRange, had: Bits, bits: Bits, _: Bits) {
        if bits.contains(Bits::DELALLOC) && !had.contains(Bits::DELALLOC) {
            self.delayed += signed(bytes(range));
            self.extents += extents(range);
        }
    }

    fn clear(&mut self, range: ByteRange, had: Bits, bits: Bits, _: Bits) {
        if bits.contains(Bits::DELALLOC) && had.contains(Bits::DELALLOC) {
            self.delayed -= signed(bytes(range));
            self.extents -= extents(range);
        }
    }

    fn split(&mut self, range: ByteRange, bits: Bits, at: u64) {
        if bits.contains(Bits::DELALLOC) {
            let left = ByteRange::new(range.start(), at - 1).unwrap();
            let right = ByteRange::new(at, range.last()).unwrap();
            self.extents += extents(left) + extents(right) - extents(range);
        }
    }

    fn merge(&mut self, left: ByteRange, right: ByteRange, bits: Bits) {
        assert_eq!(left.last() + 1, right.start());
        if bits.contains(Bits::DELALLOC) {
            let one = ByteRange::new(left.start(), right.last()).unwrap();
            self.extents += extents(one) - extents(left) - extents(right);
        }
    }
}
