//! The model: a word of bits for each byte. The last of the bytes stands for all from there to
//! infinity.

use extant_extent_io_tree::{Bits, ByteRange, Changeset};

pub(crate) const BYTES: u64 = 96;

/// The last byte that byte `at` of the model stands for.
pub(crate) fn end_of(at: u64) -> u64 {
    if at == BYTES - 1 { u64::MAX } else { at }
}

pub(crate) struct Bytes(Vec<Bits>);

impl Default for Bytes {
    fn default() -> Self {
        Self((0..BYTES).map(|_| Bits::empty()).collect())
    }
}

/// The bytes of the model that changed.
pub(crate) struct Flipped(Vec<u64>);

impl Flipped {
    /// Holds them against what a tree says.
    pub(crate) fn assert_are(&self, changes: &Changeset) {
        let bytes = self.0.iter().fold(0_u64, |sum, &at| {
            sum.saturating_add((end_of(at) - at).saturating_add(1))
        });
        assert_eq!(changes.bytes(), bytes);
        let ranges = changes.ranges();
        let listed = (0..BYTES).filter(|&at| ranges.iter().any(|range| range.contains(at)));
        assert!(listed.eq(self.0.iter().copied()), "{ranges:?}");
        for (before, after) in ranges.iter().zip(ranges.iter().skip(1)) {
            assert!(before.last() < after.start() - 1, "{ranges:?}");
        }
    }
}

impl Bytes {
    fn at(&mut self, range: ByteRange) -> impl Iterator<Item = (u64, &mut Bits)> {
        (0..)
            .zip(&mut self.0)
            .filter(move |(at, _)| range.contains(*at))
    }

    pub(crate) fn set(&mut self, range: ByteRange, bits: Bits) -> Flipped {
        let bits = bits & Bits::STATE;
        let changed = self.at(range).filter_map(|(at, had)| {
            let before = *had;
            *had |= bits;
            (*had != before).then_some(at)
        });
        Flipped(changed.collect())
    }

    pub(crate) fn clear(&mut self, range: ByteRange, bits: Bits) -> Flipped {
        let mut gone = bits & Bits::STATE;
        if bits.contains(Bits::CLEAR_ALL) {
            gone = Bits::STATE - Bits::LOCKS;
        }
        if gone.contains(Bits::DELALLOC) {
            gone |= Bits::NORESERVE;
        }
        let changed = self.at(range).filter_map(|(at, had)| {
            let before = *had;
            *had -= gone;
            (*had != before).then_some(at)
        });
        Flipped(changed.collect())
    }

    pub(crate) fn lock(&mut self, range: ByteRange, bits: Bits) -> bool {
        let taken = self.first(range.start(), bits);
        if taken.is_some_and(|at| range.contains(at)) {
            return false;
        }
        self.at(range).for_each(|(_, had)| *had |= bits);
        true
    }

    pub(crate) fn unlock(&mut self, range: ByteRange, bits: Bits) {
        self.at(range).for_each(|(_, had)| *had -= bits);
    }

    /// The first byte from `from` on that has one of `bits`.
    pub(crate) fn first(&self, from: u64, bits: Bits) -> Option<u64> {
        self.next(from, |had| had.intersects(bits))
    }

    fn next(&self, from: u64, wanted: impl Fn(Bits) -> bool) -> Option<u64> {
        let mut from_here = (0..).zip(&self.0).skip_while(|(at, _)| *at < from);
        from_here.find(|(_, had)| wanted(**had)).map(|(at, _)| at)
    }

    /// The first bytes from `from` on that have all of `bits`.
    pub(crate) fn run(&self, from: u64, bits: Bits) -> Option<ByteRange> {
        let start = self.next(from, |had| had.contains(bits))?;
        let end = self.next(start, |had| !had.contains(bits));
        ByteRange::new(start, end.map_or(u64::MAX, |end| end - 1))
    }

    pub(crate) fn count(&self, range: ByteRange, bits: Bits) -> u64 {
        let within = (0..).zip(&self.0).filter(|(at, _)| range.contains(*at));
        within
            .filter(|(_, had)| had.contains(bits))
            .fold(0_u64, |sum, (at, _)| {
                sum.saturating_add((end_of(at) - at).saturating_add(1))
            })
    }

    /// Holds the model against all records of a tree.
    pub(crate) fn assert_are(&self, records: &[(ByteRange, Bits)]) {
        for (at, had) in (0..).zip(&self.0) {
            let record = records.iter().find(|(range, _)| range.contains(at));
            let bits = record.map_or(Bits::empty(), |(range, bits)| {
                assert!(range.last() <= BYTES || range.last() == u64::MAX);
                *bits
            });
            assert_eq!(bits, *had, "byte {at}");
        }
    }
}
