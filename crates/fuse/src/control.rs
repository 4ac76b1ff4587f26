//! The way to learn how an unmount ended.
//!
//! A plain FUSE mount is gone from the directory before its daemon has written everything home. Whoever unmounts and wants
//! to know asks the mount for its extended attribute [`CONTROL_ATTRIBUTE`] first, which names an abstract socket, connects to it, and unmounts.
//! When the image is closed, the daemon writes the outcome to everyone who is connected: a line, `ok` or what went wrong.
//!
//! Locks: `waiting` is a leaf.

use std::io::{self, Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// The extended attribute, of any file of a mount, whose value names the socket. Not stored in the image and not listed.
pub const CONTROL_ATTRIBUTE: &str = "extant.control";
/// What the daemon says to a client that it has taken in: from then on the client will be told.
const GREETING: [u8; 1] = *b"+";
/// The first word of a good outcome.
const GOOD: &str = "ok";
/// How long a client may take to read its line.
const PATIENCE: Duration = Duration::from_secs(1);
/// Clients that may wait at once.
const CLIENTS: usize = 64;

/// The daemon's end.
pub(crate) struct Control {
    name: String,
    waiting: Arc<Mutex<Vec<UnixStream>>>,
}

impl Control {
    /// Opens the socket and takes in clients from then on.
    pub(crate) fn open() -> io::Result<Self> {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let name = format!("extant-{}-{:x}", std::process::id(), now.as_nanos());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name)?)?;
        let waiting = Arc::<Mutex<Vec<UnixStream>>>::default();
        let clients = Arc::clone(&waiting);
        // Ends with the process: it holds nothing that must be given back.
        thread::Builder::new()
            .name("fuse-control".into())
            .spawn(move || {
                for mut client in listener.incoming().map_while(Result::ok) {
                    let mut clients = clients.lock();
                    if clients.len() < CLIENTS && client.write_all(&GREETING).is_ok() {
                        clients.push(client);
                    }
                }
            })?;
        Ok(Self { name, waiting })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Tells everyone who waits how it ended.
    pub(crate) fn finish(&self, outcome: Result<(), String>) {
        let line = match outcome {
            Ok(()) => format!("{GOOD}\n"),
            Err(what) => format!("{}\n", what.replace('\n', " ")),
        };
        for mut client in self.waiting.lock().drain(..) {
            // A client that has gone away is not waiting any more.
            let _ = client.set_write_timeout(Some(PATIENCE));
            let _ = client.write_all(line.as_bytes());
        }
    }
}

/// A client's end: waits for the outcome of an unmount.
pub struct Waiter(UnixStream);

impl Waiter {
    /// Connects to the daemon of the Extant mount at `dir`. Do so before unmounting it.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if it is not a mount of Extant, or whatever reaching it brings.
    pub fn connect(dir: &Path) -> io::Result<Waiter> {
        let mut name = [0; 128];
        let len = rustix::fs::getxattr(dir, CONTROL_ATTRIBUTE, &mut name)?;
        let name = name.get(..len).unwrap_or(&[]);
        let mut stream = UnixStream::connect_addr(&SocketAddr::from_abstract_name(name)?)?;
        stream.read_exact(&mut [0; GREETING.len()])?;
        Ok(Waiter(stream))
    }

    /// Waits until the image is closed.
    ///
    /// # Errors
    /// What the daemon reports; or that it died without reporting anything.
    pub fn wait(mut self) -> io::Result<()> {
        let mut line = String::new();
        self.0.read_to_string(&mut line)?;
        match line.trim_end() {
            GOOD => Ok(()),
            "" => Err(io::Error::other(
                "the daemon died before the image was closed",
            )),
            what => Err(io::Error::other(what.to_owned())),
        }
    }
}
