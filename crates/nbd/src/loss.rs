//! How a connection ended.

use std::fmt;
use std::io;

/// How a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// The server or the network ended it. What was sent and not answered is not carried out any
    /// more: DECISIONS has the reasons and the limits of this.
    Ended(String),
    /// A reply did not come in time. The server may carry the request out later.
    TimedOut,
    /// The server broke the protocol.
    Violation(String),
    /// This side closed it.
    Closed,
}

impl Loss {
    /// The loss for an error of a socket.
    pub(crate) fn of(error: &io::Error) -> Loss {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => Loss::TimedOut,
            io::ErrorKind::InvalidData => Loss::Violation(error.to_string()),
            io::ErrorKind::UnexpectedEof => Loss::Ended("the server closed the connection".into()),
            _ => Loss::Ended(error.to_string()),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Loss::Ended(why) => f.write_str(why),
            Loss::TimedOut => f.write_str("the server did not answer in time"),
            Loss::Violation(what) => write!(f, "the server breaks the protocol: {what}"),
            Loss::Closed => f.write_str("the connection was closed"),
        }
    }
}

/// The error for a server that breaks the protocol.
pub(crate) fn violation(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}
