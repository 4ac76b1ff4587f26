//! Errors of the block cache and of the journal.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use extant_disk::damage::JournalDamage;
use extant_disk::jbd2::superblock::JournalSuperblockError;
use extant_units::{Blocks, Pblk};

/// A metadata block that could not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BlockError {
    /// The device failed.
    #[error("reading block {block}: {source}")]
    Io {
        /// The block.
        block: Pblk,
        /// The device's error.
        source: Arc<io::Error>,
    },
    /// The block lies past the end of the device.
    #[error("block {block} lies past the end of the device of {device} blocks")]
    OutOfRange {
        /// The block.
        block: Pblk,
        /// The device's length in blocks.
        device: Blocks,
    },
}

/// Why a journal, or what stands on it, has stopped: in words, and the error behind them if there
/// was one ([`Error::source`]). Cheap to clone: every later caller gets it.
#[derive(Clone, Debug)]
pub struct StopReason {
    what: Arc<str>,
    cause: Option<Arc<JournalError>>,
}

impl StopReason {
    /// The reason in words.
    pub fn what(&self) -> &Arc<str> {
        &self.what
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl Error for StopReason {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let cause = self.cause.as_deref()?;
        Some(cause as &dyn Error)
    }
}

/// A reason without another error behind it.
impl From<Arc<str>> for StopReason {
    fn from(what: Arc<str>) -> Self {
        Self { what, cause: None }
    }
}

/// A reason without another error behind it.
impl From<&str> for StopReason {
    fn from(what: &str) -> Self {
        Arc::<str>::from(what).into()
    }
}

impl From<JournalError> for StopReason {
    fn from(error: JournalError) -> Self {
        match error {
            JournalError::Aborted(first) => first,
            error => Self {
                what: error.to_string().into(),
                cause: Some(Arc::new(error)),
            },
        }
    }
}

/// A failure of a journal or of its recovery.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The device failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation that failed.
        what: &'static str,
        /// The device's error.
        source: Arc<io::Error>,
    },
    /// A metadata block could not be read.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The journal stopped at an earlier fault.
    #[error("the journal has stopped: {0}")]
    Aborted(#[source] StopReason),
    /// A single handle asked for more than a transaction can hold.
    #[error("a handle of {asked} credits was asked for; this journal grants at most {max}")]
    TooManyCredits {
        /// Credits asked for.
        asked: u32,
        /// See `Journal::max_credits`.
        max: u32,
    },
    /// A transaction grew larger than the log: handles used far more than they declared.
    #[error("a transaction of {needed} log blocks does not fit the log of {log}")]
    TransactionTooLarge {
        /// Log blocks that the transaction takes.
        needed: u32,
        /// Log blocks that exist.
        log: u32,
    },
    /// The journal was closed.
    #[error("the journal is closed")]
    Closed,
    /// The log holds transactions that must be replayed first.
    #[error("the journal needs recovery")]
    NeedsRecovery,
    /// The log must be written and the device is read-only.
    #[error("the journal must be written, but the device is read-only")]
    ReadOnly,
    /// The log uses something that is not supported.
    #[error("unsupported journal feature: {0}")]
    Unsupported(Arc<str>),
    /// The log is damaged.
    #[error("corrupt journal: {0}")]
    Corrupt(#[from] JournalDamage),
    /// The journal's superblock is damaged.
    #[error("corrupt journal: {0}")]
    CorruptSuperblock(#[source] JournalSuperblockError),
    /// The journal's superblock names features that are not supported.
    #[error("unsupported journal feature: {0}")]
    UnsupportedSuperblock(#[source] JournalSuperblockError),
}

impl From<JournalSuperblockError> for JournalError {
    fn from(error: JournalSuperblockError) -> Self {
        match error {
            JournalSuperblockError::UnknownFeatures { .. } => Self::UnsupportedSuperblock(error),
            _ => Self::CorruptSuperblock(error),
        }
    }
}

impl JournalError {
    /// Adds to a device's error the operation that failed.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what,
            source: Arc::new(source),
        }
    }
}

/// Checks an invariant whose violation must stop the journal, because a wrong value would reach the
/// disk. The caller, or one of its callers, stops the journal with the error.
pub(crate) fn ensure(holds: bool, invariant: &str) -> Result<(), JournalError> {
    ensure_some(holds.then_some(()), invariant)
}

/// [`ensure`] for a value that must exist.
pub(crate) fn ensure_some<T>(value: Option<T>, invariant: &str) -> Result<T, JournalError> {
    let why = || format!("internal error: {invariant}");
    value.ok_or_else(|| JournalError::Aborted(why().as_str().into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violated_invariant_stops_the_journal() {
        assert!(ensure(true, "J27: ...").is_ok());
        let error = ensure(false, "J27: ...").unwrap_err();
        let text = "the journal has stopped: internal error: J27: ...";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_stop_keeps_the_first_error() {
        let failed = JournalError::io("writing the log")(io::Error::from_raw_os_error(121));
        let stopped = JournalError::Aborted(failed.into());
        let text = "the journal has stopped: writing the log: Remote I/O error (os error 121)";
        assert_eq!(stopped.to_string(), text);
        // A stop because of a stop has the first one's reason.
        let again = StopReason::from(stopped.clone());
        for error in [&stopped as &dyn Error, &JournalError::Aborted(again)] {
            let mut chain = std::iter::successors(error.source(), |&error| error.source());
            let device = chain.find_map(|error| error.downcast_ref::<Arc<io::Error>>());
            assert_eq!(device.and_then(|e| e.raw_os_error()), Some(121));
        }
    }

    #[test]
    fn a_device_error_keeps_its_errno() {
        let source = io::Error::from_raw_os_error(28);
        let error = JournalError::io("writing the log")(source);
        let cause = error
            .source()
            .and_then(|e| e.downcast_ref::<Arc<io::Error>>());
        assert_eq!(cause.and_then(|e| e.raw_os_error()), Some(28));
    }
}
