//! Requests of a mount that are parked: they are answered after a drain.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::full_volume::admission::Writer;

/// Bytes of requests that may wait to be served again.
const TAKERS_LEN: usize = 16 << 20;

/// A request that waits for drains.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) unique: u64,
    /// The queue of a ring that it came by, if it did.
    pub(crate) queue: Option<u16>,
    pub(crate) wants: Wants,
}

/// Reason why a request waits.
#[derive(Debug)]
pub(crate) enum Wants {
    /// The question of a write: to be answered.
    ToPass(Writer),
    /// An operation that takes space by name: to be served again.
    Space(Taker),
}

/// An operation that found no space beside what the kernel may hold dirty.
#[derive(Debug)]
pub(crate) struct Taker {
    pub(crate) request: Box<[u8]>,
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
    /// The source of the write, if it is the question of one.
    pub(crate) writer: Option<Writer>,
}

#[derive(Debug, Default)]
struct Lot {
    /// In the order in which they came.
    waiting: VecDeque<Waiting>,
    /// There is something else to do.
    woken: bool,
    stopped: bool,
}

/// Requests that wait, and the thread that answers them.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    lot: Mutex<Lot>,
    changed: Condvar,
    /// Bytes of the requests of operations that wait for space, or are served again.
    takers: Arc<AtomicUsize>,
}

impl Parking {
    /// Has a request wait for drains. The caller looks afterwards if it was interrupted meanwhile.
    pub(crate) fn park(&self, one: Waiting) {
        self.lot.lock().waiting.push_back(one);
        self.changed.notify_all();
    }

    /// An operation that is to wait. `None` where too many do.
    pub(crate) fn taker(&self, request: &[u8]) -> Option<Taker> {
        let len = request.len();
        let before = self.takers.fetch_add(len, Ordering::SeqCst);
        let taker = Taker {
            request: request.into(),
            since: Instant::now(),
            held: Arc::clone(&self.takers),
        };
        (before + len <= TAKERS_LEN).then_some(taker)
    }

    /// Returns whether operations wait for space, or are served again.
    pub(crate) fn has_takers(&self) -> bool {
        self.takers.load(Ordering::SeqCst) > 0
    }

    /// Takes those out whose request is one of `late`, and that have waited for `patience`: the
    /// caller answers them.
    pub(crate) fn take_late(
        &self,
        patience: Duration,
        late: impl Fn(&[u8]) -> bool,
    ) -> Vec<Waiting> {
        let is_late = |one: &Waiting| match &one.wants {
            Wants::Space(taker) => taker.since.elapsed() > patience && late(&taker.request),
            Wants::ToPass(_) => false,
        };
        let mut lot = self.lot.lock();
        let all = std::mem::take(&mut lot.waiting);
        let (left, waiting) = all.into_iter().partition(is_late);
        lot.waiting = waiting;
        drop(lot);
        left.into()
    }

    /// Takes request `unique` out of those that wait: the caller answers it. `None` if it does not
    /// wait (any more).
    pub(crate) fn leave(&self, unique: u64) -> Option<Waiting> {
        let mut lot = self.lot.lock();
        let at = lot.waiting.iter().position(|one| one.unique == unique)?;
        lot.waiting.remove(at)
    }

    /// Returns whether request `unique` waits.
    pub(crate) fn is_parked(&self, unique: u64) -> bool {
        let lot = self.lot.lock();
        lot.waiting.iter().any(|one| one.unique == unique)
    }

    /// Has the thread look for something to do.
    pub(crate) fn wake(&self) {
        self.lot.lock().woken = true;
        self.changed.notify_all();
    }

    /// Those that wait, as soon as there are some, the thread is woken, or `patience` is over if
    /// there is one; `None` after [`Parking::stop`]. They go on waiting.
    pub(crate) fn next_round(&self, patience: Option<Duration>) -> Option<Vec<Turn>> {
        let end = patience.map(|patience| Instant::now() + patience);
        let mut lot = self.lot.lock();
        while lot.waiting.is_empty() && !lot.woken && !lot.stopped {
            match end {
                Some(end) if self.changed.wait_until(&mut lot, end).timed_out() => break,
                Some(_) => {}
                None => self.changed.wait(&mut lot),
            }
        }
        lot.woken = false;
        let turn = |one: &Waiting| Turn {
            unique: one.unique,
            writer: match one.wants {
                Wants::ToPass(writer) => Some(writer),
                Wants::Space(_) => None,
            },
        };
        (!lot.stopped).then(|| lot.waiting.iter().map(turn).collect())
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.lot.lock().stopped
    }

    /// Ends the thread that answers.
    pub(crate) fn stop(&self) {
        self.lot.lock().stopped = true;
        self.changed.notify_all();
    }
}
