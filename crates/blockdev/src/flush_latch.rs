//! The memory of a failed flush, and a device that has one.
//!
//! # Responsibility
//! A host reports lost writes once. Linux gives one error to each open file description; the next
//! `fdatasync` of that description returns 0 although the pages are gone. All callers of a mount
//! share one description, so a caller whose writes were lost may ask after another one was told.
//! [`LatchedDevice`] remembers the first failure for as long as the device is open: every later
//! flush and durable write fails with an error that names it.
//!
//! # Invariants
//! - At most one flush runs in the inner device. A flush that succeeds began after every failed one
//!   had ended, and none had failed.
//! - A caller that arrives while a flush runs is served by a flush that begins later: the running
//!   one may have missed its writes. Callers that wait share that flush.
//! - The latch never opens. What was lost cannot be known, so no later flush can repair it.
//!
//! # Concurrency
//! Reads and writes pass without a lock. [`FlushLatch`] has one mutex that is never held over I/O.
//!
//! # Errors
//! The caller whose flush failed gets the device's error. Later callers get
//! [`io::ErrorKind::Other`].

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use extant_units::DevOff;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::device::{BlockDevice, check_range};
use crate::latched_queue::LatchedQueue;
use crate::queue::Queueing;

/// One flush at a time, and the first that failed.
#[derive(Default)]
pub struct FlushLatch {
    state: Mutex<State>,
    /// A flush has ended.
    ended: Condvar,
    failure: OnceLock<Arc<str>>,
    /// Nothing may be written any more.
    severed: AtomicBool,
    /// Calls that another caller's flush has served.
    shared: AtomicU64,
}

#[derive(Default)]
struct State {
    running: bool,
    /// Callers that wait for the end of a flush.
    waiting: usize,
    /// Number of the flush that began last, counted from 1.
    begun: u64,
    /// Number of the last flush that succeeded.
    succeeded: u64,
}

impl FlushLatch {
    /// What the first failed flush reported, if one has failed.
    #[inline]
    pub fn failure(&self) -> Option<Arc<str>> {
        self.failure.get().map(Arc::clone)
    }

    /// Refuses every write and flush from now on: the device is to stay as it is, because another
    /// host uses it or a caller has asked for that.
    pub fn sever(&self) {
        self.severed.store(true, Ordering::Release);
    }

    /// # Errors
    /// Nothing may be written any more.
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
            Some(why) => Err(io::Error::other(format!(
                "an earlier flush of the device failed ({why}): writes before it may be lost"
            ))),
        }
    }

    /// Makes a flush, or waits for one that begins after this call.
    fn flush(&self, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        let wanted = state.begun + 1;
        loop {
            self.check()?;
            if state.succeeded >= wanted {
                self.shared.fetch_add(1, Ordering::Relaxed);
                return Ok(());
            }
            if !state.running {
                return self.run(state, make);
            }
            self.wait(&mut state);
        }
    }

    /// Runs `make`, which flushes after writes of its own, while no other flush runs.
    fn alone(&self, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        while state.running {
            self.wait(&mut state);
        }
        self.check()?;
        self.run(state, make)
    }

    /// [`FlushLatch::alone`], whether or not a flush has failed. The result promises nothing.
    fn unbelieved(&self, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let mut state = self.state.lock();
        while state.running {
            self.wait(&mut state);
        }
        self.run(state, make)
    }

    fn wait(&self, state: &mut MutexGuard<'_, State>) {
        state.waiting += 1;
        self.ended.wait(state);
        state.waiting -= 1;
    }

    fn run(
        &self,
        mut state: MutexGuard<'_, State>,
        make: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        state.running = true;
        state.begun += 1;
        let mut run = Run {
            latch: self,
            number: state.begun,
            outcome: Err("the device panicked".into()),
        };
        drop(state);
        let result = make();
        run.outcome = match &result {
            Ok(()) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        result
    }
}

/// A flush that runs. Its end is noted even if the device panics.
struct Run<'a> {
    latch: &'a FlushLatch,
    number: u64,
    outcome: Result<(), String>,
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        let mut state = self.latch.state.lock();
        match &self.outcome {
            Ok(()) => state.succeeded = self.number,
            Err(why) => {
                if self.latch.failure.set(why.as_str().into()).is_ok() {
                    tracing::error!(why, "a flush of the device failed: writes may be lost");
                }
            }
        }
        state.running = false;
        self.latch.ended.notify_all();
    }
}

/// A device whose first failed flush is remembered. See the module's header.
pub struct LatchedDevice {
    inner: Arc<dyn BlockDevice>,
    latch: Arc<FlushLatch>,
}

impl LatchedDevice {
    /// `inner`, none of whose flushes has failed yet.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner,
            latch: Arc::default(),
        }
    }

    /// The memory, to ask whether a flush has failed.
    pub fn latch(&self) -> &Arc<FlushLatch> {
        &self.latch
    }

    /// Refuses a write that no state of the device could accept: that says nothing of earlier
    /// writes.
    fn check_write(&self, offset: DevOff, len: usize) -> io::Result<()> {
        if self.inner.is_read_only() {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.latch.check_write()?;
        check_range(offset, len, self.inner.len())
    }
}

impl BlockDevice for LatchedDevice {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    #[inline]
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn read_fresh_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_fresh_at(offset, buf)
    }

    #[inline]
    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.inner.read_vectored_at(offset, bufs)
    }

    #[inline]
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.latch.check_write()?;
        self.inner.write_at(offset, buf)
    }

    #[inline]
    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.latch.check_write()?;
        self.inner.write_vectored_at(offset, bufs)
    }

    fn flush(&self) -> io::Result<()> {
        self.latch.flush(|| self.inner.flush())
    }

    /// A failure counts as a failed flush: which of its parts failed is not known.
    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.check_write(offset, buf.len())?;
        self.latch.alone(|| self.inner.write_durable(offset, buf))
    }

    fn write_note(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.check_write(offset, buf.len())?;
        self.latch.unbelieved(|| self.inner.write_note(offset, buf))
    }

    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.latch.check_write()?;
        self.inner.discard(offset, len)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let mut all = self.inner.counters();
        let shared = self.latch.shared.load(Ordering::Relaxed);
        all.push(("device_flushes_shared", shared));
        all.push(("device_flush_failed", self.latch.failure().is_some().into()));
        all
    }

    fn queueing(&self, depth: usize) -> Queueing {
        match self.inner.queueing(depth) {
            Queueing::Own(queue) => {
                let flush = Self {
                    inner: Arc::clone(&self.inner),
                    latch: Arc::clone(&self.latch),
                };
                Queueing::Own(Box::new(LatchedQueue::new(queue, flush)))
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests;
