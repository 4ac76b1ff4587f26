//! The latch: one flush of a device at a time, and the memory of the first one that failed.
//!
//! # Invariants
//! - At most one flush runs in the device. A flush that succeeds began after every failed one had
//!   ended, and none had failed.
//! - A caller that arrives while a flush runs is served by a flush that begins later: the running
//!   one may have missed its writes. Callers that wait share that flush.
//! - The latch never opens. What was lost cannot be known, so no later flush can repair it.
//!
//! # Locks
//! One mutex, a leaf, never held over I/O.
//!
//! # Errors
//! The caller whose flush failed gets the device's error. Later callers get
//! [`io::ErrorKind::Other`], with the first failure as its cause.

use extant_sync::OnceLock;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use extant_sync::{Condvar, Mutex, MutexGuard};

/// One flush at a time, and the first one that failed. See the module's header.
#[derive(Default)]
pub struct FlushLatch {
    state: Mutex<LatchState>,
    /// Signalled when a flush has ended.
    ended: Condvar,
    failure: OnceLock<Arc<io::Error>>,
    /// Every write is refused.
    severed: AtomicBool,
    /// Calls that were served by another caller's flush.
    shared: AtomicU64,
}

#[derive(Default)]
struct LatchState {
    running: bool,
    /// Callers that wait for the end of a flush.
    waiting: usize,
    /// Number of the flush that began last, counted from 1.
    begun: u64,
    /// Number of the last flush that succeeded.
    succeeded: u64,
}

impl FlushLatch {
    /// The error of the first flush that failed, if one has failed.
    #[inline]
    pub fn failure(&self) -> Option<&Arc<io::Error>> {
        self.failure.get()
    }

    /// Calls that were served by another caller's flush.
    pub(crate) fn shared(&self) -> u64 {
        self.shared.load(Ordering::Relaxed)
    }

    /// Callers that wait for the end of a flush.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting
    }

    /// Refuses every write from now on: the device must stay as it is, because another host uses it
    /// or a caller has asked for that.
    pub fn sever(&self) {
        self.severed.store(true, Ordering::Release);
    }

    /// # Errors
    /// The device was severed: every write is refused.
    #[inline]
    pub(crate) fn check_write(&self) -> io::Result<()> {
        if self.severed.load(Ordering::Acquire) {
            return Err(io::Error::other("the device is not written any more"));
        }
        Ok(())
    }

    /// # Errors
    /// A flush has failed.
    fn check(&self) -> io::Result<()> {
        match self.failure.get() {
            None => Ok(()),
            Some(first) => Err(io::Error::other(EarlierFailure(Arc::clone(first)))),
        }
    }

    /// Flushes with `make`, or waits for a flush of another caller that begins after this call.
    pub(crate) fn flush(&self, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        let covering = state.begun + 1;
        loop {
            self.check()?;
            if state.succeeded >= covering {
                self.shared.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            if !state.running {
                return self.run(state, make);
            }
            self.wait(&mut state);
        }
    }

    /// Runs `make`, which writes and flushes, while no other flush runs.
    pub(crate) fn run_alone(&self, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        while state.running {
            self.wait(&mut state);
        }
        self.check()?;
        self.run(state, make)
    }

    /// [`FlushLatch::run_alone`], whether or not a flush has failed. After success nothing is known
    /// to be durable.
    pub(crate) fn run_unlatched(&self, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        while state.running {
            self.wait(&mut state);
        }
        self.run(state, make)
    }

    fn wait(&self, state: &mut MutexGuard<'_, LatchState>) {
        state.waiting += 1;
        self.ended.wait(state);
        state.waiting -= 1;
    }

    fn run(
        &self,
        mut state: MutexGuard<'_, LatchState>,
        make: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        debug_assert!(!state.running, "one flush runs at a time");
        state.running = true;
        state.begun += 1;
        let mut run = Run {
            latch: self,
            number: state.begun,
            failure: Some(Arc::new(io::Error::other("the device panicked"))),
        };
        drop(state);
        match make() {
            Ok(()) => {
                run.failure = None;
                Ok(())
            }
            Err(error) => {
                let (remembered, returned) = both(error);
                run.failure = Some(remembered);
                Err(returned)
            }
        }
    }
}

/// One error for the latch and one for the caller, with the same kind, errno and text.
fn both(error: io::Error) -> (Arc<io::Error>, io::Error) {
    let (errno, kind) = (error.raw_os_error(), error.kind());
    let remembered = Arc::new(error);
    let returned = match errno {
        Some(errno) => io::Error::from_raw_os_error(errno),
        None => io::Error::new(kind, Arc::clone(&remembered)),
    };
    (remembered, returned)
}

/// The error of every flush after the first failed one.
#[derive(Debug)]
struct EarlierFailure(Arc<io::Error>);

impl fmt::Display for EarlierFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = &self.0;
        write!(
            f,
            "an earlier flush of the device failed ({why}): writes before it may be lost"
        )
    }
}

impl std::error::Error for EarlierFailure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.0)
    }
}

/// A flush that runs. Its end is recorded even if the device panics.
struct Run<'a> {
    latch: &'a FlushLatch,
    number: u64,
    failure: Option<Arc<io::Error>>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut state = self.latch.state.lock();
        debug_assert_eq!(state.begun, self.number, "no flush began meanwhile");
        match self.failure.take() {
            None => state.succeeded = self.number,
            Some(why) => {
                if self.latch.failure.set(Arc::clone(&why)).is_ok() {
                    tracing::error!(%why, "a flush of the device failed: writes may be lost");
                }
            }
        }
        state.running = false;
        self.latch.ended.notify_all();
    }
}
