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
