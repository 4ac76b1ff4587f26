//! Which bytes a call really changed.

use crate::range::ByteRange;

/// The list of a [`Changeset`] cannot grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Full;

/// Slots reserved before the tree is locked.
const RESERVED: usize = 8;

/// The bytes that calls really flipped, and where: what already was as wanted is not in it.
/// Lock bits are never recorded.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changeset {
    bytes: u64,
    ranges: Vec<ByteRange>,
}

impl Changeset {
    /// Nothing changed so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many bytes changed.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The changed ranges in the order in which they changed; neighbours of one call are one range.
    pub fn ranges(&self) -> &[ByteRange] {
        &self.ranges
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.bytes = 0;
        self.ranges.clear();
    }

    /// Makes room for a call's usual changes. Not under the tree's lock.
    pub(crate) fn reserve(&mut self) {
        self.ranges.reserve(RESERVED);
    }

    /// Returns whether the next range needs memory.
    pub(crate) fn is_full(&self) -> bool {
        self.ranges.len() == self.ranges.capacity()
    }

    /// Records that `range` changed: there is no other outcome than that, or that it could not
    /// be recorded.
    pub(crate) fn add(&mut self, range: ByteRange) -> Result<(), Full> {
        let merged = self.ranges.last().copied().and_then(|before| {
            let adjacent = before.last().checked_add(1) == Some(range.start());
            adjacent.then(|| ByteRange::new(before.start(), range.last()))?
        });
        match (merged, self.ranges.last_mut()) {
            (Some(merged), Some(last)) => *last = merged,
            _ => {
                self.ranges.try_reserve(1).map_err(|_| Full)?;
                self.ranges.push(range);
            }
        }
        // All 2^64 bytes count as `u64::MAX`, as in `ByteRange::bytes`.
        self.bytes = self.bytes.saturating_add(range.bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn io_tree_04_adding_succeeds_or_fails_and_nothing_else() {
        let mut changes = Changeset::new();
        let range = |start, last| ByteRange::new(start, last).unwrap();
        let added: Result<(), Full> = changes.add(range(0, 9));
        assert_eq!(added, Ok(()));
        assert_eq!(changes.add(range(10, 14)), Ok(()));
        assert_eq!(changes.add(range(16, u64::MAX)), Ok(()));
        assert_eq!(changes.ranges(), [range(0, 14), range(16, u64::MAX)]);
        assert_eq!(changes.bytes(), u64::MAX);
        changes.clear();
        assert_eq!((changes.bytes(), changes.ranges().len()), (0, 0));
    }
}
