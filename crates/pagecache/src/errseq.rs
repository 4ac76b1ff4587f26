//! Writeback errors: recorded once per file, reported once to every opener (Linux's `errseq_t`).
//!
//! # Concurrency
//! One word holds the last fault, whether an opener has seen it, and a count. The count grows only
//! with a recording after the last one was seen, so that a cursor tells each fault that it has not
//! seen from the one before.

use std::sync::atomic::{AtomicU64, Ordering};

/// A fault of a write of dirty data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritebackFault {
    /// The device, the block map or the journal failed.
    Io,
    /// There was no space for data that had been accepted.
    NoSpace,
}

/// The bits of the last fault; zero before the first.
const FAULT_MASK: u64 = 0b11;
/// An opener has seen the last fault.
const SEEN: u64 = 0b100;
/// One in the count, which has the other bits.
const STEP: u64 = 0b1000;

/// The error sequence of a file: the last fault, and a count of the recordings that an opener can
/// tell from the one before.
#[derive(Default)]
pub struct WritebackErrors(AtomicU64);

/// How far one opener has looked. Sampled at open, moved forward by every check. The default is
/// that of an opener from before the first fault.
#[derive(Debug, Default)]
pub struct ErrorCursor(AtomicU64);

impl WritebackErrors {
    /// Records a fault: each cursor that exists now will see it (or a later one) once.
    pub fn record(&self, fault: WritebackFault) {
        let code = match fault {
            WritebackFault::Io => 1,
            WritebackFault::NoSpace => 2,
        };
        let update = |old: u64| {
            let count = old & !(FAULT_MASK | SEEN);
            let count = if old & SEEN != 0 || old == 0 {
                count.wrapping_add(STEP)
            } else {
                count
            };
            Some(count | code)
        };
        // The closure always returns a value, so this cannot fail.
        let _ = self
            .0
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
    }

    /// Returns whether there is a fault that no opener has been told of.
    pub fn has_unseen(&self) -> bool {
        let now = self.0.load(Ordering::Acquire);
        now != 0 && now & SEEN == 0
    }

    /// A cursor for a new opener. A fault that no opener has seen yet is new to it as well.
    pub fn cursor(&self) -> ErrorCursor {
        let now = self.0.load(Ordering::Acquire);
        ErrorCursor(AtomicU64::new(if now & SEEN != 0 { now } else { 0 }))
    }

    /// The fault recorded since this cursor was last asked, if any.
    pub fn check(&self, cursor: &ErrorCursor) -> Option<WritebackFault> {
        let now = self.0.load(Ordering::Acquire);
        if now == 0 {
            return None;
        }
        let seen = self.0.fetch_or(SEEN, Ordering::AcqRel) | SEEN;
        if cursor.0.swap(seen, Ordering::AcqRel) == seen {
            return None;
        }
        debug_assert_ne!(seen & FAULT_MASK, 0, "a fault was recorded");
        match seen & FAULT_MASK {
            2 => Some(WritebackFault::NoSpace),
            _ => Some(WritebackFault::Io),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opener_sees_a_fault_once() {
        let errors = WritebackErrors::default();
        let (a, b) = (errors.cursor(), errors.cursor());
        assert_eq!(errors.check(&a), None);
        errors.record(WritebackFault::Io);
        assert_eq!(errors.check(&a), Some(WritebackFault::Io));
        assert_eq!(errors.check(&a), None);
        assert_eq!(errors.check(&b), Some(WritebackFault::Io));
        errors.record(WritebackFault::NoSpace);
        errors.record(WritebackFault::NoSpace);
        assert_eq!(errors.check(&a), Some(WritebackFault::NoSpace));
        assert_eq!(errors.check(&a), None);
        assert_eq!(errors.check(&b), Some(WritebackFault::NoSpace));
    }

    #[test]
    fn an_unseen_fault_is_reported_to_the_next_opener() {
        let errors = WritebackErrors::default();
        errors.record(WritebackFault::Io);
        let late = errors.cursor();
        assert_eq!(errors.check(&late), Some(WritebackFault::Io));
        assert_eq!(errors.check(&errors.cursor()), None);
    }
}
