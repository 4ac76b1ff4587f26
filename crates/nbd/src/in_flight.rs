//! The requests in flight over one connection.
//!
//! # Invariants
//! - Each request that was added leaves once, and its caller gets one letter.
//! - Once the table is closed it stays empty: a request that is added then is lost at once.
//!
//! # Locks
//! One mutex. Mailboxes and the write log are locked while it is held.

use std::collections::HashMap;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use crate::loss::Loss;
use crate::pending::Pending;

/// The requests in flight over one connection. See the module's header.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    table: Mutex<Table>,
    /// Signalled when a request has left.
    left: Condvar,
}

#[derive(Debug, Default)]
struct Table {
    requests: HashMap<u64, Pending>,
    /// The reader of replies has taken a request out; whether that one changes the export.
    taken: Option<bool>,
    /// No more requests are added, but those that were are waited for.
    draining: bool,
    closed: Option<Loss>,
    /// When it was closed, the server may have had a change that it carries out later.
    doubtful: bool,
}

impl InFlight {
    /// Adds a request under its cookie. Returns false if it is lost at once.
    pub(crate) fn add(&self, cookie: u64, pending: Pending) -> bool {
        let mut table = self.table.lock();
        if table.closed.is_some() || table.draining {
            drop(table);
            pending.lose();
            return false;
        }
        table.requests.insert(cookie, pending);
        true
    }

    /// Takes the request of a reply out.
    pub(crate) fn take(&self, cookie: u64) -> Option<Pending> {
        let mut table = self.table.lock();
        let pending = table.requests.remove(&cookie)?;
        table.taken = Some(pending.request.command.changes());
        Some(pending)
    }

    /// Puts a request back that waits for more of its reply.
    pub(crate) fn put_back(&self, cookie: u64, pending: Pending) {
        let mut table = self.table.lock();
        table.taken = None;
        if table.closed.is_some() {
            pending.lose();
            self.left.notify_all();
        } else {
            table.requests.insert(cookie, pending);
        }
    }

    /// Ends a request that was taken out.
    pub(crate) fn end(&self, answer: impl FnOnce()) {
        let mut table = self.table.lock();
        table.taken = None;
        answer();
        self.left.notify_all();
    }

    /// Closes the table for `loss`, unless it was closed before: every request in it is lost.
    pub(crate) fn close(&self, loss: Loss) {
        let mut table = self.table.lock();
        if table.closed.is_some() {
            return;
        }
        let changing = |pending: &Pending| pending.request.command.changes();
        table.doubtful = loss == Loss::TimedOut
            && (table.taken == Some(true) || table.requests.values().any(changing));
        table.closed = Some(loss);
        for (_, pending) in table.requests.drain() {
            pending.lose();
        }
        self.left.notify_all();
    }

    /// Adds no more requests, and waits until all have left or `deadline`. Then the table is
    /// closed.
    pub(crate) fn drain(&self, deadline: Instant) {
        let mut table = self.table.lock();
        table.draining = true;
        while !table.requests.is_empty() || table.taken.is_some() {
            if self.left.wait_until(&mut table, deadline).timed_out() {
                drop(table);
                return self.close(Loss::TimedOut);
            }
        }
        drop(table);
        self.close(Loss::Closed);
    }

