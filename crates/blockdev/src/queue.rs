//! The queue: many requests to one device in flight, from one thread, with owned buffers.
//!
//! # Responsibility
//! Code that has an `Arc<dyn BlockDevice>` opens a queue with [`crate::open_queue()`], submits
//! owned buffers with a tag, and reaps completions in the order in which they happen. The device
//! chooses what does the work ([`Queueing`]): the kernel's io_uring, a few threads that make the
//! synchronous calls, or the submitting thread where a request never waits. The last two call the
//! synchronous methods of the device, so a wrapper sees what goes through a queue.
//!
//! # Invariants
//! - Requests in flight complete, and reach the medium, in any order. A flush covers the writes
//!   whose completions were reaped before it was submitted.
//! - Overlapping writes in flight behave as overlapping concurrent writes do (see the crate's
//!   header).
//! - A request completes as a whole or with an error: the queue finishes or reports short reads and
//!   writes.
//! - Dropping a queue waits for everything in flight. A submitted request cannot be cancelled.

use std::fmt;
use std::io;

use extant_units::DevOff;

use crate::io_buf::IoBuf;

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOp {
    /// Fill the buffer.
    Read,
    /// Write the buffer.
    Write,
    /// Make earlier writes durable. Offset and buffer are ignored.
    Flush,
}

/// One request.
#[derive(Debug)]
pub struct IoRequest {
    /// The operation.
    pub op: IoOp,
    /// First byte on the device.
    pub offset: DevOff,
    /// The bytes to write, or to fill.
    pub buf: IoBuf,
    /// The caller's name for the request, which the completion repeats.
    pub tag: u64,
}

/// A request that has completed.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The request's buffer. A read that succeeded has filled it; after one that failed its content
    /// is undefined.
    pub buf: IoBuf,
    /// Success of the whole request, or its error. A failed write may have reached the medium in
    /// part.
    pub result: io::Result<()>,
}

/// Requests in flight to one device. One thread at a time uses a queue, not always the same.
pub trait IoQueue: Send {
    /// The most requests that may be in flight.
    fn depth(&self) -> usize;

    /// Requests that were submitted and whose completions were not reaped yet.
    fn in_flight(&self) -> usize;

    /// A buffer of `len` bytes that suits the device best, with undefined content. Any other
    /// [`IoBuf`] works as well.
    fn buffer(&mut self, len: usize) -> IoBuf {
        IoBuf::zeroed(len)
    }

    /// Takes a request. It may begin at once; it has begun after [`IoQueue::kick`] or
    /// [`IoQueue::reap`].
    ///
    /// # Errors
    /// The request, if [`IoQueue::depth`] are in flight: reap first. Any other error of the
    /// request, a range past the end included, is in its completion.
    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest>;

    /// Makes sure that every submitted request has begun.
    fn kick(&mut self) {}

    /// Waits for `min` completions, or for as many as are in flight, and adds all available ones to
    /// `done`. With `min` 0 it does not wait.
    fn reap(&mut self, min: usize, done: &mut Vec<Completion>);

    /// Waits for all requests in flight.
    fn drain(&mut self, done: &mut Vec<Completion>) {
        self.reap(self.in_flight(), done);
    }
}

/// The machinery of a device's queues.
pub enum Queueing {
    /// The submitting thread makes each request, as the device's synchronous calls never wait.
    Immediate,
    /// Threads make the device's synchronous calls.
    Threads,
    /// The device has a queue of its own.
    Own(Box<dyn IoQueue>),
}

impl fmt::Debug for Queueing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Queueing::Immediate => "Immediate",
            Queueing::Threads => "Threads",
            Queueing::Own(_) => "Own",
        })
    }
}

impl Queueing {
    /// The same for a wrapper of the device: requests must pass the wrapper's synchronous methods.
    pub fn through_wrapper(self) -> Queueing {
        match self {
            Queueing::Immediate => Queueing::Immediate,
            Queueing::Threads | Queueing::Own(_) => Queueing::Threads,
        }
    }
}
