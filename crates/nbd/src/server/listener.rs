//! A listening socket, and the clients that came by it.
//!
//! # Invariants
//! - At most [`MOST_CLIENTS`] clients are connected; a further one is turned away.
//! - A Unix socket has mode 0600 from its first moment. Its file is removed when the server ends,
//!   unless another file has taken the path.
//! - [`Server::run`] returns when no client is connected any more, after a flush.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fs::{Mode, fchmod};
use rustix::net::sockopt::set_socket_keepalive;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, bind, listen, shutdown,
    socket_with,
};
use tracing::{debug, warn};

use crate::address::Endpoint;
use crate::channel::Channel;
use crate::server::HANDSHAKE_LIMIT;
use crate::server::service::Service;
use crate::socket::Socket;

/// The most clients at a time.
const MOST_CLIENTS: usize = 64;
/// Connections that wait until they are accepted.
const BACKLOG: i32 = 64;
/// The time that clients get to read their last replies when the server ends.
const GRACE: Duration = Duration::from_secs(5);
/// The pause after a connection could not be accepted: files are short, and clients may leave.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Unix(listener) => Ok(listener.accept()?.0.into()),
            Listener::Tcp(listener) => {
                let (stream, _): (TcpStream, _) = listener.accept()?;
                // Without these, which only a connection that has ended refuses, replies are later;
                // and a client whose host is gone has its connection for good.
                let _ = stream.set_nodelay(true);
                let _ = set_socket_keepalive(&stream, true);
                Ok(stream.into())
            }
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Listener::Tcp(listener) => listener.as_fd(),
            Listener::Unix(listener) => listener.as_fd(),
        }
    }
}

