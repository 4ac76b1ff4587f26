//! Which bytes of a read the chunks of a structured reply have filled.

use std::ops::Range;

/// The most separate pieces. Servers send chunks in order, or nearly so: those that touch become
/// one piece.
const MOST_PIECES: usize = 256;

/// The filled bytes: separate pieces in order.
#[derive(Debug, Default)]
pub(crate) struct Coverage {
    pieces: Vec<Range<u32>>,
}

impl Coverage {
    /// Adds a chunk. Returns false if it overlaps another, or if there are too many pieces.
    pub(crate) fn add(&mut self, chunk: Range<u32>) -> bool {
        let at = self.pieces.partition_point(|piece| piece.end < chunk.start);
        let overlaps = |piece: &Range<u32>| piece.start < chunk.end && chunk.start < piece.end;
        let beside = self.pieces.iter().skip(at).take(2);
        if chunk.is_empty() || beside.clone().any(overlaps) {
            return false;
        }
        let touching = beside.filter(|piece| piece.end == chunk.start || piece.start == chunk.end);
        let count = touching.clone().count();
        let (start, end) = touching.fold((chunk.start, chunk.end), |(start, end), piece| {
            (start.min(piece.start), end.max(piece.end))
        });
        // Pieces that touch the chunk are neighbours: the first one ends where it starts, or it is
        // the one that starts where it ends.
        self.pieces
            .splice(at..at + count, std::iter::once(start..end));
        self.pieces.len() <= MOST_PIECES
    }

    /// Returns whether the first `len` bytes are filled.
    pub(crate) fn is_whole(&self, len: u32) -> bool {
        matches!(self.pieces.as_slice(), [only] if *only == (0..len)) || len == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_in_any_order_become_one_piece() {
        let orders = [[0, 1, 2, 3], [3, 2, 1, 0], [0, 2, 1, 3], [1, 3, 0, 2]];
        for order in orders {
            let mut coverage = Coverage::default();
            for (nth, part) in order.into_iter().enumerate() {
                assert!(!coverage.is_whole(40), "{order:?} after {nth}");
                assert!(coverage.add(part * 10..part * 10 + 10), "{order:?}");
            }
            assert!(coverage.is_whole(40) && !coverage.is_whole(41), "{order:?}");
        }
    }

    #[test]
    fn overlaps_and_crowds_are_refused() {
        for chunk in [0..5, 9..11, 15..25, 10..20, 0..30, 12..13, 19..20, 5..5] {
            let mut coverage = Coverage::default();
            assert!(coverage.add(10..20));
            assert!(!coverage.add(chunk.clone()) || chunk == (0..5), "{chunk:?}");
        }
        let mut coverage = Coverage::default();
        let taken = (0..1000).take_while(|&at| coverage.add(at * 2..at * 2 + 1));
        assert_eq!(taken.count(), MOST_PIECES);
    }
}
