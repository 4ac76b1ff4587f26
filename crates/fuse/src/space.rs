//! State that the gates of a mount share: the requests that wait, the drainer and the ticker.
//!
//! The server's `gate` and `takers` have the protocol.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::drainer::Drainer;
use crate::mount::MountPoint;
use crate::open_files::Allowance;

/// What one write is assumed to dirty at most.
pub(crate) const A_WRITE: u64 = 1 << 20;
/// What a file may take of the volume's last bytes before its writers are told.
const A_LITTLE: u64 = 64 << 10;
/// What all files together may: so many times as much.
const LITTLES: u64 = 8;

/// How long a drain waits at most until all WRITEs are answered: other writers may keep the queue
/// from being empty. So long a direct write waits for space.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes of requests that may wait to be served again.
const TAKERS_LEN: usize = 16 << 20;

/// A request that waits for drains.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) unique: u64,
    /// The queue of a ring that it came by, if it did.
    pub(crate) queue: Option<u16>,
    pub(crate) node: u64,
    pub(crate) wants: Wants,
}

/// Reason why a request waits.
#[derive(Debug)]
pub(crate) enum Wants {
    /// The GETATTR before a write through this handle: to be answered.
    ToPass { handle: u64 },
    /// An operation that takes space by name: to be served again.
    Space(Taker),
}

/// Demand of an operation that takes space by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// A few blocks at most.
    Little,
    Much,
    /// Much, and no write of the file goes on meanwhile: the kernel holds its lock.
    MuchAndFile,
}

/// An operation that found no space beside what the kernel may hold dirty.
#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) request: Box<[u8]>,
    demand: Demand,
    since: Instant,
    /// Bytes of all such requests.
    held: Arc<AtomicUsize>,
}

impl Drop for Taker {
    fn drop(&mut self) {
        self.held.fetch_sub(self.request.len(), Ordering::SeqCst);
    }
}

