//! A client's end of the connection that reports how an unmount ended; see [`crate::control`].
//!
//! # Invariants
//! No daemon makes the client grow, and one that neither answers nor hangs up makes it wait for
//! [`PATIENCE`] at most.

use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::control::{ASK, BAD, CLOSING, CONTROL_ATTRIBUTE, GOOD, GREETING, LINE_LEN, MOUNTED};

/// How long a daemon may take to answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often a daemon that closes its image is asked whether it lives.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Between two questions whether the mount is gone.
const POLL: Duration = Duration::from_millis(10);

/// Waits for the outcome of an unmount.
#[derive(Debug)]
pub struct UnmountWaiter {
    stream: UnixStream,
    /// The beginning of the outcome, once it came in the place of an answer.
    outcome: Option<u8>,
    /// [`PATIENCE`], but for a test.
    patience: Duration,
}

impl UnmountWaiter {
    /// Connects to the daemon of the Extant mount at `dir`. Do so before unmounting it.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if it is not a mount of Extant, or whatever reaching it
    /// brings.
    pub fn connect(dir: &Path) -> io::Result<UnmountWaiter> {
        let mut name = [0; 128];
        let len = rustix::fs::getxattr(dir, CONTROL_ATTRIBUTE, &mut name)?;
        // The kernel gives no more than the buffer holds; an empty name connects nowhere.
        Self::connect_to(name.get(..len).unwrap_or(&[]))
    }

    fn connect_to(name: &[u8]) -> io::Result<UnmountWaiter> {
        let kind = SocketType::STREAM;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
        // Holds for connecting as well: the daemon's queue may be full.
        set_socket_timeout(&socket, Timeout::Send, Some(PATIENCE))?;
        connect(&socket, &SocketAddrUnix::new_abstract_name(name)?)?;
        let mut waiter = UnmountWaiter {
            stream: UnixStream::from(socket),
            outcome: None,
            patience: PATIENCE,
        };
        match waiter.byte(PATIENCE)? {
            Some(GREETING) => Ok(waiter),
            Some(_) => Err(io::Error::new(ErrorKind::InvalidData, "not a daemon")),
            None => Err(silent()),
        }
    }

    /// Waits up to `timeout` until the kernel has disconnected the mount and returns whether it
    /// has: no mount point, in whatever mount namespace, and no open file holds it. The daemon is
    /// asked at least once.
    ///
    /// # Errors
    /// The daemon does not answer, or died without reporting anything.
    pub fn wait_until_gone(&mut self, timeout: Duration) -> io::Result<bool> {
        let end = Instant::now() + timeout;
        loop {
            if self.outcome.is_some() {
                return Ok(true);
            }
            self.ask()?;
            match self.byte(self.patience)? {
                Some(MOUNTED) if Instant::now() < end => thread::sleep(POLL),
                Some(MOUNTED) => return Ok(false),
                Some(CLOSING) => return Ok(true),
                Some(first) => self.outcome = Some(first),
                None => return Err(silent()),
            }
        }
    }

    /// Waits until the image is closed.
    ///
    /// # Errors
    /// What the daemon reports; that it does not answer, or died without reporting anything.
    pub fn wait(mut self) -> io::Result<()> {
        let mut asked: Option<Instant> = None;
        loop {
            if let Some(first) = self.outcome {
                return self.read_outcome(first);
            }
            match self.byte(HEARTBEAT)? {
                Some(MOUNTED | CLOSING) => asked = None,
                Some(first) => self.outcome = Some(first),
                None => match asked {
                    None => {
                        self.ask()?;
                        asked = Some(Instant::now());
                    }
                    Some(since) if since.elapsed() > self.patience => return Err(silent()),
                    Some(_) => {}
                },
            }
        }
    }

    fn ask(&mut self) -> io::Result<()> {
        match self.stream.write_all(&[ASK]) {
            // The daemon may have hung up behind the outcome, which is still to be read.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(silent()),
            other => other,
        }
    }

