//! The link to an export: a session, and the way back to one when it is lost.
//!
//! # Responsibility
//! The first thread that finds the session lost makes the next one; the others wait for it. It
//! waits for the replies that are still to come, connects, compares the export with what it was,
//! and writes the log again. Only then the session is used.
//!
//! # Invariants
//! - No request of a caller is sent while the log is written again.
//! - A link that failed stays failed. It fails where something that was acknowledged may be lost,
//!   or where a request that was given up may still be carried out. A link that lost nothing is
//!   only down: the next request tries again.
//!
//! # Locks
//! `state` is a leaf; it is not held over I/O.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tracing::{error, warn};

use crate::address::Address;
use crate::counters::Counters;
use crate::error::NbdError;
use crate::export::Export;
use crate::loss::Loss;
use crate::protocol::flag;
use crate::replay::{ReplayError, replay};
use crate::session::Session;
use crate::write_log::WriteLog;

/// The first and the longest pause between two tries to connect.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// The link to an export. See the module's header.
pub(crate) struct Link {
    pub(crate) address: Address,
    pub(crate) export: Export,
    pub(crate) log: Arc<WriteLog>,
    pub(crate) counters: Counters,
    state: Mutex<State>,
    /// Signalled when `state` is no longer [`State::Recovering`].
    changed: Condvar,
}

enum State {
    Up(Arc<Session>),
    Recovering,
    /// There is no session; this was the number of the last one.
    Down(u64),
    Failed(Fault),
}

/// Why a link failed.
#[derive(Clone, Debug)]
struct Fault(Arc<str>);

impl Fault {
    fn error(&self) -> io::Error {
        io::Error::other(self.clone())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}

/// Why there is no new session.
enum Stop {
    /// For good.
    Fault(String),
    /// The server was not found; nothing that it acknowledged is lost.
    Down(String),
}

impl Link {
    /// Connects to the export of `address`.
    ///
    /// # Errors
    /// See [`NbdError`].
    pub(crate) fn open(address: Address) -> Result<Link, NbdError> {
        let deadline = Instant::now() + address.timeout;
        let (session, export) = Session::open(&address, 0, deadline)?;
        let durable_at_once = !export.has(flag::FLUSH);
        Ok(Link {
            address,
            export,
            log: Arc::new(WriteLog::new(durable_at_once)),
            counters: Counters::default(),
            state: Mutex::new(State::Up(Arc::new(session))),
            changed: Condvar::new(),
        })
    }

    /// The session; waits while one is being made.
    ///
    /// # Errors
    /// The link failed, or the server was not found.
    pub(crate) fn session(&self) -> io::Result<Arc<Session>> {
        loop {
            let mut state = self.state.lock();
            let generation = match &*state {
                State::Up(session) => return Ok(Arc::clone(session)),
                State::Failed(fault) => return Err(fault.error()),
                State::Down(generation) => *generation,
                State::Recovering => {
                    self.changed.wait(&mut state);
                    continue;
                }
            };
            drop(state);
            self.recover(generation)?;
        }
    }

    /// Returns once there is a session that is newer than `generation`, whose session is lost.
    ///
    /// # Errors
    /// The link failed, or the server was not found.
    pub(crate) fn recover(&self, generation: u64) -> io::Result<()> {
        let mut state = self.state.lock();
        let lost = loop {
            match &*state {
                State::Up(session) if session.generation > generation => return Ok(()),
                State::Up(session) => break Some(Arc::clone(session)),
                State::Down(_) => break None,
                State::Failed(fault) => return Err(fault.error()),
                State::Recovering => self.changed.wait(&mut state),
            }
        };
        *state = State::Recovering;
        drop(state);
        let mut turn = Turn {
            link: self,
            next: Some(State::Failed(Fault(
                "the recovery of the connection panicked".into(),
            ))),
        };
        let was_up = lost.is_some();
        let (next, result) = match self.next_session(generation, lost) {
            Ok(session) => {
                Counters::bump(&self.counters.reconnects);
                // As loud as the loss was.
                warn!("{}: connected again", self.address);
                (State::Up(Arc::new(session)), Ok(()))
            }
            Err(Stop::Down(why)) => {
                // Later tries fail in the same way.
                if was_up {
                    warn!("{}: {why}; requests fail until it is", self.address);
                }
                (State::Down(generation), Err(io::Error::other(why)))
            }
            Err(Stop::Fault(why)) => {
                error!("{}: {why}", self.address);
                let fault = Fault(why.into());
                (State::Failed(fault.clone()), Err(fault.error()))
            }
        };
        turn.next = Some(next);
        result
    }

