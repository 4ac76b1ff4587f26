//! A device that remembers its first failed flush.
//!
//! # Responsibility
//! A host reports lost writes once. Linux gives one error to each open file description; the next
//! `fdatasync` of that description returns 0 although the pages are gone. All callers of a mount
//! share one description, so a caller whose writes were lost may call after another one got the
//! error. [`LatchedDevice`] remembers the first failure for as long as the device is open: every
//! later flush and durable write fails with an error that names it.
//!
//! The mount that made it can also let go of the inner device ([`BlockDevice::release`]) while
//! others still hold the wrapper: from then on requests fail.
//!
//! # Concurrency
//! Reads and writes wait for nothing but a release. Flushes and durable writes run one at a time,
//! see [`FlushLatch`].

use extant_sync::OnceLock;
use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_units::DevOff;

use crate::device::{BlockDevice, check_range};
use crate::flush_latch::FlushLatch;
use crate::latched_queue::LatchedQueue;
use crate::lent_device::LentDevice;
use crate::queue::Queueing;

/// A device that remembers its first failed flush. See the module's header.
pub struct LatchedDevice {
    inner: LentDevice,
    /// The inner device's, also after it was given back.
    len: AtomicU64,
    latch: Arc<FlushLatch>,
    /// The inner device's counters when it was released.
    last_counters: OnceLock<Vec<(&'static str, u64)>>,
}

impl LatchedDevice {
    /// Wraps `inner`, with no failure remembered.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Self {
        Self {
            inner: LentDevice::new(&inner),
            len: AtomicU64::new(inner.len()),
            latch: Arc::default(),
            last_counters: OnceLock::new(),
        }
    }

    /// The latch, which knows whether a flush has failed.
    pub fn latch(&self) -> &Arc<FlushLatch> {
        &self.latch
    }

    /// Refuses a write that the device refuses in any state. Its failure does not concern earlier
    /// writes.
    fn check_write(&self, offset: DevOff, len: usize) -> io::Result<()> {
        if self.is_read_only() {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        self.latch.check_write()?;
        check_range(offset, len, self.len())
    }
}

impl BlockDevice for LatchedDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        // A device that was given back takes no writes.
        self.inner.get(|inner| inner.is_read_only()).unwrap_or(true)
    }

    #[inline]
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.request(|inner| inner.read_at(offset, buf))
    }

    fn read_fresh_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.request(|inner| inner.read_fresh_at(offset, buf))
    }

    #[inline]
    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.inner
            .request(|inner| inner.read_vectored_at(offset, bufs))
    }

    #[inline]
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.latch.check_write()?;
        self.inner.request(|inner| inner.write_at(offset, buf))
    }

    #[inline]
    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        self.latch.check_write()?;
        self.inner
            .request(|inner| inner.write_vectored_at(offset, bufs))
    }

    fn flush(&self) -> io::Result<()> {
        self.inner
            .request(|inner| self.latch.flush(|| inner.flush()))
    }

    /// A failure counts as a failed flush: which of its parts failed is not known.
    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.check_write(offset, buf.len())?;
        self.inner
            .request(|inner| self.latch.run_alone(|| inner.write_durable(offset, buf)))
    }

    fn write_note(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.check_write(offset, buf.len())?;
        self.inner
            .request(|inner| self.latch.run_unlatched(|| inner.write_note(offset, buf)))
    }

    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.latch.check_write()?;
        self.inner.request(|inner| inner.discard(offset, len))
    }

    fn write_zeroes(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.latch.check_write()?;
        self.inner.request(|inner| inner.write_zeroes(offset, len))
    }

    fn grow(&self, len: u64) -> io::Result<()> {
        self.latch.check_write()?;
        let len = self.inner.request(|inner| {
            inner.grow(len)?;
            Ok(inner.len())
        })?;
        self.len.fetch_max(len, Ordering::AcqRel);
        Ok(())
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        // Of a device that was given back: the counters that it had last.
        let counters = self.inner.get(|inner| inner.counters());
        let last = || self.last_counters.get().cloned().unwrap_or_default();
        let mut all = counters.unwrap_or_else(last);
        all.push(("device_flushes_shared", self.latch.shared()));
        all.push(("device_flush_failed", self.latch.failure().is_some().into()));
        all
    }

    fn queueing(&self, depth: usize) -> Queueing {
        let queueing = self.inner.get(|inner| match inner.queueing(depth) {
            Queueing::Own(queue) => {
                let (inner, latch) = (Arc::clone(inner), Arc::clone(&self.latch));
                Queueing::Own(Box::new(LatchedQueue::new(queue, inner, latch)))
            }
            other => other,
        });
        // To a device that was given back each request fails at once.
        queueing.unwrap_or(Queueing::Immediate)
    }

    fn release(&self) {
        if let Some(counters) = self.inner.get(|inner| inner.counters()) {
            let _ = self.last_counters.set(counters);
        }
        self.inner.give_back();
    }
}

#[cfg(test)]
mod tests;
