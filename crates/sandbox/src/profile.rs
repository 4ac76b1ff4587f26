//! What a process goes on to need after it has confined itself.

/// What a process goes on to need.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Profile {
    /// The server that it connects to again.
    pub server: Option<Server>,
    /// Whether it uses io_uring rings that it has made before.
    pub rings: bool,
}

/// Where a server listens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Server {
    /// At this TCP port.
    Tcp(u16),
    /// At a Unix socket.
    Unix,
}
