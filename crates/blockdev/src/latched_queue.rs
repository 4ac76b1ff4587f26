//! The queue of a [`crate::LatchedDevice`] whose inner device has a queue of its own.
//!
//! # Responsibility
//! Reads and writes go to the inner queue. A flush does not: the submitting thread makes it through
//! the latch. So one flush runs at a time and a failure is remembered, whichever descriptor of the
//! host the inner queue uses.
//!
//! # Errors
//! The completion of a flush reports a failure of this or of an earlier flush.

use std::sync::Arc;

use crate::device::BlockDevice;
use crate::flush_latch::FlushLatch;
use crate::io_buf::IoBuf;
use crate::queue::{Completion, IoOp, IoQueue, IoRequest};

/// A queue over another, whose flushes go through a latch.
pub(crate) struct LatchedQueue {
    inner: Box<dyn IoQueue>,
    device: Arc<dyn BlockDevice>,
    latch: Arc<FlushLatch>,
    /// Flushes and refused writes that have completed and were not reaped.
    completed: Vec<Completion>,
}

impl LatchedQueue {
    /// Wraps `inner`, the queue of `device`.
    pub(crate) fn new(
        inner: Box<dyn IoQueue>,
        device: Arc<dyn BlockDevice>,
        latch: Arc<FlushLatch>,
    ) -> Self {
        Self {
            inner,
            device,
            latch,
            completed: Vec::new(),
        }
    }
}

impl IoQueue for LatchedQueue {
    fn depth(&self) -> usize {
        self.inner.depth()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.completed.len()
    }

    fn buffer(&mut self, len: usize) -> IoBuf {
        self.inner.buffer(len)
    }

    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight() >= self.depth() {
            return Err(request);
        }
        let result = match request.op {
            IoOp::Flush => self.latch.flush(|| self.device.flush()),
            IoOp::Write => match self.latch.check_write() {
                Ok(()) => return self.inner.submit(request),
                refused => refused,
            },
            IoOp::Read => return self.inner.submit(request),
        };
        self.completed.push(Completion {
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
        // Zero if more have completed than the caller waits for.
        let missing = min.saturating_sub(self.completed.len());
        done.append(&mut self.completed);
        self.inner.reap(missing, done);
    }
}
