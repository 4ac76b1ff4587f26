//! The changes that may be lost with the server: everything written since the last flush.
//!
//! # Invariants
//! - A change is in the log from before it is sent until a flush that was sent after its reply has
//!   succeeded, or until the server has refused it.
//! - The numbers of changes grow in the order in which they began. Of two changes to the same
//!   bytes, the second began after the reply of the first, or they ran at the same time and either
//!   may be the last.
//!
//! # Locks
//! One mutex, a leaf.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::protocol::Request;

/// A change as it is sent again.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) request: Request,
    /// The bytes of a write; empty for zeros.
    pub(crate) data: Arc<[u8]>,
}

/// The changes since the last flush. See the module's header.
#[derive(Debug)]
pub(crate) struct WriteLog {
    changes: Mutex<Changes>,
    /// The reply of a change says that it is durable.
    durable_at_once: bool,
}

#[derive(Debug, Default)]
struct Changes {
    entries: BTreeMap<u64, Entry>,
    next: u64,
    /// Replies so far.
    replies: u64,
    /// Bytes of data of the changes whose replies have come.
    held: usize,
}

#[derive(Debug)]
struct Entry {
    change: Change,
    /// The number of its reply, once that has come.
    reply: Option<u64>,
}

impl Changes {
    fn remove(&mut self, number: u64) {
        if let Some(entry) = self.entries.remove(&number)
            && entry.reply.is_some()
        {
            debug_assert!(self.held >= entry.change.data.len(), "replies are counted");
            self.held -= entry.change.data.len();
        }
    }
}

impl WriteLog {
    /// An empty log. With `durable_at_once`, each change is durable when its reply comes.
    pub(crate) fn new(durable_at_once: bool) -> WriteLog {
        WriteLog {
            changes: Mutex::default(),
            durable_at_once,
        }
    }

    /// Notes a change that is about to be sent; returns its number.
    pub(crate) fn begin(&self, change: Change) -> u64 {
        let mut changes = self.changes.lock();
        let number = changes.next;
        changes.next += 1;
        let reply = None;
        changes.entries.insert(number, Entry { change, reply });
        number
    }

    /// The reply of a change has come: it was carried out.
    pub(crate) fn acknowledge(&self, number: u64) {
        let mut changes = self.changes.lock();
        changes.replies += 1;
        let reply = changes.replies;
        let Some(entry) = changes.entries.get_mut(&number) else {
            return;
        };
        let first = entry.reply.replace(reply).is_none();
        let len = entry.change.data.len();
        if first {
            changes.held += len;
        }
        if self.durable_at_once {
            changes.remove(number);
        }
    }

    /// The change was refused: its caller is told.
    pub(crate) fn forget(&self, number: u64) {
        self.changes.lock().remove(number);
    }

    /// Returns whether the change has been carried out.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        let changes = self.changes.lock();
        let entry = changes.entries.get(&number);
        entry.is_none_or(|entry| entry.reply.is_some())
    }

    /// Returns the mark of the writes that a flush covers which is sent now.
    pub(crate) fn mark(&self) -> u64 {
        self.changes.lock().replies
    }

    /// A flush has succeeded that was sent after [`WriteLog::mark`] returned `mark`.
    pub(crate) fn flushed(&self, mark: u64) {
        let mut changes = self.changes.lock();
        let mut freed = 0;
        changes.entries.retain(|_, entry| {
            let covered = entry.reply.is_some_and(|reply| reply <= mark);
            if covered {
                freed += entry.change.data.len();
            }
            !covered
        });
        debug_assert!(changes.held >= freed, "replies are counted");
        changes.held -= freed;
    }

    /// Every change that may be lost, in order, with its number.
    pub(crate) fn all(&self) -> Vec<(u64, Change)> {
        let changes = self.changes.lock();
        let copy = |(&number, entry): (&u64, &Entry)| (number, entry.change.clone());
        changes.entries.iter().map(copy).collect()
    }

    /// Returns whether a change may be lost whose reply has come.
    pub(crate) fn has_promises(&self) -> bool {
        let changes = self.changes.lock();
        changes.entries.values().any(|entry| entry.reply.is_some())
    }

    /// Bytes of data of the changes whose replies have come.
    pub(crate) fn held(&self) -> usize {
        self.changes.lock().held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Command;

    fn change(offset: u64, len: u32) -> Change {
        Change {
            request: Request::new(Command::Write, offset, len),
            data: vec![7; len as usize].into(),
        }
    }

    #[test]
    fn a_flush_covers_the_replies_before_it() {
        let log = WriteLog::new(false);
        let numbers: Vec<u64> = (0..3).map(|at| log.begin(change(at * 10, 10))).collect();
        assert!(!log.has_promises());
        log.acknowledge(numbers[2]);
        log.acknowledge(numbers[0]);
        let mark = log.mark();
        log.acknowledge(numbers[1]);
        assert_eq!(log.held(), 30);
        log.flushed(mark);
        let left: Vec<u64> = log.all().into_iter().map(|(number, _)| number).collect();
        assert_eq!((left, log.held()), (vec![numbers[1]], 10));
        assert!(numbers.iter().all(|&number| log.is_done(number)));
        log.flushed(log.mark());
        assert!(log.all().is_empty() && !log.has_promises());
    }

    #[test]
    fn a_change_that_was_sent_again_needs_a_later_flush() {
        let log = WriteLog::new(false);
        let number = log.begin(change(0, 10));
        log.acknowledge(number);
        let mark = log.mark();
        log.acknowledge(number);
        log.flushed(mark);
        assert_eq!((log.all().len(), log.held()), (1, 10));
    }

    #[test]
    fn refused_and_durable_changes_leave() {
        let log = WriteLog::new(false);
        let number = log.begin(change(0, 10));
        assert!(!log.is_done(number));
        log.forget(number);
        assert!(log.all().is_empty());
        let log = WriteLog::new(true);
        let number = log.begin(change(0, 10));
        log.acknowledge(number);
        assert!(log.all().is_empty() && log.is_done(number));
        assert_eq!(log.held(), 0);
    }
}