    /// The next byte; `None` if none comes within `timeout`.
    fn byte(&mut self, timeout: Duration) -> io::Result<Option<u8>> {
        self.stream.set_read_timeout(Some(timeout))?;
        let mut byte = [0];
        loop {
            match self.stream.read(&mut byte) {
                Ok(0) => return Err(dead()),
                Ok(_) => return Ok(Some(byte[0])),
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock => return Ok(None),
                    ErrorKind::ConnectionReset => return Err(dead()),
                    ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// Reads the rest of the line that begins with `first`.
    fn read_outcome(&mut self, first: u8) -> io::Result<()> {
        let end = Instant::now() + self.patience;
        let mut line = vec![first];
        loop {
            if line.ends_with(b"\n") {
                break;
            }
            if line.len() >= LINE_LEN || Instant::now() >= end {
                return Err(io::Error::new(
                    ErrorKind::InvalidData,
                    "the daemon talks without an end",
                ));
            }
            match self.byte(self.patience)? {
                Some(byte) => line.push(byte),
                None => return Err(silent()),
            }
        }
        match String::from_utf8_lossy(&line).trim_end() {
            GOOD => Ok(()),
            what => Err(io::Error::other(what.trim_start_matches(BAD).to_owned())),
        }
    }
}

fn dead() -> io::Error {
    io::Error::other("the daemon died before the image was closed")
}

fn silent() -> io::Error {
    io::Error::new(
        ErrorKind::TimedOut,
        "the daemon does not answer; whether the image is closed is not known",
    )
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};
    use std::sync::mpsc;

    use super::*;
    use crate::control::{Control, ControlSocket};

    /// A waiter that is connected to a daemon that greets it and then does `act`.
    fn against(name: &str, act: impl FnOnce(UnixStream) + Send + 'static) -> UnmountWaiter {
        let name = format!("extant-test-{name}-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        thread::spawn(move || {
            let (mut client, _) = listener.accept().unwrap();
            client.write_all(&[GREETING]).unwrap();
            act(client);
        });
        UnmountWaiter::connect_to(name.as_bytes()).unwrap()
    }

    fn failure(name: &str, act: impl FnOnce(UnixStream) + Send + 'static) -> String {
        against(name, act).wait().unwrap_err().to_string()
    }

    #[test]
    fn a_daemon_cannot_feed_or_hold_its_waiter() {
        let endless = failure(
            "endless",
            |mut client| {
                while client.write_all(&[b'x'; 4096]).is_ok() {}
            },
        );
        assert!(endless.contains("without an end"), "{endless}");
        let dead = failure("dead", drop);
        assert!(dead.contains("died"), "{dead}");
        let half = failure("half", |mut client| client.write_all(b"!so far").unwrap());
        assert!(half.contains("died"), "{half}");
        // Reads no question and says nothing, but stays.
        let (leave, left) = mpsc::channel::<()>();
        let mut silent = against("silent", move |_client| {
            // Ends as the test lets go.
            let _ = left.recv();
        });
        silent.patience = Duration::from_millis(50);
        let silent = silent.wait().unwrap_err().to_string();
        assert!(silent.contains("does not answer"), "{silent}");
        drop(leave);
        let bad = failure("bad", |mut client| {
            client.write_all(b"ccm!no space\n").unwrap();
        });
        assert_eq!(bad, "no space");
    }

    #[test]
    fn a_mount_that_stays_differs_from_one_that_closes() {
        let mut stays = against("stays", |mut client| {
            let mut question = [0];
            while client.read_exact(&mut question).is_ok() {
                client.write_all(&[MOUNTED]).unwrap();
            }
        });
        assert!(!stays.wait_until_gone(Duration::ZERO).unwrap());
        assert!(!stays.wait_until_gone(5 * POLL).unwrap());
        let mut closes = against("closes", |mut client| {
            client.read_exact(&mut [0]).unwrap();
            client.write_all(&[CLOSING]).unwrap();
            client.write_all(b"ok\n").unwrap();
        });
        assert!(closes.wait_until_gone(Duration::ZERO).unwrap());
        closes.wait().unwrap();
    }

    #[test]
    fn more_clients_than_it_takes_do_not_hold_the_daemon() {
        let control = ControlSocket::bind().and_then(Control::start).unwrap();
        let name = control.name().to_owned();
        let mut waiter = UnmountWaiter::connect_to(name.as_bytes()).unwrap();
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        // None of them reads; each asks until its answers have filled the socket, or the daemon has
        // hung up.
        let crowd: Vec<UnixStream> = (0..300)
            .filter_map(|_| UnixStream::connect_addr(&address).ok())
            .collect();
        assert!(crowd.len() > 200);
        for mut client in &crowd[..8] {
            client.set_nonblocking(true).unwrap();
            while client.write_all(&[ASK; 512]).is_ok() {}
        }
        assert!(!waiter.wait_until_gone(Duration::ZERO).unwrap());
        control.finish(Err("line\nbreak".into()));
        let error = waiter.wait().unwrap_err().to_string();
        assert_eq!(error, "line break");
        assert!(UnmountWaiter::connect_to(name.as_bytes()).is_err());
    }
}
