//! The number of a file's blocks as the kernel knows it, while the file is open for writing.
//!
//! The kernel keeps the number, and is told that it is old after an fsync that has added some.
//! After each such note it asks for the attributes and for the privileges of the file before the
//! next write. So a file that is written with an fsync after each write has a note for each
//! [`PACE`] only, unless a caller looks at it. `now` is the time on the clock of the mount.

use std::time::Duration;

/// The least time between two notes of a file.
const PACE: Duration = Duration::from_millis(10);

/// The time at which the kernel is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlocksNote {
    /// It knows the number, or a note is due already.
    None,
    Now,
    /// A note is due from now on.
    Later,
}

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ShownBlocks {
    /// Bytes on the volume that the kernel was told of, or is to be told of.
    taken: u64,
    /// When the last note was sent.
    last: Option<Duration>,
    /// A caller has looked at the attributes since.
    is_looked_at: bool,
    /// A note is to be sent as soon as the pace allows.
    is_due: bool,
}

impl ShownBlocks {
    /// The kernel knows that the file has `taken` bytes.
    pub(super) fn known(taken: u64) -> Self {
        Self {
            taken,
            ..Self::default()
        }
    }

    /// Notes that the file has `taken` bytes after an fsync.
    pub(super) fn show(&mut self, taken: u64, now: Duration) -> BlocksNote {
        if std::mem::replace(&mut self.taken, taken) == taken {
            return BlocksNote::None;
        }
        if self.is_looked_at || self.left(now).is_zero() {
            self.sent(now);
            return BlocksNote::Now;
        }
        match std::mem::replace(&mut self.is_due, true) {
            true => BlocksNote::None,
            false => BlocksNote::Later,
        }
    }

    /// A caller looks at the attributes: it may do so again after the next fsync.
    pub(super) fn looked_at(&mut self) {
        self.is_looked_at = true;
    }

    /// Time until a note is to be sent, if one is due.
    pub(super) fn until_due(&self, now: Duration) -> Option<Duration> {
        self.is_due.then(|| self.left(now))
    }

    /// A note is sent.
    pub(super) fn sent(&mut self, now: Duration) {
        (self.last, self.is_looked_at, self.is_due) = (Some(now), false, false);
    }

    /// Time until the next note may be sent.
    fn left(&self, now: Duration) -> Duration {
        let next = self.last.map_or(Duration::ZERO, |last| last + PACE);
        next.saturating_sub(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// A file that is written with an fsync after each write: the kernel asks after each note.
    #[test]
    fn the_kernel_is_told_of_blocks_at_a_pace() {
        let mut blocks = ShownBlocks::known(0);
        assert_eq!(blocks.show(0, at(0)), BlocksNote::None, "known");
        assert_eq!(blocks.show(1, at(0)), BlocksNote::Now);
        let notes = [(2, 1), (3, 2), (3, 9), (4, 9)];
        let notes = notes.map(|(taken, millis)| blocks.show(taken, at(millis)));
        assert_eq!(notes[0], BlocksNote::Later);
        assert_eq!(notes[1..], [BlocksNote::None; 3], "one note is due");
        assert_eq!(blocks.until_due(at(9)), Some(at(1)));
        assert_eq!(blocks.until_due(at(30)), Some(at(0)));
        blocks.sent(at(30));
        assert_eq!(blocks.until_due(at(60)), None, "told once");
        assert_eq!(blocks.show(5, at(35)), BlocksNote::Later);
        // An fsync that comes when the note may be sent sends it.
        assert_eq!(blocks.show(6, at(40)), BlocksNote::Now);
        assert_eq!(blocks.until_due(at(60)), None);
    }

    /// A program that looks after each fsync sees what is there.
    #[test]
    fn callers_that_look_are_shown_blocks_at_once() {
        let mut blocks = ShownBlocks::known(0);
        assert_eq!(blocks.show(1, at(0)), BlocksNote::Now);
        for round in 2..5 {
            blocks.looked_at();
            assert_eq!(blocks.show(round, at(round)), BlocksNote::Now);
        }
        assert_eq!(blocks.show(9, at(6)), BlocksNote::Later);
        assert_eq!(blocks.until_due(at(6)), Some(at(8)));
    }
}
