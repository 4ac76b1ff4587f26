//! The daemon's end of the connection that reports how an unmount ended; [`crate::UnmountWaiter`]
//! is the other end.
//!
//! A plain FUSE mount is gone from the directory before its daemon has written all data to the
//! image. A client that unmounts asks the mount for its extended attribute [`CONTROL_ATTRIBUTE`]
//! first, which names an abstract socket, connects to it, and unmounts.
//!
//! | sender | sends | meaning |
//! |---|---|---|
//! | daemon | `+` | the client was taken in: it will learn the outcome |
//! | client | `?` | is the mount still there? |
//! | daemon | `m` | the kernel still has the mount |
//! | daemon | `c` | the mount is gone, the image is being closed |
//! | daemon | `ok` or `!` and the error; a newline | the image is closed; the daemon hangs up |
//!
//! # Invariants
//! No client makes the daemon wait or grow: there are at most [`CLIENTS`], of root and of the
//! daemon's user; reads and writes do not block, and a client that does not read its answers is
//! hung up on. A refused client finds the socket closed before the greeting.
//!
//! # Concurrency
//! One thread owns the socket and all clients; a bell wakes it for the end.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use tracing::debug;

use crate::device::Device;

/// The extended attribute, of any file of a mount, whose value names the socket. Not stored in the
/// image and not listed.
pub const CONTROL_ATTRIBUTE: &str = "extant.control";
/// To a client that was taken in.
pub(crate) const GREETING: u8 = b'+';
/// A client's question.
pub(crate) const ASK: u8 = b'?';
/// The kernel still has the mount.
pub(crate) const MOUNTED: u8 = b'm';
/// The image is being closed.
pub(crate) const CLOSING: u8 = b'c';
/// A good outcome.
pub(crate) const GOOD: &str = "ok";
/// Before what went wrong, so that it is never taken for an answer.
pub(crate) const BAD: char = '!';
/// The longest line of an outcome in bytes.
pub(crate) const LINE_LEN: usize = 4096;

/// Clients that may wait at once.
const CLIENTS: usize = 64;
/// Clients refused or taken in before those that are there get their answers.
const ACCEPTED_AT_ONCE: usize = 128;
/// Pause after the host refused something that it may give later, such as a descriptor.
const PAUSE: Duration = Duration::from_millis(20);

/// The socket, which clients can connect to, and which answers them once it is started.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    name: String,
    listener: UnixListener,
}

impl ControlSocket {
    pub(crate) fn bind() -> io::Result<Self> {
        // A clock before 1970 counts as 1970: the time only makes the name hard to guess.
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!("extant-{}-{:x}", std::process::id(), now.as_nanos());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        listener.set_nonblocking(true)?;
        Ok(Self { name, listener })
    }
}

/// The daemon's end.
pub(crate) struct Control {
    name: String,
    shared: Arc<ControlState>,
    thread: Option<JoinHandle<()>>,
}

struct ControlState {
    /// Readable once there is an outcome.
    bell: OwnedFd,
    /// Knows whether the kernel still has the mount; absent before there is one.
    device: OnceLock<Arc<Device>>,
    outcome: OnceLock<String>,
}

impl Control {
    /// Takes in clients of `socket` from now on.
    pub(crate) fn start(socket: ControlSocket) -> io::Result<Self> {
        let ControlSocket { name, listener } = socket;
        let shared = Arc::new(ControlState {
            bell: eventfd(0, EventfdFlags::CLOEXEC)?,
            device: OnceLock::new(),
            outcome: OnceLock::new(),
        });
        let server = Arc::clone(&shared);
        let thread = thread::Builder::new()
            .name("fuse-control".into())
            .spawn(move || server.serve(&listener))?;
        Ok(Self {
            name,
            shared,
            thread: Some(thread),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// From now on the device shows whether the mount is there.
    pub(crate) fn watch(&self, device: Arc<Device>) {
        // There is one device for each mount.
        let _ = self.shared.device.set(device);
    }

    /// Reports to every client how the unmount ended.
    pub(crate) fn finish(self, outcome: Result<(), String>) {
        let mut line = match outcome {
            Ok(()) => GOOD.to_owned(),
            Err(what) => format!("{BAD}{}", what.replace('\n', " ")),
        };
        line.truncate(line.floor_char_boundary(LINE_LEN - 1));
        line.push('\n');
        let _ = self.shared.outcome.set(line);
        drop(self);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let missing = || format!("{BAD}the daemon gave up before the image was closed\n");
        self.shared.outcome.get_or_init(missing);
        if let Err(error) = rustix::io::write(&self.shared.bell, &1_u64.to_ne_bytes()) {
            debug!("the control thread cannot be woken at the end: {error}");
            return;
        }
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, that was reported and its clients found the socket closed.
            let _ = thread.join();
        }
    }
}

impl ControlState {
    fn serve(&self, listener: &UnixListener) {
        let mut clients = Vec::new();
        loop {
            if let Err(error) = self.wait(listener, &clients) {
                debug!("waiting for clients: {error}");
                thread::sleep(PAUSE);
            }
            let outcome = self.outcome.get();
            take_in(listener, &mut clients);
            if let Some(line) = outcome {
                for mut client in clients {
                    // Fits into the socket's buffer unless the client does not read.
                    let _ = client.write_all(line.as_bytes());
                }
                return;
            }
            clients.retain_mut(|client| self.answer(client));
        }
    }

    fn wait(&self, listener: &UnixListener, clients: &[UnixStream]) -> io::Result<()> {
        let mut fds = vec![
            PollFd::new(&self.bell, PollFlags::IN),
            PollFd::new(listener, PollFlags::IN),
        ];
        fds.extend(clients.iter().map(|c| PollFd::new(c, PollFlags::IN)));
        match poll(&mut fds, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Answers what a client has asked; false if it has hung up or does not read.
    fn answer(&self, client: &mut UnixStream) -> bool {
        // Questions that came together get one answer.
        let mut questions = [0; 64];
        match client.read(&mut questions) {
            Ok(0) => false,
            Ok(_) => {
                let gone = self.device.get().is_some_and(|device| device.is_gone());
                let state = if gone { CLOSING } else { MOUNTED };
                client.write_all(&[state]).is_ok()
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}

/// Greets the clients that wait at the socket, and refuses those of other users and those that are
/// too many.
fn take_in(listener: &UnixListener, clients: &mut Vec<UnixStream>) {
    for _ in 0..ACCEPTED_AT_ONCE {
        let mut client = match listener.accept() {
            Ok((client, _)) => client,
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock => return,
                ErrorKind::Interrupted | ErrorKind::ConnectionAborted => continue,
                _ => {
                    debug!("a client is not taken in: {error}");
                    thread::sleep(PAUSE);
                    return;
                }
            },
        };
        let greeted = clients.len() < CLIENTS
            && may_ask(&client)
            && client.set_nonblocking(true).is_ok()
            && client.write_all(&[GREETING]).is_ok();
        if greeted {
            clients.push(client);
        }
    }
}

/// Only root and the daemon's user can unmount; another user has nothing to wait for.
fn may_ask(client: &UnixStream) -> bool {
    socket_peercred(client).is_ok_and(|peer| peer.uid.is_root() || peer.uid == geteuid())
}