    /// How the connection was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.table.lock().closed.clone()
    }

    /// Returns whether the server may carry out a change later whose request is lost.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.table.lock().doubtful
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use extant_blockdev::IoBuf;

    use super::*;
    use crate::coverage::Coverage;
    use crate::mailbox::{Mailbox, Outcome};
    use crate::protocol::{Command, Request};

    /// Longer than any test takes.
    const LATER: Duration = Duration::from_secs(60);

    fn sent(command: Command, mailbox: &Arc<Mailbox>) -> Pending {
        Pending {
            request: Request::new(command, 0, 512),
            buf: IoBuf::default(),
            coverage: Coverage::default(),
            error: None,
            errors: 0,
            mailbox: Arc::clone(mailbox),
            number: 0,
            logged: None,
        }
    }

    /// The letters that have come, each of a request that was lost.
    fn lost(mailbox: &Mailbox) -> usize {
        let letters = mailbox.take(None);
        let is_lost = |letter: &crate::mailbox::Letter| matches!(letter.outcome, Outcome::Lost);
        assert!(letters.iter().all(is_lost), "{letters:?}");
        letters.len()
    }

    /// A change whose reply has begun to come is no more certain than one without a reply. A server
    /// that closes the connection carries nothing more out.
    #[test]
    fn a_lost_change_is_doubtful_if_no_reply_came_in_time() {
        let ended = || Loss::Ended("gone".to_owned());
        for (command, changes) in [
            (Command::Read, false),
            (Command::Flush, false),
            (Command::Write, true),
            (Command::Trim, true),
            (Command::WriteZeroes, true),
        ] {
            for (loss, late) in [(Loss::TimedOut, true), (ended(), false)] {
                for taken in [false, true] {
                    let (table, mailbox) = (InFlight::default(), Arc::default());
                    assert!(table.add(1, sent(command, &mailbox)));
                    let reply = taken.then(|| table.take(1).unwrap());
                    table.close(loss.clone());
                    let doubtful = table.is_doubtful();
                    assert_eq!(doubtful, changes && late, "{command:?} {loss} {taken}");
                    if let Some(pending) = reply {
                        table.end(|| pending.lose());
                    }
                    assert_eq!(lost(&mailbox), 1);
                    assert_eq!(table.loss(), Some(loss.clone()));
                }
            }
        }
    }

    /// A reply that has arrived whole leaves nothing in doubt.
    #[test]
    fn a_change_with_a_reply_is_not_doubtful() {
        let (table, mailbox) = (InFlight::default(), Arc::default());
        assert!(table.add(1, sent(Command::Write, &mailbox)));
        let pending = table.take(1).unwrap();
        table.end(|| pending.finish(Ok(())));
        table.close(Loss::TimedOut);
        assert!(!table.is_doubtful());
        assert!(matches!(mailbox.take(None)[..], [_]));
    }

    #[test]
    fn every_request_of_a_closed_table_is_lost_once() {
        let (table, mailbox) = (InFlight::default(), Arc::default());
        assert!(table.add(1, sent(Command::Read, &mailbox)));
        assert!(table.add(2, sent(Command::Read, &mailbox)));
        let more_to_come = table.take(2).unwrap();
        table.close(Loss::TimedOut);
        assert_eq!(lost(&mailbox), 1);
        table.put_back(2, more_to_come);
        assert_eq!(lost(&mailbox), 1);
        assert!(!table.add(3, sent(Command::Read, &mailbox)));
        assert_eq!(lost(&mailbox), 1);
        assert!(table.take(1).is_none() && table.take(2).is_none());
        // The first reason stands, and a drain waits for nothing.
        table.close(Loss::Closed);
        assert_eq!(table.loss(), Some(Loss::TimedOut));
        assert_eq!(table.table.lock().taken, None);
        table.drain(Instant::now() + LATER);
        assert_eq!(lost(&mailbox), 0);
    }

    /// A request whose reply is being read has not left.
    #[test]
    fn a_drain_waits_for_what_was_sent_and_takes_nothing_more() {
        for taken in [false, true] {
            let (table, mailbox) = (InFlight::default(), Arc::default());
            assert!(table.add(1, sent(Command::Read, &mailbox)));
            let reply = taken.then(|| table.take(1).unwrap());
            table.drain(Instant::now());
            assert_eq!(table.loss(), Some(Loss::TimedOut), "taken: {taken}");
            drop(reply);
        }
        for (name, taken, closed, end) in ENDS {
            let (table, mailbox) = (InFlight::default(), Arc::default());
            assert!(table.add(1, sent(Command::Read, &mailbox)));
            let pending = taken.then(|| table.take(1).unwrap());
            if *closed {
                table.close(Loss::TimedOut);
            }
            thread::scope(|scope| {
                let drained = scope.spawn(|| {
                    let deadline = Instant::now() + LATER;
                    table.drain(deadline);
                    Instant::now() < deadline
                });
                let is_draining = || table.table.lock().draining;
                extant_testkit::wait_until("the drain", is_draining);
                assert!(!table.add(2, sent(Command::Read, &mailbox)));
                assert_eq!(lost(&mailbox), 1);
                end(&table, pending);
                assert!(drained.join().unwrap(), "{name} did not wake it");
            });
        }
    }

    /// A way in which the last request leaves: whether its reply is being read, and the connection
    /// was lost before the drain.
    type End = (&'static str, bool, bool, fn(&InFlight, Option<Pending>));

    const ENDS: &[End] = &[
        ("an answer", true, false, |table, pending| {
            table.end(|| pending.unwrap().finish(Ok(())));
        }),
        ("a part of an answer", true, true, |table, pending| {
            table.put_back(1, pending.unwrap());
        }),
        ("the loss of the connection", false, false, |table, _| {
            table.close(Loss::Closed);
        }),
    ];
}
