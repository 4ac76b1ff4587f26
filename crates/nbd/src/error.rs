//! Why an export cannot be used.

use std::error::Error;
use std::io;

/// Why an export cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NbdError {
    /// There is no connection to the server.
    #[error("cannot reach the server at {server}: {source}")]
    Unreachable {
        /// The address that was tried.
        server: String,
        /// The host's error.
        source: io::Error,
    },
    /// The connection ended during the handshake, or cannot be served.
    #[error("the handshake with the server failed: {what}")]
    Handshake {
        /// How it ended.
        what: String,
        /// The host's error.
        #[source]
        cause: io::Error,
    },
    /// The server broke the protocol.
    #[error("the server breaks the protocol: {what}")]
    Protocol {
        /// The server's mistake.
        what: String,
        /// The error behind it, if there is one.
        #[source]
        cause: Option<io::Error>,
    },
    /// The server refused the export.
    #[error("the server refuses the export {export:?}: {why}")]
    Refused {
        /// The name that was asked for.
        export: String,
        /// The reason in words.
        why: String,
    },
    /// TLS was asked for and cannot be had.
    #[error("TLS: {what}")]
    Tls {
        /// The mistake, with the file that is to blame.
        what: String,
        /// The error behind it, if there is one.
        #[source]
        cause: Option<Box<dyn Error + Send + Sync>>,
    },
    /// The export cannot be written.
    #[error("the server exports it read-only")]
    ReadOnly,
    /// Nothing that is written could be made durable.
    #[error(
        "the server offers neither flush nor FUA, so nothing that is written could be made \
         durable; it can be opened for reading only"
    )]
    NoDurability,
}

impl From<NbdError> for io::Error {
    fn from(error: NbdError) -> io::Error {
        let kind = match &error {
            NbdError::Unreachable { source, .. } => source.kind(),
            NbdError::ReadOnly => io::ErrorKind::ReadOnlyFilesystem,
            NbdError::Protocol { .. } => io::ErrorKind::InvalidData,
            _ => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl NbdError {
    /// The server broke the protocol by `what`.
    pub(crate) fn protocol(what: impl Into<String>) -> Self {
        NbdError::Protocol {
            what: what.into(),
            cause: None,
        }
    }

    /// TLS cannot be had because of `error`.
    pub(crate) fn tls(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        let cause = error.into();
        NbdError::Tls {
            what: cause.to_string(),
            cause: Some(cause),
        }
    }
}
