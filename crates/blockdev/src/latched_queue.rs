//! The queue of a device that remembers its failed flush, where the inner device has a queue of its
//! own.
//!
//! # Responsibility
//! Reads and writes go to the inner queue. A flush does not: it is made by
//! [`LatchedDevice`] while it is submitted, so that one flush runs at a time and a failure is
//! remembered, whichever descriptor of the host the inner queue uses.
//!
//! # Errors
//! As [`IoQueue`]: a flush that failed, now or earlier, is told by its completion.

use crate::device::BlockDevice;
use crate::flush_latch::LatchedDevice;
use crate::io_buf::IoBuf;
use crate::queue::{Completion, IoOp, IoQueue, IoRequest};

/// See the module's header.
pub(crate) struct LatchedQueue {
    inner: Box<dyn IoQueue>,
    device: LatchedDevice,
    /// Flushes, and refused writes, that are over and not reaped.
    flushed: Vec<Completion>,
}

impl LatchedQueue {
    pub(crate) fn new(inner: Box<dyn IoQueue>, device: LatchedDevice) -> Self {
        Self {
            inner,
            device,
            flushed: Vec::new(),
        }
    }
}

impl IoQueue for LatchedQueue {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.flushed.len()
    }

    fn buffer(&mut self, len: usize) -> IoBuf {
        self.inner.buffer(len)
    }

    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight() >= self.depth() {
            return Err(request);
        }
        let result = match request.op {
            IoOp::Flush => self.device.flush(),
            IoOp::Write => match self.device.latch().check_write() {
                Ok(()) => return self.inner.submit(request),
                refused => refused,
            },
            IoOp::Read => return self.inner.submit(request),
        };
        self.flushed.push(Completion {
            tag: request.tag,
            buf: request.buf,
            result,
        });
        Ok(())
    }

    fn kick(&mut self) {
        self.inner.kick();
    }

    fn reap(&mut self, min: usize, done: &mut Vec<Completion>) {
        let missing = min.saturating_sub(self.flushed.len());
        done.append(&mut self.flushed);
        self.inner.reap(missing, done);
    }
}
