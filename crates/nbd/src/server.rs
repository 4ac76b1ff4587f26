//! The other side of the protocol: a device of this process, served to clients.
//!
//! # Responsibility
//! [`Service`] is a device with the options of its export, [`Service::serve`] serves it to one
//! client over a stream that is connected already, and [`Server`] listens for clients.
//!
//! ```text
//!   socket ---> Server ---> serve, a thread per client ---> agreement   the handshake
//!                             |  reads requests
//!                           backlog     bounded: the client waits in its socket
//!                             |  threads of the connection
//!                           Service ---> device
//! ```
//!
//! # Invariants
//! Clients are not trusted. Each costs at most the memory of its backlog and its threads, and
//! nothing that it sends or leaves out ends another client's connection.

mod agreement;
mod backlog;
mod client;
mod listener;
mod service;

use std::io;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use extant_blockdev::BlockDevice;

use crate::channel::Channel;
use crate::socket::Socket;
pub use listener::{Server, Stopper};
pub use service::{ServeOptions, Service};

/// The time in which a client that has connected is through with the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(20);
/// The same at a stream that is handed over: the client may have to prepare itself.
const HANDED_OVER_LIMIT: Duration = Duration::from_secs(600);

/// A stream that a client is connected by.
#[derive(Debug)]
pub struct ClientStream(Socket);

impl From<UnixStream> for ClientStream {
    fn from(stream: UnixStream) -> ClientStream {
        ClientStream(stream.into())
    }
}

impl From<TcpStream> for ClientStream {
    fn from(stream: TcpStream) -> ClientStream {
        ClientStream(stream.into())
    }
}

impl Service {
    /// Serves the client at the other end of `stream` until the connection ends. What it was told
    /// is written is durable once it, or another client, has flushed.
    ///
    /// # Errors
    /// The connection ended in another way than the protocol has; the error says how.
    pub fn serve(&self, stream: impl Into<ClientStream>) -> io::Result<()> {
        let channel = Channel::new(stream.into().0);
        self.serve_channel(&channel, HANDED_OVER_LIMIT, || {})
    }

    fn serve_channel(
        &self,
        channel: &Arc<Channel>,
        handshake: Duration,
        agreed: impl FnOnce(),
    ) -> io::Result<()> {
        let served = client::serve(self, channel, handshake, agreed);
        channel.shut();
        served
    }
}

/// Serves `device` to the one client at the other end of `stream`, until the connection ends; then
/// flushes it. For several clients of one device, see [`Service`].
///
/// ```
/// # use std::sync::Arc;
/// use std::os::unix::net::UnixStream;
/// use extant_blockdev::MemoryDevice;
/// use extant_nbd::{ServeOptions, serve_stream};
///
/// let (client, server) = UnixStream::pair()?;
/// let device = Arc::new(MemoryDevice::new(1 << 20));
/// drop(client);
/// // A client that says nothing has not ended as the protocol has it.
/// assert!(serve_stream(server, device, ServeOptions::default()).is_err());
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As for [`Service::serve`], or the flush fails.
pub fn serve_stream(
    stream: impl Into<ClientStream>,
    device: Arc<dyn BlockDevice>,
    options: ServeOptions,
) -> io::Result<()> {
    let service = Service::new(device, options)?;
    let served = service.serve(stream);
    service.flush().and(served)
}
