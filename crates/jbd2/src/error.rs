//! Errors of the block cache and of the journal.

use std::io;
use std::sync::Arc;

use extant_disk::jbd2::superblock::JournalSuperblockError;
use extant_units::{Blocks, Pblk};

/// A metadata block that could not be had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BlockError {
    /// The device failed.
    #[error("reading block {block}: {source}")]
    Io {
        /// The block.
        block: Pblk,
        /// What the device said.
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

/// What goes wrong with a journal.
#[derive(Clone, Debug, thiserror::Error)]
pub enum JournalError {
    /// The device failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the device said.
        source: Arc<io::Error>,
    },
    /// A metadata block could not be had.
    #[error(transparent)]
    Block(#[from] BlockError),
    /// The journal stopped at an earlier fault.
    #[error("the journal has stopped: {0}")]
    Aborted(Arc<str>),
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
        /// Log blocks it takes.
        needed: u32,
        /// Log blocks there are.
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
    Corrupt(Arc<str>),
}

impl JournalError {
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            what,
            source: Arc::new(source),
        }
    }

    pub(crate) fn corrupt(what: impl Into<Arc<str>>) -> Self {
        Self::Corrupt(what.into())
    }
}

impl From<JournalSuperblockError> for JournalError {
    fn from(error: JournalSuperblockError) -> Self {
        match error {
            JournalSuperblockError::UnknownFeatures { .. } => {
                Self::Unsupported(error.to_string().into())
            }
            _ => Self::Corrupt(error.to_string().into()),
        }
    }
}
