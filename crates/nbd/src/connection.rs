//! One connection to the server, and the thread that reads its replies.
//!
//! # Locks
//! `sending` is held while a request is added to the table and sent, so that its bytes are not
//! mixed with those of another one.

use std::io::BufReader;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use parking_lot::Mutex;

use crate::channel::Channel;
use crate::error::NbdError;
use crate::in_flight::InFlight;
use crate::loss::Loss;
use crate::negotiation::Negotiated;
use crate::pending::Pending;
use crate::protocol::{Command, Request};
use crate::replies::read_replies;

/// Bytes of replies that are read ahead. Longer data goes straight into the request's buffer.
const READ_AHEAD: usize = 16 << 10;

/// One connection. See the module's header.
#[derive(Debug)]
pub(crate) struct Connection {
    channel: Arc<Channel>,
    in_flight: Arc<InFlight>,
    sending: Mutex<()>,
    /// The cookie of the last request.
    cookies: AtomicU64,
    reader: Option<JoinHandle<()>>,
}

impl Connection {
    /// Starts the connection that was negotiated.
    ///
    /// # Errors
    /// The host has no thread for it.
    pub(crate) fn start(negotiated: Negotiated) -> Result<Connection, NbdError> {
        let Negotiated {
            channel,
            receiver,
            structured,
            ..
        } = negotiated;
        let in_flight = Arc::<InFlight>::default();
        let (table, lost) = (Arc::clone(&in_flight), Arc::clone(&channel));
        let thread = thread::Builder::new().name("nbd-replies".into());
        let reader = thread.spawn(move || {
            let mut input = BufReader::with_capacity(READ_AHEAD, receiver);
            let loss = read_replies(&mut input, &table, structured);
            table.close(loss);
            lost.shut();
        });
        let reader = reader.map_err(|error| NbdError::Handshake {
            what: format!("no thread: {error}"),
            cause: error,
        })?;
        Ok(Connection {
            channel,
            in_flight,
            sending: Mutex::new(()),
            cookies: AtomicU64::new(0),
            reader: Some(reader),
        })
    }

    /// Sends a request and its data. The outcome comes as a letter in every case.
    pub(crate) fn send(&self, pending: Pending, data: &[u8]) {
        let request = pending.request;
        let cookie = self.cookies.fetch_add(1, Ordering::Relaxed) + 1;
        let sending = self.sending.lock();
        if !self.in_flight.add(cookie, pending) {
            return;
        }
        let sent = self.channel.send(&[&request.header(cookie), data]);
        drop(sending);
        if let Err(error) = sent {
            self.lose(Loss::of(&error));
        }
    }

    /// Gives the connection up: every request in flight is lost.
    pub(crate) fn lose(&self, loss: Loss) {
        self.in_flight.close(loss);
        self.channel.shut();
    }

    /// How the connection was lost, if it was.
    pub(crate) fn loss(&self) -> Option<Loss> {
        self.in_flight.loss()
    }

    /// Returns whether the server may carry out a change later whose request is lost.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.in_flight.is_doubtful()
    }

    /// Sends nothing more, and waits until `deadline` for the replies that are missing.
    pub(crate) fn drain(&self, deadline: Instant) {
        self.in_flight.drain(deadline);
        if self.loss() == Some(Loss::TimedOut) {
            self.channel.shut();
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if self
            .in_flight
            .loss()
            .is_none_or(|loss| loss == Loss::Closed)
        {
            let _sending = self.sending.lock();
            let farewell = Request::new(Command::Disconnect, 0, 0);
            // A server that is gone needs none.
            let _ = self.channel.send(&[&farewell.header(0)]);
        }
        self.lose(Loss::Closed);
        if let Some(reader) = self.reader.take() {
            let _ = reader.join();
        }
    }
}
