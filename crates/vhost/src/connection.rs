//! Connections of monitors: one after the other, until they end or are to end.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use tracing::debug;
use vhost::vhost_user::{Error as ProtocolError, Listener};
use vhost_user_backend::{Error as DaemonError, ShutdownHandle, VhostUserBackend, VhostUserDaemon};
use vm_memory::{GuestMemoryAtomic, GuestMemoryMmap};

use crate::queue::Vring;

/// Why a device is not served any more.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The socket.
    #[error(transparent)]
    Socket(#[from] io::Error),
    /// The protocol of the monitor.
    #[error("{0}")]
    Protocol(String),
    /// The device cannot make durable, at the end, all that was written.
    #[error("what the guest wrote is not durable: {0}")]
    Flush(#[source] io::Error),
    /// The unmount of the volume.
    #[error("the unmount: {0}")]
    Close(String),
}

/// A Unix socket that monitors connect to.
#[derive(Debug)]
pub struct Socket(UnixListener);

impl Socket {
    /// Makes a socket at `path`. One that a process has left that is gone is replaced.
    ///
    /// # Errors
    /// Something else is there, or a process that serves it.
    pub fn bind(path: &Path) -> io::Result<Self> {
        let listener = match UnixListener::bind(path) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                refuse_in_use(path)?;
                std::fs::remove_file(path)?;
                UnixListener::bind(path)?
            }
            other => other?,
        };
        listener.set_nonblocking(false)?;
        Ok(Self(listener))
    }
}

/// Fails unless `path` is a socket that no process serves.
fn refuse_in_use(path: &Path) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    if !path.symlink_metadata()?.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "it exists, and is no socket",
        ));
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            "another process serves it",
        )),
    }
}

/// Ends the serving of a device from another thread.
#[derive(Clone)]
pub struct Stopper(Arc<Stop>);

struct Stop {
    is_set: AtomicBool,
    /// Readable once it is set.
    bell: OwnedFd,
    /// Of the connection that is served.
    connection: Mutex<Option<ShutdownHandle>>,
}

impl Stopper {
    /// One that has not stopped anything yet.
    ///
    /// # Errors
    /// The host has no eventfd.
    pub fn new() -> io::Result<Self> {
        Ok(Self(Arc::new(Stop {
            is_set: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC)?,
            connection: Mutex::default(),
        })))
    }

    /// Ends the connection, and waits for no other.
    pub fn stop(&self) {
        let stop = &*self.0;
        let connection = stop.connection.lock();
        stop.is_set.store(true, Ordering::SeqCst);
        if let Err(error) = rustix::io::write(&stop.bell, &1_u64.to_ne_bytes()) {
            debug!("the thread that waits for monitors cannot be woken: {error}");
        }
        if let Some(connection) = &*connection {
            connection.shutdown();
        }
    }

    fn is_set(&self) -> bool {
        self.0.is_set.load(Ordering::SeqCst)
    }

    /// Has [`Stopper::stop`] end this connection. It ends at once if it was called before.
    fn watch(&self, connection: Option<ShutdownHandle>) {
        let mut watched = self.0.connection.lock();
        *watched = connection;
        if self.is_set()
            && let Some(connection) = &*watched
        {
            connection.shutdown();
        }
    }

    /// Waits for a connection; returns whether there is one.
    fn wait(&self, listener: &UnixListener) -> io::Result<bool> {
        loop {
            let bell = &self.0.bell;
            let mut fds = [
                PollFd::new(listener, PollFlags::IN),
                PollFd::new(bell, PollFlags::IN),
            ];
            match poll(&mut fds, None) {
                Ok(_) => {}
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if self.is_set() {
                return Ok(false);
            }
            if fds[0].revents().intersects(PollFlags::IN) {
                return Ok(true);
            }
        }
    }
}

/// A device that monitors connect to.
pub(crate) trait Device: VhostUserBackend<Bitmap = (), Vring = Vring> + 'static {
    /// The monitor is gone, and no queue is served any more. What is held of its guest is let go.
    fn disconnected(&self);
}

/// Serves `device` to one monitor, or with `keep` to one after the other.
pub(crate) fn serve<D: Device>(
    name: &str,
    device: &Arc<D>,
    socket: Socket,
    keep: bool,
    stopper: &Stopper,
) -> Result<(), Error> {
    let listener = socket.0;
    loop {
        if !stopper.wait(&listener)? {
            return Ok(());
        }
        let mut accepting = Listener::from(listener.try_clone()?);
        let memory = GuestMemoryAtomic::new(GuestMemoryMmap::new());
        let daemon = VhostUserDaemon::new(name.to_owned(), Arc::clone(device), memory);
        let mut daemon = daemon.map_err(|error| Error::Protocol(error.to_string()))?;
        let started = daemon.start(&mut accepting);
        started.map_err(|error| Error::Protocol(error.to_string()))?;
        stopper.watch(daemon.shutdown_handle());
        let ended = daemon.wait();
        stopper.watch(None);
        // The threads of the queues end here.
        drop(daemon);
        device.disconnected();
        match ended {
            Ok(()) => {}
            // A monitor that has ended says no more.
            Err(DaemonError::HandleRequest(
                ProtocolError::Disconnected | ProtocolError::PartialMessage,
            )) => {}
            Err(error) if keep => tracing::warn!("a monitor's connection has ended: {error}"),
            Err(error) => return Err(Error::Protocol(error.to_string())),
        }
        if !keep || stopper.is_set() {
            return Ok(());
        }
    }
}
