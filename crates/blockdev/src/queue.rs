//! The submission border: many requests to one device in flight, from one thread.
//!
//! Beside the synchronous [`BlockDevice`] stands the queue: whoever has an `Arc<dyn BlockDevice>` opens one with
//! [`open_queue`], submits owned buffers with a tag, and reaps completions in the order in which they happen. What
//! does the work depends on the device ([`Queueing`]): the kernel's ring, a few threads that make the synchronous
//! calls, or nothing at all where a request never waits. Wrappers see what goes through a queue because the last two
//! call their synchronous methods.
//!
//! # Rules
//! - Requests in flight complete, and reach the medium, in any order. A flush covers the writes whose completions had
//!   been reaped when it was submitted.
//! - What was promised about overlapping concurrent writes ([`crate`]) holds for those in flight.
//! - A completion is whole or an error: short reads and writes are finished or reported here.
//! - Dropping a queue waits for everything in flight. Nothing can be taken back once it is submitted.

use std::io;
use std::sync::Arc;

use extant_units::DevOff;

use crate::device::BlockDevice;
use crate::inline_queue::InlineQueue;
use crate::io_buf::IoBuf;
use crate::thread_queue::ThreadQueue;

/// What a request asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IoOp {
    /// Fill the buffer.
    Read,
    /// Write the buffer.
    Write,
    /// Make durable what was written before. Offset and buffer mean nothing.
    Flush,
}

/// One request.
#[derive(Debug)]
pub struct IoRequest {
    /// What to do.
    pub op: IoOp,
    /// First byte on the device.
    pub offset: DevOff,
    /// The bytes, and how many.
    pub buf: IoBuf,
    /// The caller's name for it; comes back with the completion.
    pub tag: u64,
}

/// A request that is over.
#[derive(Debug)]
pub struct Completion {
    /// The request's tag.
    pub tag: u64,
    /// The request's buffer: after a read that worked, filled; after one that failed, anything.
    pub buf: IoBuf,
    /// All of it, or why not. What part of a failed write arrived is not known.
    pub result: io::Result<()>,
}

/// Requests in flight to one device. Used by one thread at a time, not always the same.
pub trait IoQueue: Send {
    /// The most requests that may be in flight.
    fn depth(&self) -> usize;

    /// Requests submitted whose completions were not reaped yet.
    fn in_flight(&self) -> usize;

    /// A buffer of `len` bytes that suits the device best, with any content. Any other [`IoBuf`] works as well.
    fn buffer(&mut self, len: usize) -> IoBuf {
        IoBuf::zeroed(len)
    }

    /// Takes a request. It may begin at once; it has begun after [`IoQueue::kick`] or [`IoQueue::reap`].
    ///
    /// # Errors
    /// The request, if [`IoQueue::depth`] are in flight: reap first. Everything else that can be wrong with it, a range
    /// past the end included, is told by its completion.
    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest>;

    /// Sees to it that everything submitted has begun.
    fn kick(&mut self) {}

    /// Waits until at least `min` completions are there, or as many as are in flight, and adds all that are there to
    /// `done`. With `min` 0 it does not wait.
    fn reap(&mut self, min: usize, done: &mut Vec<Completion>);

    /// Waits for everything in flight.
    fn drain(&mut self, done: &mut Vec<Completion>) {
        self.reap(self.in_flight(), done);
    }
}

/// What a device's queues are made of.
pub enum Queueing {
    /// Its synchronous requests never wait: they are made while they are submitted.
    Immediate,
    /// Threads make its synchronous calls.
    Threads,
    /// It has a queue of its own.
    Own(Box<dyn IoQueue>),
}

impl Queueing {
    /// What becomes of it behind a wrapper: requests must pass the wrapper's synchronous methods.
    pub fn through_wrapper(self) -> Queueing {
        match self {
            Queueing::Immediate => Queueing::Immediate,
            Queueing::Threads | Queueing::Own(_) => Queueing::Threads,
        }
    }
}

/// A queue for up to `depth` requests (at least one) to `device`.
pub fn open_queue(device: &Arc<dyn BlockDevice>, depth: usize) -> Box<dyn IoQueue> {
    let depth = depth.max(1);
    match device.queueing(depth) {
        Queueing::Immediate => Box::new(InlineQueue::new(Arc::clone(device), depth)),
        Queueing::Threads => Box::new(ThreadQueue::new(Arc::clone(device), depth)),
        Queueing::Own(queue) => queue,
    }
}

/// Makes a request by the synchronous calls.
pub(crate) fn make(device: &dyn BlockDevice, mut request: IoRequest) -> Completion {
    let result = match request.op {
        IoOp::Read => device.read_at(request.offset, &mut request.buf),
        IoOp::Write => device.write_at(request.offset, &request.buf),
        IoOp::Flush => device.flush(),
    };
    Completion {
        tag: request.tag,
        buf: request.buf,
        result,
    }
}

#[cfg(test)]
mod tests;
