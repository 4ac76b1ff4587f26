//! A wrapper that holds requests until a test lets them pass.
//!
//! A test closes the [`Gate`] for some requests, starts the threads under test, and waits until one
//! of them is held at the gate. That thread is then known to be in the middle of its operation, and
//! the test checks what other threads can do meanwhile. The request runs when the gate opens.
//!
//! # Locks
//! One mutex protects the gate. It is not held over I/O or while a request waits.
//!
//! # Errors
//! A request that is held for a minute fails with [`io::ErrorKind::TimedOut`]. A test that waits a
//! minute for a request panics. Where many suites run, both limits are longer ([`patience()`]).

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_blockdev::{BlockDevice, Queueing};
use extant_host::patience;
use extant_units::DevOff;
use parking_lot::{Condvar, Mutex};

use crate::faults::{Request, RequestKind};

/// The longest time that a request is held, and that a test waits for one.
const LIMIT: Duration = Duration::from_secs(60);

/// Decides whether a request is held.
type Rule = Arc<dyn Fn(&Request<'_>) -> bool + Send + Sync>;

/// Holds the requests that a rule picks. See the module's header.
#[derive(Default)]
pub struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    rule: Option<Rule>,
    /// The number of times that the gate has opened.
    opened: u64,
    /// Requests that wait.
    held: usize,
    /// Requests so far.
    requests: u64,
}

/// A closed gate. Dropping this opens the gate, also while a test panics.
#[must_use = "dropping this opens the gate"]
pub struct Closed<'a>(&'a Gate);

impl Gate {
    /// Holds every request that `rule` picks, from now on until the returned value is dropped.
    ///
    /// # Panics
    /// The gate is closed already.
    pub fn close(&self, rule: impl Fn(&Request<'_>) -> bool + Send + Sync + 'static) -> Closed<'_> {
        let before = self.state.lock().rule.replace(Arc::new(rule));
        assert!(before.is_none(), "the gate is closed already");
        Closed(self)
    }

    /// The number of requests that wait at the gate.
    pub fn held(&self) -> usize {
        self.state.lock().held
    }

    /// Lets a request pass, or holds it.
    fn pass(
        &self,
        kind: RequestKind,
        offset: DevOff,
        len: usize,
        data: impl FnOnce() -> Vec<u8>,
    ) -> io::Result<()> {
        let mut state = self.state.lock();
        let index = state.requests;
        state.requests += 1;
        let Some(rule) = state.rule.clone() else {
            return Ok(());
        };
        let opened = state.opened;
        drop(state);
        let data = data();
        let request = Request {
            index,
            kind,
            offset,
            len: len as u64,
            data: &data,
        };
        if !rule(&request) {
            return Ok(());
        }
        let until = Instant::now() + patience(LIMIT);
        let mut state = self.state.lock();
        state.held += 1;
        self.changed.notify_all();
        let mut timed_out = false;
        while state.opened == opened && !timed_out {
            timed_out = self.changed.wait_until(&mut state, until).timed_out();
        }
        debug_assert!(state.held > 0, "this request is counted");
        state.held -= 1;
        if timed_out {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(())
    }
}

impl Closed<'_> {
    /// Waits until `count` requests wait at the gate.
    ///
    /// # Panics
    /// Fewer requests came within a minute.
    pub fn wait_for(&self, count: usize) {
        let until = Instant::now() + patience(LIMIT);
        let mut state = self.0.state.lock();
        while state.held < count {
            let late = self.0.changed.wait_until(&mut state, until).timed_out();
            let held = state.held;
            assert!(!late, "{held} requests came to the gate, not {count}");
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.rule = None;
        state.opened += 1;
        self.0.changed.notify_all();
    }
}

/// A device whose requests pass a gate first.
pub struct GatedDevice<D> {
    inner: D,
    gate: Arc<Gate>,
}

impl<D: BlockDevice> GatedDevice<D> {
    /// Wraps `inner`, with the gate open.
    pub fn new(inner: D) -> Self {
        Self {
            inner,
            gate: Arc::default(),
        }
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The gate.
    pub fn gate(&self) -> &Gate {
        &self.gate
    }

    fn write(
        &self,
        offset: DevOff,
        bufs: &[IoSlice<'_>],
        write: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        let data = || bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.gate.pass(RequestKind::Write, offset, len, data)?;
        write()
    }
}

impl<D: BlockDevice> BlockDevice for GatedDevice<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.gate
            .pass(RequestKind::Read, offset, buf.len(), Vec::new)?;
        self.inner.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.gate.pass(RequestKind::Read, offset, len, Vec::new)?;
        self.inner.read_vectored_at(offset, bufs)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.write(offset, &[IoSlice::new(buf)], || {
            self.inner.write_at(offset, buf)
        })
    }

    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.write(offset, bufs, || self.inner.write_vectored_at(offset, bufs))
    }

    fn flush(&self) -> io::Result<()> {
        self.gate
            .pass(RequestKind::Flush, DevOff::ZERO, 0, Vec::new)?;
        self.inner.flush()
    }

    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.write(offset, &[IoSlice::new(buf)], || {
            self.inner.write_durable(offset, buf)
        })
    }

    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }

    fn queueing(&self, depth: usize) -> Queueing {
        match self.inner.queueing(depth).through_wrapper() {
            // An immediate queue would hold the submitting thread.
            Queueing::Immediate => Queueing::Threads,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use extant_blockdev::MemoryDevice;

    use super::*;

    #[test]
    fn picked_requests_wait_until_the_gate_opens() {
        let dev = GatedDevice::new(MemoryDevice::new(4096));
        let closed = dev
            .gate()
            .close(|request| request.kind == RequestKind::Write && request.data.contains(&7));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| dev.write_at(DevOff::ZERO, &[7; 512]).unwrap());
            closed.wait_for(1);
            dev.write_at(DevOff::new(512), &[8; 512]).unwrap();
            let mut both = [1; 1024];
            dev.read_at(DevOff::ZERO, &mut both).unwrap();
            assert_eq!((both[0], both[512], dev.gate().held()), (0, 8, 1));
            assert!(!writer.is_finished());
            drop(closed);
            writer.join().unwrap();
            dev.read_at(DevOff::ZERO, &mut both).unwrap();
            assert_eq!((both[0], dev.gate().held()), (7, 0));
        });
        dev.write_at(DevOff::ZERO, &[7; 512]).unwrap();
    }
}
