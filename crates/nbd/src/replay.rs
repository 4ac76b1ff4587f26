//! Writing the log again over a new session.
//!
//! # Invariants
//! Changes that overlap are never in flight together: the second one is sent after the reply of the
//! first. So the last one of them is the last one on the server.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_blockdev::IoBuf;

use crate::coverage::Coverage;
use crate::mailbox::{Letter, Mailbox, Outcome};
use crate::pending::Pending;
use crate::session::Session;
use crate::write_log::{Change, WriteLog};

/// Changes in flight at a time.
const DEPTH: usize = 32;

/// Why the log was not written again.
#[derive(Debug)]
pub(crate) enum ReplayError {
    /// The new session was lost as well.
    Lost,
    /// The server refuses what it had taken, or what it may have taken.
    Refused(io::Error),
}

struct Replay<'a> {
    session: &'a Session,
    timeout: Duration,
    mailbox: Arc<Mailbox>,
    ranges: HashMap<u64, Range<u64>>,
}

/// Sends every change of `log` over `session` and waits for the replies. Returns their number.
pub(crate) fn replay(
    log: &Arc<WriteLog>,
    session: &Session,
    timeout: Duration,
) -> Result<u64, ReplayError> {
    let mut replay = Replay {
        session,
        timeout,
        mailbox: Arc::default(),
        ranges: HashMap::new(),
    };
    let all = log.all();
    let count = all.len() as u64;
    for (number, change) in all {
        let start = change.request.offset;
        let range = start..start + u64::from(change.request.len);
        while replay.ranges.len() >= DEPTH || replay.overlaps(&range) {
            replay.wait()?;
        }
        replay.send(log, number, change, range);
    }
    while !replay.ranges.is_empty() {
        replay.wait()?;
    }
    Ok(count)
}

impl Replay<'_> {
    fn overlaps(&self, range: &Range<u64>) -> bool {
        let overlap = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        self.ranges.values().any(overlap)
    }

    fn send(&mut self, log: &Arc<WriteLog>, number: u64, change: Change, range: Range<u64>) {
        self.ranges.insert(number, range);
        let pending = Pending {
            request: change.request,
            buf: IoBuf::default(),
            coverage: Coverage::default(),
            error: None,
            errors: 0,
            mailbox: Arc::clone(&self.mailbox),
            number,
            logged: Some((Arc::clone(log), number)),
        };
        self.session.connection().send(pending, &change.data);
    }

    /// Waits for at least one reply.
    fn wait(&mut self) -> Result<(), ReplayError> {
        let letters = self.mailbox.take(Some(Instant::now() + self.timeout));
        if letters.is_empty() {
            // The changes in flight are in doubt: the session says so when it is ended.
            self.session.give_up();
            return Err(ReplayError::Lost);
        }
        for Letter {
            number, outcome, ..
        } in letters
        {
            self.ranges.remove(&number);
            match outcome {
                Outcome::Done => {}
                Outcome::Lost => return Err(ReplayError::Lost),
                Outcome::Failed(error) => return Err(ReplayError::Refused(error)),
            }
        }
        Ok(())
    }
}
