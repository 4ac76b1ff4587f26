//! The bytes of a connection, in both directions, plain or sealed by TLS.
//!
//! # Concurrency
//! One thread at a time sends, one receives; the two may be different ones. Under TLS both lock the
//! state of the session, never over I/O. What the session wants to send after it has received (a
//! new key) is sent with the next request: so a receiver never waits for the server to read.

use std::io::{self, IoSlice, Read, Write};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustls::ClientConnection;

use crate::error::NbdError;
use crate::socket::{Socket, left};

/// Bytes that are sealed at a time, and that are sent at a time.
const SEALED: usize = 16 << 10;
const SENT: usize = 256 << 10;
/// Sealed bytes that are received at a time.
const RECEIVED: usize = 16 << 10;

/// The bytes of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
    tls: OnceLock<Mutex<ClientConnection>>,
}

impl Channel {
    /// A channel over `socket`, without TLS.
    pub(crate) fn new(socket: Socket) -> Arc<Channel> {
        Arc::new(Channel {
            socket,
            tls: OnceLock::new(),
        })
    }

    /// Goes over to TLS, before any other thread uses the channel.
    ///
    /// # Errors
    /// The two sides do not agree, or the server's certificate is not trusted.
    pub(crate) fn start_tls(&self, session: ClientConnection, until: Instant) -> io::Result<()> {
        let mut session = session;
        let mut socket = Timed {
            socket: &self.socket,
            until,
        };
        while session.is_handshaking() {
            session.complete_io(&mut socket)?;
        }
        let started = self.tls.set(Mutex::new(session)).is_ok();
        debug_assert!(started, "TLS starts once");
        Ok(())
    }

    /// Sends `parts`, one after the other.
    pub(crate) fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let Some(tls) = self.tls.get() else {
            return self.send_plain(parts);
        };
        let mut sealed = Vec::new();
        for piece in parts.iter().flat_map(|part| part.chunks(SEALED)) {
            let mut session = tls.lock();
            session.writer().write_all(piece)?;
            while session.wants_write() {
                session.write_tls(&mut sealed)?;
            }
            drop(session);
            if sealed.len() >= SENT {
                self.send_plain(&[&sealed])?;
                sealed.clear();
            }
        }
        self.send_plain(&[&sealed])
    }

    fn send_plain(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = slices.as_mut_slice();
        IoSlice::advance_slices(&mut rest, 0);
        while !rest.is_empty() {
            match (&self.socket).write_vectored(rest) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => IoSlice::advance_slices(&mut rest, sent),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Ends the channel: a thread that waits in it gets an error.
    pub(crate) fn shut(&self) {
        self.socket.shut();
    }

    /// Ends what comes in: a receiver is at the end, and a sender can still answer.
    pub(crate) fn shut_reading(&self) {
        self.socket.shut_reading();
    }

    /// From now on a receiver waits without a limit, and a sender at most `send`.
    pub(crate) fn leave_handshake(&self, send: Duration) -> io::Result<()> {
        self.socket.limit(None, Some(send))
    }
}

/// A socket whose reads and writes wait until a moment.
struct Timed<'a> {
    socket: &'a Socket,
    until: Instant,
}

impl Timed<'_> {
    fn limit(&self) -> io::Result<()> {
        if Instant::now() >= self.until {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let left = Some(left(self.until));
        self.socket.limit(left, left)
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.limit()?;
        (&mut &*self.socket).read(buf)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.limit()?;
        (&mut &*self.socket).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The receiving end of a channel. Each read may wait until `deadline`, if there is one.
#[derive(Debug)]
pub(crate) struct Receiver {
    channel: Arc<Channel>,
    deadline: Option<Instant>,
    /// Sealed bytes that were received; those from `next` on were not given to the session.
    sealed: Vec<u8>,
    next: usize,
}

impl Receiver {
    /// The receiving end of `channel`, for the handshake.
    pub(crate) fn until(channel: &Arc<Channel>, deadline: Instant) -> Receiver {
        Receiver {
            channel: Arc::clone(channel),
            deadline: Some(deadline),
            sealed: Vec::new(),
            next: 0,
        }
    }

    /// Lets reads wait for as long as the channel is open.
    pub(crate) fn without_deadline(mut self) -> Receiver {
        self.deadline = None;
        self
    }

    fn read_socket(&self, buf: &mut [u8]) -> io::Result<usize> {
        let socket = &self.channel.socket;
        match self.deadline {
            Some(until) => Timed { socket, until }.read(buf),
            None => (&mut &*socket).read(buf),
        }
    }

    /// Gives the session sealed bytes, received if there are none.
    fn feed(&mut self, tls: &Mutex<ClientConnection>) -> io::Result<()> {
        if self.next == self.sealed.len() {
            let mut sealed = std::mem::take(&mut self.sealed);
            self.next = 0;
            sealed.resize(RECEIVED, 0);
            let received = self.read_socket(&mut sealed)?;
            if received == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            sealed.truncate(received);
            self.sealed = sealed;
        }
        let mut rest = &self.sealed[self.next..];
        let before = rest.len();
        let mut session = tls.lock();
        session.read_tls(&mut rest)?;
        self.next += before - rest.len();
        let opened = session.process_new_packets();
        opened.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, NbdError::tls(error)))?;
        Ok(())
    }
}

impl Read for Receiver {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let channel = Arc::clone(&self.channel);
        let Some(tls) = channel.tls.get() else {
            return self.read_socket(buf);
        };
        loop {
            match tls.lock().reader().read(buf) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                opened => return opened,
            }
            self.feed(tls)?;
        }
    }
}
