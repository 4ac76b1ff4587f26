//! The requests of one caller, from their start to their end, over as many sessions as it takes.
//!
//! # Invariants
//! - A request that was started ends once, with the outcome of the request as a whole.
//! - No request waits for ever: a reply that does not come in time ends its connection, and a
//!   request that lost [`MOST_LOSSES`] sessions fails.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use extant_blockdev::IoBuf;

use crate::connection::Connection;
use crate::counters::Counters;
use crate::coverage::Coverage;
use crate::link::Link;
use crate::loss::Loss;
use crate::mailbox::{Letter, Mailbox, Outcome};
use crate::pending::Pending;
use crate::protocol::{Command, Request};
use crate::write_log::Change;

/// The most sessions that one request may lose. A request that makes its server fail must not do so
/// for ever.
const MOST_LOSSES: u32 = 8;

/// A request that has ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) number: u64,
    pub(crate) buf: IoBuf,
    pub(crate) result: io::Result<()>,
}

/// The requests of one caller. See the module's header.
pub(crate) struct Flight {
    link: Arc<Link>,
    mailbox: Arc<Mailbox>,
    open: HashMap<u64, Open>,
    next: u64,
    ended: Vec<Ended>,
}

/// A request that has not ended.
struct Open {
    request: Request,
    /// The change, with its number in the log.
    change: Option<(u64, Arc<[u8]>)>,
    /// The connection that it was sent over, and until when the reply is waited for.
    connection: Arc<Connection>,
    generation: u64,
    deadline: Instant,
    losses: u32,
}

impl Flight {
    /// No requests yet.
    pub(crate) fn new(link: &Arc<Link>) -> Flight {
        Flight {
            link: Arc::clone(link),
            mailbox: Arc::default(),
            open: HashMap::new(),
            next: 0,
            ended: Vec::new(),
        }
    }

    /// Requests that were started and not reaped.
    pub(crate) fn in_flight(&self) -> usize {
        self.open.len() + self.ended.len()
    }

    /// Starts a request that changes nothing that could be lost. A read fills `buf`.
    pub(crate) fn start(&mut self, request: Request, buf: IoBuf) -> u64 {
        self.launch_new(request, buf, None)
    }

    /// Starts a change, which is logged.
    pub(crate) fn change(&mut self, request: Request, data: Arc<[u8]>, buf: IoBuf) -> u64 {
        let change = Change {
            request,
            data: Arc::clone(&data),
        };
        let logged = self.link.log.begin(change);
        self.launch_new(request, buf, Some((logged, data)))
    }

    fn launch_new(
        &mut self,
        request: Request,
        buf: IoBuf,
        change: Option<(u64, Arc<[u8]>)>,
    ) -> u64 {
        let number = self.next;
        self.next += 1;
        match self.link.session() {
            Ok(session) => {
                let open = Open {
                    request,
                    change,
                    connection: Arc::clone(session.connection()),
                    generation: session.generation,
                    deadline: Instant::now() + self.link.address.timeout,
                    losses: 0,
                };
                self.launch(number, open, buf);
            }
            Err(error) => self.fail(number, change, buf, error),
        }
        number
    }

    /// Sends a request over its connection.
    fn launch(&mut self, number: u64, open: Open, buf: IoBuf) {
        let log = &self.link.log;
        let logged = open.change.as_ref().map(|(at, _)| (Arc::clone(log), *at));
        let pending = Pending {
            request: open.request,
            buf,
            coverage: Coverage::default(),
            error: None,
            errors: 0,
            mailbox: Arc::clone(&self.mailbox),
            number,
            logged,
        };
        let data = open.change.as_ref().map(|(_, data)| Arc::clone(data));
        let connection = Arc::clone(&open.connection);
        self.open.insert(number, open);
        Counters::bump(&self.link.counters.requests);
        // Only a write has data.
        connection.send(pending, data.as_deref().unwrap_or_default());
    }

    /// Ends a request that cannot be sent.
    fn fail(
        &mut self,
        number: u64,
        change: Option<(u64, Arc<[u8]>)>,
        buf: IoBuf,
        error: io::Error,
    ) {
        if let Some((logged, _)) = change {
            self.link.log.forget(logged);
        }
        let result = Err(error);
        self.ended.push(Ended {
            number,
            buf,
            result,
        });
    }

    /// Waits until `min` requests have ended, or all that were started, and returns those that
    /// have.
    pub(crate) fn reap(&mut self, min: usize) -> Vec<Ended> {
        let min = min.min(self.in_flight());
        loop {
            let deadline = self.open.values().map(|open| open.deadline).min();
            let wait = deadline.filter(|_| self.ended.len() < min);
            let letters = self.mailbox.take(wait);
            // A caller that only polls gives up as well.
            let is_late = deadline.is_some_and(|deadline| deadline <= Instant::now());
            if letters.is_empty() && is_late {
                self.give_up_late();
            }
            for letter in letters {
                self.open_letter(letter);
            }
            if self.ended.len() >= min {
                return std::mem::take(&mut self.ended);
            }
        }
    }

    /// Gives the connections up whose replies are late.
    fn give_up_late(&self) {
        let now = Instant::now();
        for late in self.open.values().filter(|open| open.deadline <= now) {
            late.connection.lose(Loss::TimedOut);
        }
    }

    fn open_letter(&mut self, letter: Letter) {
        let Letter {
            number,
            buf,
            outcome,
        } = letter;
        let Some(open) = self.open.remove(&number) else {
            debug_assert!(false, "a letter for a request that has ended");
            return;
        };
        let result = match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed(error) => Err(error),
            Outcome::Lost => return self.send_again(number, open, buf),
        };
        self.ended.push(Ended {
            number,
            buf,
            result,
        });
    }

    /// Sends a request again whose session was lost, unless the recovery has carried it out.
    fn send_again(&mut self, number: u64, mut open: Open, buf: IoBuf) {
        open.losses += 1;
        if open.losses > MOST_LOSSES {
            let why = format!("the connection was lost {MOST_LOSSES} times during one request");
            return self.fail(number, open.change, buf, io::Error::other(why));
        }
        let session = self.link.recover(open.generation);
        let session = match session.and_then(|()| self.link.session()) {
            Ok(session) => session,
            Err(error) => return self.fail(number, open.change, buf, error),
        };
        let carried_out = match &open.change {
            Some((logged, _)) => self.link.log.is_done(*logged),
            // A hint that may have been lost.
            None => open.request.command == Command::Trim,
        };
        if carried_out {
            let result = Ok(());
            return self.ended.push(Ended {
                number,
                buf,
                result,
            });
        }
        open.connection = Arc::clone(session.connection());
        open.generation = session.generation;
        open.deadline = Instant::now() + self.link.address.timeout;
        self.launch(number, open, buf);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        while self.in_flight() > 0 {
            self.reap(usize::MAX);
        }
    }
}
