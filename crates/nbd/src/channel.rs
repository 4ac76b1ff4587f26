//! The bytes of a connection, in both directions.
//!
//! # Concurrency
//! One thread at a time sends, one receives; the two may be different ones.

use std::io::{self, IoSlice, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::socket::{Socket, left};

/// The bytes of a connection.
#[derive(Debug)]
pub(crate) struct Channel {
    socket: Socket,
}

impl Channel {
    /// A channel over `socket`, without TLS.
    pub(crate) fn new(socket: Socket) -> Arc<Channel> {
        Arc::new(Channel { socket })
    }

    /// Sends `parts`, one after the other.
    pub(crate) fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
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

    /// From now on a receiver waits without a limit, and a sender at most `send`.
    pub(crate) fn leave_handshake(&self, send: Duration) -> io::Result<()> {
        self.socket.limit(None, Some(send))
    }
}

/// The receiving end of a channel. Each read may wait until `deadline`, if there is one.
#[derive(Debug)]
pub(crate) struct Receiver {
    channel: Arc<Channel>,
    deadline: Option<Instant>,
}

impl Receiver {
    /// The receiving end of `channel`, for the handshake.
    pub(crate) fn until(channel: &Arc<Channel>, deadline: Instant) -> Receiver {
        Receiver {
            channel: Arc::clone(channel),
            deadline: Some(deadline),
        }
    }

    /// Lets reads wait for as long as the channel is open.
    pub(crate) fn without_deadline(mut self) -> Receiver {
        self.deadline = None;
        self
    }
}

impl Read for Receiver {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some(deadline) = self.deadline {
            let left = Some(left(deadline));
            self.channel.socket.limit(left, left)?;
            if Instant::now() >= deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        (&self.channel.socket).read(buf)
    }
}