    /// Ends the lost session and makes the next one.
    fn next_session(&self, generation: u64, lost: Option<Arc<Session>>) -> Result<Session, Stop> {
        let mut cause = "the server was not found".to_owned();
        if let Some(lost) = lost {
            cause = self.end(&lost)?;
            warn!("{}: the connection is lost: {cause}", self.address);
        }
        let deadline = Instant::now() + self.address.reconnect;
        let mut pause = FIRST_PAUSE;
        loop {
            if Instant::now() >= deadline {
                return Err(self.not_found(&cause));
            }
            match self.try_once(generation + 1, deadline) {
                Ok(session) => return Ok(session),
                Err(Stop::Fault(why)) => return Err(Stop::Fault(why)),
                Err(Stop::Down(why)) => cause = why,
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Waits for the end of a session that is lost; returns the reason in words.
    fn end(&self, lost: &Session) -> Result<String, Stop> {
        let loss = lost.end(self.address.timeout);
        if let Loss::Violation(_) = loss {
            return Err(Stop::Fault(loss.to_string()));
        }
        if lost.is_doubtful() {
            return Err(Stop::Fault(format!(
                "{loss}: the server may carry out later what was written, so nothing more is \
                 written to it"
            )));
        }
        Ok(loss.to_string())
    }

    /// Connects and writes the log again, once.
    fn try_once(&self, generation: u64, deadline: Instant) -> Result<Session, Stop> {
        let opened = Session::open(&self.address, generation, deadline);
        let (session, export) = opened.map_err(|error| Stop::Down(error.to_string()))?;
        if export != self.export {
            return Err(Stop::Fault(format!(
                "the export is not what it was: {export:?} instead of {:?}",
                self.export
            )));
        }
        match replay(&self.log, &session, self.address.timeout) {
            Ok(count) => {
                let resent = &self.counters.resent;
                resent.fetch_add(count, std::sync::atomic::Ordering::Relaxed);
                Ok(session)
            }
            Err(ReplayError::Lost) => Err(Stop::Down(self.end(&session)?)),
            Err(ReplayError::Refused(error)) => Err(Stop::Fault(format!(
                "the server refuses what was written before the connection was lost: {error}"
            ))),
        }
    }

    /// Returns why the link stops if the server was not found in time.
    fn not_found(&self, cause: &str) -> Stop {
        let seconds = self.address.reconnect.as_secs();
        let why = format!("the server was not reached again within {seconds} s: {cause}");
        if self.log.has_promises() {
            return Stop::Fault(format!("{why}; what was written last may be lost"));
        }
        Stop::Down(why)
    }

    /// Makes the link fail: what the server acknowledged may be lost.
    pub(crate) fn fail(&self, why: String) {
        let mut state = self.state.lock();
        if !matches!(*state, State::Failed(_)) {
            error!("{}: {why}", self.address);
            *state = State::Failed(Fault(why.into()));
        }
        self.changed.notify_all();
    }

    /// Connections of the session; none while there is no session.
    pub(crate) fn connections(&self) -> usize {
        match &*self.state.lock() {
            State::Up(session) => session.len(),
            _ => 0,
        }
    }
}

/// A recovery that runs. Its end is published even if it panics.
struct Turn<'a> {
    link: &'a Link,
    next: Option<State>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = self.link.state.lock();
        if let (Some(next), State::Recovering) = (self.next.take(), &*state) {
            *state = next;
        }
        self.link.changed.notify_all();
    }
}
