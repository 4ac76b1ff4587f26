//! Moves of a file's map: ranges that are taken out or put in, as functions of positions.

use std::ops::Range;

/// A move of everything behind a position.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    /// The range goes.
    Out(Range<usize>),
    /// A range of zeros comes.
    In(Range<usize>),
}

/// A part of a range: where it is afterwards, and where it began before.
type Piece = (Range<usize>, usize);

impl Move {
    /// Does it to bytes.
    pub(crate) fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Move::Out(range) => drop(bytes.drain(range.clone())),
            Move::In(range) => {
                let zeros = std::iter::repeat_n(0, range.len());
                bytes.splice(range.start..range.start, zeros);
            }
        }
    }

    /// Range that it puts in.
    pub(crate) fn gap(&self) -> Option<Range<usize>> {
        match self {
            Move::In(range) => Some(range.clone()),
            Move::Out(_) => None,
        }
    }

    /// Pieces that the bytes of `range` are in afterwards.
    pub(crate) fn forth(&self, range: Range<usize>) -> Vec<Piece> {
        match self {
            Move::Out(gone) => out(gone, range),
            Move::In(come) => into(come, range),
        }
    }

    /// Pieces that the bytes of `range`, of afterwards, were in before.
    pub(crate) fn back(&self, range: Range<usize>) -> Vec<Piece> {
        match self {
            Move::Out(gone) => into(gone, range),
            Move::In(come) => out(come, range),
        }
    }
}

/// `range` without what lies in `gone`; what lies behind moves up.
fn out(gone: &Range<usize>, range: Range<usize>) -> Vec<Piece> {
    let before = range.start..range.end.min(gone.start);
    let behind = range.start.max(gone.end)..range.end;
    let from = behind.start;
    let moved = behind.start.saturating_sub(gone.len())..behind.end.saturating_sub(gone.len());
    let pieces = [(before.clone(), before.start), (moved, from)];
    let exists = [!before.is_empty(), !behind.is_empty()];
    let both = pieces.into_iter().zip(exists);
    both.filter(|both| both.1).map(|both| both.0).collect()
}

/// `range` with `come` put in; what lies behind its start moves down.
fn into(come: &Range<usize>, range: Range<usize>) -> Vec<Piece> {
    let before = range.start..range.end.min(come.start);
    let behind = range.start.max(come.start)..range.end;
    let moved = behind.start + come.len()..behind.end + come.len();
    let pieces = [(before.clone(), before.start), (moved, behind.start)];
    let exists = [!before.is_empty(), !behind.is_empty()];
    let both = pieces.into_iter().zip(exists);
    both.filter(|both| both.1).map(|both| both.0).collect()
}

pub(crate) fn index(at: u64) -> usize {
    usize::try_from(at).unwrap()
}

#[test]
fn moves_map_positions_as_they_move_bytes() {
    let bytes: Vec<u8> = (1..=40).collect();
    for how in [
        Move::Out(8..20),
        Move::In(8..20),
        Move::Out(0..4),
        Move::In(0..8),
    ] {
        let mut after = bytes.clone();
        how.apply(&mut after);
        for start in 0..40 {
            for end in start..=40 {
                for (at, from) in how.forth(start..end) {
                    assert!(
                        at.clone()
                            .zip(from..)
                            .all(|(at, from)| after[at] == bytes[from])
                    );
                }
                let kept: usize = how
                    .forth(start..end)
                    .iter()
                    .map(|piece| piece.0.len())
                    .sum();
                let gone = (start..end)
                    .filter(|&at| !after.contains(&bytes[at]))
                    .count();
                assert_eq!(kept + gone, end - start);
            }
        }
        for (at, byte) in after.iter().enumerate() {
            match how.back(at..at + 1).as_slice() {
                [(before, _)] => assert_eq!(bytes[before.start], *byte),
                none => assert!(none.is_empty() && *byte == 0),
            }
        }
    }
}
