//! The mailbox in which a caller finds the outcomes of its requests.
//!
//! # Locks
//! One mutex, a leaf.

use std::io;
use std::time::Instant;

use extant_blockdev::IoBuf;
use parking_lot::{Condvar, Mutex};

/// The outcome of a request over one connection.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The server has carried it out.
    Done,
    /// The server has not carried it out, and says why.
    Failed(io::Error),
    /// The connection was lost before the reply.
    Lost,
}

/// The outcome of one request.
#[derive(Debug)]
pub(crate) struct Letter {
    /// The request's number in its flight.
    pub(crate) number: u64,
    /// The request's buffer.
    pub(crate) buf: IoBuf,
    pub(crate) outcome: Outcome,
}

/// The outcomes that a caller has not taken yet.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    letters: Mutex<Vec<Letter>>,
    arrived: Condvar,
}

impl Mailbox {
    /// Delivers a letter.
    pub(crate) fn put(&self, letter: Letter) {
        self.letters.lock().push(letter);
        self.arrived.notify_one();
    }

    /// Takes all letters, and waits for the first one until `deadline` if there is one.
    pub(crate) fn take(&self, deadline: Option<Instant>) -> Vec<Letter> {
        let mut letters = self.letters.lock();
        if let Some(deadline) = deadline {
            while letters.is_empty() {
                if self.arrived.wait_until(&mut letters, deadline).timed_out() {
                    break;
                }
            }
        }
        std::mem::take(&mut letters)
    }
}
