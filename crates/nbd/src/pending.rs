//! A request that was sent and whose reply has not come.

use std::io;
use std::sync::Arc;

use extant_blockdev::IoBuf;

use crate::coverage::Coverage;
use crate::mailbox::{Letter, Mailbox, Outcome};
use crate::protocol::Request;
use crate::write_log::WriteLog;

/// A request that was sent and whose reply has not come.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) request: Request,
    /// The buffer of a read: as long as the request says.
    pub(crate) buf: IoBuf,
    /// The bytes of a read that have come.
    pub(crate) coverage: Coverage,
    /// The error that a chunk before the last one has brought.
    pub(crate) error: Option<io::Error>,
    /// The number of chunks that have said so.
    pub(crate) errors: u32,
    /// The mailbox that gets the outcome, and the request's number there.
    pub(crate) mailbox: Arc<Mailbox>,
    pub(crate) number: u64,
    /// The log that has the change, and the change's number there.
    pub(crate) logged: Option<(Arc<WriteLog>, u64)>,
}

impl Pending {
    /// The reply has come.
    pub(crate) fn finish(self, result: io::Result<()>) {
        if let Some((log, number)) = &self.logged {
            match &result {
                Ok(()) => log.acknowledge(*number),
                Err(_) => log.forget(*number),
            }
        }
        self.deliver(match result {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::Failed(error),
        });
    }

    /// The connection was lost.
    pub(crate) fn lose(self) {
        self.deliver(Outcome::Lost);
    }

    fn deliver(self, outcome: Outcome) {
        self.mailbox.put(Letter {
            number: self.number,
            buf: self.buf,
            outcome,
        });
    }
}