/// A request whose turn it is, unless it was interrupted since.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Turn {
    pub(crate) unique: u64,
    pub(crate) node: u64,
    /// It is an operation that takes space by name.
    pub(crate) takes: bool,
    /// It is one that may take much.
    pub(crate) takes_much: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Gate {
    /// In the order in which they came.
    pub(crate) waiting: VecDeque<Waiting>,
    pub(crate) stopped: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Ticker {
    pub(crate) wanted: bool,
    pub(crate) stopped: bool,
}

/// State of a mount's gates.
pub(crate) struct Space {
    pub(crate) point: MountPoint,
    /// Dirty pages that the kernel may hold, in bytes.
    pub(crate) dirty_limit: u64,
    /// The last bytes of the volume: a write-back that reaches into them may be reported.
    pub(crate) last: u64,
    /// How many of them are taken unreported.
    pub(crate) unreported: Allowance,
    pub(crate) drainer: OnceLock<Drainer>,
    /// Times that the kernel was made to write back what is dirty.
    pub(crate) drains: AtomicU64,
    /// See [`PATIENCE`].
    pub(crate) patience: Duration,
    pub(crate) gate: (Mutex<Gate>, Condvar),
    /// Bytes of the requests of operations that wait for space, or are served again.
    takers: Arc<AtomicUsize>,
    pub(crate) ticker: (Mutex<Ticker>, Condvar),
}

impl Space {
    /// For the mount at `point` of a volume of `total` bytes.
    pub(crate) fn new(point: MountPoint, dirty_limit: u64, total: u64) -> Space {
        let last = (A_WRITE + LITTLES * A_LITTLE).min(total / 32);
        let in_all = last / 3;
        Space {
            point,
            dirty_limit,
            last,
            unreported: Allowance {
                in_all,
                by_file: in_all / LITTLES,
            },
            drainer: OnceLock::new(),
            drains: AtomicU64::new(0),
            patience: PATIENCE,
            gate: (Mutex::default(), Condvar::new()),
            takers: Arc::default(),
            ticker: (Mutex::default(), Condvar::new()),
        }
    }

    /// Has the ticker look at the open files soon.
    pub(crate) fn wake(&self) {
        let mut ticker = self.ticker.0.lock();
        if !ticker.wanted {
            ticker.wanted = true;
            self.ticker.1.notify_all();
        }
    }

    /// The drainer; if there is none yet, the one that `start` makes.
    ///
    /// # Errors
    /// Those of `start`, which the next call tries again.
    pub(crate) fn drainer_or(
        &self,
        start: impl FnOnce() -> io::Result<Drainer>,
    ) -> io::Result<&Drainer> {
        if let Some(drainer) = self.drainer.get() {
            return Ok(drainer);
        }
        let started = start()?;
        Ok(self.drainer.get_or_init(|| started))
    }

    /// Has a request wait for drains. The caller looks afterwards if it was interrupted meanwhile.
    pub(crate) fn wait(&self, one: Waiting) {
        let (gate, changed) = &self.gate;
        gate.lock().waiting.push_back(one);
        changed.notify_all();
    }

    /// An operation that is to wait. `None` where too many do.
    pub(crate) fn taker(&self, request: &[u8], demand: Demand) -> Option<Taker> {
        let len = request.len();
        let before = self.takers.fetch_add(len, Ordering::SeqCst);
        let taker = Taker {
            request: request.into(),
            demand,
            since: Instant::now(),
            held: Arc::clone(&self.takers),
        };
        (before + len <= TAKERS_LEN).then_some(taker)
    }

    /// Returns whether operations wait for space, or are served again.
    pub(crate) fn has_takers(&self) -> bool {
        self.takers.load(Ordering::SeqCst) > 0
    }

    /// Takes those out whose request is one of `late`, and that have waited long: the caller
    /// answers them.
    pub(crate) fn take_late(&self, late: impl Fn(&[u8]) -> bool) -> Vec<Waiting> {
        let is_late = |one: &Waiting| match &one.wants {
            Wants::Space(taker) => taker.since.elapsed() > self.patience && late(&taker.request),
            Wants::ToPass { .. } => false,
        };
        let mut gate = self.gate.0.lock();
        let all = std::mem::take(&mut gate.waiting);
        let (left, waiting) = all.into_iter().partition(is_late);
        gate.waiting = waiting;
        drop(gate);
        left.into()
    }

    /// Takes request `unique` out of those that wait: the caller answers it. `None` if it does not
    /// wait (any more).
    pub(crate) fn leave(&self, unique: u64) -> Option<Waiting> {
        let mut gate = self.gate.0.lock();
        let at = gate.waiting.iter().position(|one| one.unique == unique)?;
        gate.waiting.remove(at)
    }

    /// Returns whether request `unique` waits.
    pub(crate) fn is_waiting(&self, unique: u64) -> bool {
        let gate = self.gate.0.lock();
        gate.waiting.iter().any(|one| one.unique == unique)
    }

    /// Files that no writer has: theirs wait, or another operation that holds the file's lock does.
    pub(crate) fn files_at_rest(&self) -> Vec<u64> {
        let is_at_rest = |one: &&Waiting| match &one.wants {
            Wants::ToPass { .. } => true,
            Wants::Space(taker) => taker.demand == Demand::MuchAndFile,
        };
        let gate = self.gate.0.lock();
        let waiting = gate.waiting.iter().filter(is_at_rest);
        waiting.map(|one| one.node).collect()
    }

    /// Those that wait, as soon as there are some; `None` after [`Space::stop`]. They go on
    /// waiting.
    pub(crate) fn next_round(&self) -> Option<Vec<Turn>> {
        let (gate, changed) = &self.gate;
        let mut gate = gate.lock();
        while gate.waiting.is_empty() && !gate.stopped {
            changed.wait(&mut gate);
        }
        let turn = |one: &Waiting| Turn {
            unique: one.unique,
            node: one.node,
            takes: matches!(one.wants, Wants::Space(_)),
            takes_much: matches!(&one.wants, Wants::Space(taker) if taker.demand != Demand::Little),
        };
        (!gate.stopped).then(|| gate.waiting.iter().map(turn).collect())
    }

    /// Ends the ticker, and the thread that answers writers.
    pub(crate) fn stop(&self) {
        self.gate.0.lock().stopped = true;
        self.gate.1.notify_all();
        self.ticker.0.lock().stopped = true;
        self.ticker.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::Connection;

    #[test]
    fn a_drainer_that_could_not_be_started_is_tried_again() {
        let null = std::fs::File::open("/dev/null").unwrap().into();
        let point = Connection::handed_over(null, "/nowhere".as_ref()).0.point;
        let space = Space::new(point, 1 << 30, 0);
        let refused = || Err(io::ErrorKind::WouldBlock.into());
        assert!(space.drainer_or(refused).is_err());
        let started = || Drainer::of(|| Ok(()), || Ok(()));
        assert!(space.drainer_or(started).is_ok());
        assert!(space.drainer_or(refused).is_ok(), "one is enough");
    }
}
