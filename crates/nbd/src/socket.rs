//! A socket to a server: TCP or Unix.
//!
//! # Concurrency
//! One thread may read while another writes. [`Socket::shut`] ends both from any thread.

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::address::Endpoint;

/// The pause between two tries at a Unix socket whose queue of connections is full.
const PAUSE: Duration = Duration::from_millis(20);
/// The shortest time that a socket is given. Zero would mean no limit.
const SHORTEST: Duration = Duration::from_millis(1);

/// Look-ups of names that may be under way at once.
const LOOK_UPS: usize = 16;

/// A connected socket.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// The socket `fd`, which another process has connected to `endpoint`.
    pub(crate) fn of(endpoint: &Endpoint, fd: OwnedFd) -> Socket {
        match endpoint {
            Endpoint::Tcp { .. } => Socket::Tcp(fd.into()),
            Endpoint::Unix(_) => Socket::Unix(fd.into()),
        }
    }

    /// Connects to `endpoint`.
    ///
    /// # Errors
    /// The name has no address; what the host said of the last of the server's addresses.
    pub(crate) fn connect(endpoint: &Endpoint, deadline: Instant) -> io::Result<Socket> {
        let (host, port) = match endpoint {
            Endpoint::Unix(path) => return connect_unix(path, deadline).map(Socket::Unix),
            Endpoint::Tcp { host, port } => (host.as_str(), *port),
        };
        let mut last = io::Error::other("the name of the host has no address");
        let name = host.to_owned();
        let addresses = until(deadline, move || {
            Ok((name.as_str(), port).to_socket_addrs()?.collect::<Vec<_>>())
        });
        for address in addresses? {
            match TcpStream::connect_timeout(&address, left(deadline)) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(Socket::Tcp(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Limits how long one read and one write may wait.
    pub(crate) fn limit(&self, read: Option<Duration>, write: Option<Duration>) -> io::Result<()> {
        match self {
            Socket::Tcp(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(write)
            }
            Socket::Unix(stream) => {
                stream.set_read_timeout(read)?;
                stream.set_write_timeout(write)
            }
        }
    }

    /// Ends both directions: reads and writes that wait return.
    pub(crate) fn shut(&self) {
        self.end(Shutdown::Both);
    }

    /// Ends what comes in: what the peer sent before can still be answered.
    pub(crate) fn shut_reading(&self) {
        self.end(Shutdown::Read);
    }

    fn end(&self, direction: Shutdown) {
        // One that is not connected any more is shut already.
        let _ = match self {
            Socket::Tcp(stream) => stream.shutdown(direction),
            Socket::Unix(stream) => stream.shutdown(direction),
        };
    }
}

impl From<TcpStream> for Socket {
    fn from(stream: TcpStream) -> Socket {
        Socket::Tcp(stream)
    }
}

impl From<UnixStream> for Socket {
    fn from(stream: UnixStream) -> Socket {
        Socket::Unix(stream)
    }
}

/// The time until `deadline`; `SHORTEST` once it has passed.
pub(crate) fn left(deadline: Instant) -> Duration {
    let left = deadline.saturating_duration_since(Instant::now());
    left.max(SHORTEST)
}

/// The outcome of `look`, which no time can be given to: it is left to a thread of its own at
/// `deadline`.
fn until<T: Send + 'static>(
    deadline: Instant,
    look: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    /// Look-ups under way, also those whose time is over.
    static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);
    if UNDER_WAY.fetch_add(1, Ordering::SeqCst) >= LOOK_UPS {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
        let what = "the names of hosts that were asked for before are still looked up";
        return Err(io::Error::new(io::ErrorKind::WouldBlock, what));
    }
    let (sender, outcome) = mpsc::channel();
    let thread = thread::Builder::new().name("nbd-name".into());
    let looked = thread.spawn(move || {
        // Its time may be over.
        let _ = sender.send(look());
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
    });
    if let Err(error) = looked {
        UNDER_WAY.fetch_sub(1, Ordering::SeqCst);
        return Err(error);
    }
    outcome.recv_timeout(left(deadline)).unwrap_or_else(|_| {
        let what = "the name of the host was not looked up in time";
        Err(io::Error::new(io::ErrorKind::TimedOut, what))
    })
}

/// Connects without waiting for the server: a blocking `connect` waits for as long as the server
/// accepts nothing.
fn connect_unix(path: &Path, deadline: Instant) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    loop {
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match connect(&socket, &address) {
            Ok(()) => {
                let stream = UnixStream::from(socket);
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(Errno::AGAIN) if Instant::now() < deadline => thread::sleep(PAUSE),
            Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
            Err(error) => return Err(error.into()),
        }
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> OwnedFd {
        match socket {
            Socket::Tcp(stream) => stream.into(),
            Socket::Unix(stream) => stream.into(),
        }
    }
}

impl Read for &Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).read(buf),
            Socket::Unix(stream) => (&mut &*stream).read(buf),
        }
    }
}

impl Write for &Socket {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Socket::Tcp(stream) => (&mut &*stream).write_vectored(bufs),
            Socket::Unix(stream) => (&mut &*stream).write_vectored(bufs),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_waited_for_until_the_deadline() {
        let (answer, resolver) = mpsc::channel::<()>();
        let deadline = Instant::now() + Duration::from_millis(50);
        let silent = until(deadline, move || resolver.recv().map_err(io::Error::other));
        let error = silent.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().contains("not looked up"), "{error}");
        drop(answer);
        let deadline = Instant::now() + Duration::from_secs(600);
        assert_eq!(until(deadline, || Ok(7)).unwrap(), 7);
        let refused = || Err::<(), _>(io::ErrorKind::PermissionDenied.into());
        let error = until(deadline, refused).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