/// The file of a Unix socket, removed with this.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn identity(path: &Path) -> io::Result<(u64, u64)> {
        let found = fs::symlink_metadata(path)?;
        Ok((found.dev(), found.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if SocketFile::identity(&self.path).ok() == Some(self.identity) {
            // Without it a later server has to be told another path.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A server that listens for clients of one export.
pub struct Server {
    endpoint: Endpoint,
    shared: Arc<Shared>,
    _file: Option<SocketFile>,
}

struct Shared {
    listener: Listener,
    service: Arc<Service>,
    clients: Mutex<Clients>,
    /// Signalled when a client has left.
    left: Condvar,
}

#[derive(Default)]
struct Clients {
    open: BTreeMap<u64, Arc<Channel>>,
    next: u64,
    /// Those through with the handshake.
    serving: usize,
    /// The server ends when the last of those has left.
    once: bool,
    ended: bool,
}

/// Ends a server from any thread.
#[derive(Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Lets [`Server::run`] return: clients get the replies to what they have sent.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl Server {
    /// Listens at the Unix socket `path`, which only this user can connect to.
    ///
    /// # Errors
    /// There is a file at `path`, or the host refuses.
    pub fn listen_unix(path: &Path, service: Arc<Service>) -> io::Result<Server> {
        let path = std::path::absolute(path)?;
        let address = SocketAddrUnix::new(&path)?;
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // The file that `bind` makes takes the mode of the socket.
        fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
        bind(&socket, &address)?;
        let file = SocketFile {
            identity: SocketFile::identity(&path)?,
            path: path.clone(),
        };
        listen(&socket, BACKLOG)?;
        let listener = Listener::Unix(UnixListener::from(socket));
        let server = Server::new(listener, Endpoint::Unix(path), service);
        Ok(Server {
            _file: Some(file),
            ..server
        })
    }

    /// Listens at `at`, a host and a port joined by `:`. The port 0 stands for a free one.
    ///
    /// # Errors
    /// The host refuses.
    pub fn listen_tcp(at: &str, service: Arc<Service>) -> io::Result<Server> {
        let listener = TcpListener::bind(at)?;
        let local = listener.local_addr()?;
        let endpoint = Endpoint::Tcp {
            host: local.ip().to_string(),
            port: local.port(),
        };
        Ok(Server::new(Listener::Tcp(listener), endpoint, service))
    }

    fn new(listener: Listener, endpoint: Endpoint, service: Arc<Service>) -> Server {
        Server {
            endpoint,
            shared: Arc::new(Shared {
                listener,
                service,
                clients: Mutex::default(),
                left: Condvar::new(),
            }),
            _file: None,
        }
    }

    /// The address of the export, as clients are given it.
    pub fn address(&self) -> String {
        self.endpoint.address(self.shared.service.name())
    }

    /// Returns whether only programs of this host can connect.
    pub fn is_local(&self) -> bool {
        match &self.shared.listener {
            Listener::Unix(_) => true,
            Listener::Tcp(listener) => {
                let local = listener.local_addr();
                local.is_ok_and(|at| at.ip().is_loopback())
            }
        }
    }

    /// A handle that ends the server.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Serves clients until it is stopped; with `once`, also until the last client has left.
    ///
    /// # Errors
    /// Acknowledged writes could not be made durable.
    pub fn run(&self, once: bool) -> io::Result<()> {
        let shared = &self.shared;
        shared.clients.lock().once = once;
        loop {
            let accepted = shared.listener.accept();
            if shared.clients.lock().ended {
                break;
            }
            match accepted {
                Ok(socket) => Shared::admit(shared, socket),
                Err(error) if is_of_one(&error) => {}
                Err(error) => {
                    warn!("NBD: no client can connect: {error}");
                    thread::sleep(PAUSE);
                }
            }
        }
        shared.end_clients();
        shared.service.flush()
    }
}

/// Returns whether `error` is about one connection, not about the next as well.
fn is_of_one(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionReset | Interrupted
    )
}

impl Shared {
    /// Serves the client at `socket` by a thread of its own.
    fn admit(shared: &Arc<Shared>, socket: Socket) {
        let channel = Channel::new(socket);
        let mut clients = shared.clients.lock();
        if clients.open.len() >= MOST_CLIENTS {
            warn!("NBD: {MOST_CLIENTS} clients are connected: another one is turned away");
            return;
        }
        let number = clients.next;
        clients.next += 1;
        clients.open.insert(number, Arc::clone(&channel));
        drop(clients);
        let own = Arc::clone(shared);
        let thread = thread::Builder::new().name("nbd-client".into());
        let started = thread.spawn(move || {
            let mut visit = Visit {
                shared: own,
                number,
                agreed: false,
            };
            let shared = Arc::clone(&visit.shared);
            let agreed = || visit.agree();
            if let Err(error) = shared
                .service
                .serve_channel(&channel, HANDSHAKE_LIMIT, agreed)
            {
                debug!("NBD: the connection of client {number} ended: {error}");
            }
        });
        if let Err(error) = started {
            warn!("NBD: a client is turned away: {error}");
            shared.clients.lock().open.remove(&number);
        }
    }

    fn stop(&self) {
        self.clients.lock().ended = true;
        // One that does not listen any more accepts nothing either.
        let _ = shutdown(&self.listener, Shutdown::Both);
    }

    /// Lets clients read their last replies, and waits until all have left.
    fn end_clients(&self) {
        let deadline = Instant::now() + GRACE;
        let mut clients = self.clients.lock();
        for channel in clients.open.values() {
            channel.shut_reading();
        }
        while !clients.open.is_empty() {
            if self.left.wait_until(&mut clients, deadline).timed_out() {
                break;
            }
        }
        for channel in clients.open.values() {
            channel.shut();
        }
        while !clients.open.is_empty() {
            self.left.wait(&mut clients);
        }
    }
}

/// The time of one client at the server.
struct Visit {
    shared: Arc<Shared>,
    number: u64,
    agreed: bool,
}

impl Visit {
    fn agree(&mut self) {
        self.agreed = true;
        self.shared.clients.lock().serving += 1;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut clients = self.shared.clients.lock();
        clients.open.remove(&self.number);
        clients.serving -= usize::from(self.agreed);
        let was_last = self.agreed && clients.serving == 0 && clients.once;
        drop(clients);
        self.shared.left.notify_all();
        if was_last {
            self.shared.stop();
        }
    }
}
