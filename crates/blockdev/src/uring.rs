//! The queue of a file where the kernel has io_uring: the requests in flight, and the ones that a
//! ring cannot do.
//!
//! # Responsibility
//! Requests that the file's descriptor takes as they are go to the [`Ring`]. The system calls of
//! [`HostFile`] make all others: a request that is not aligned, the rest of a short transfer, a
//! request that the kernel cancelled because the submitting thread ended, and everything after the
//! kernel refused to be entered.
//!
//! A flush goes through the ring too. It covers the writes that were reaped before it was
//! submitted, as the rules of queues say.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use extant_ring::{Ended, Ring, Transfer};
use extant_units::exact_u16;
use rustix::io::Errno;

use crate::device::{advance, check_range};
use crate::host_file::HostFile;
use crate::io_buf::{BufPool, IoBuf};
use crate::queue::{Completion, IoOp, IoQueue, IoRequest};
use crate::ring_refusal::RingRefusal;

/// The kernel's switch for io_uring.
const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";
/// The most requests that a ring has in flight.
const MAX_DEPTH: usize = 1024;
/// Bytes of memory that a ring registers, and the limits of one buffer of it.
const REGISTERED_LEN: usize = 4 << 20;
const BUFFER_LEN: std::ops::RangeInclusive<usize> = (4 << 10)..=(64 << 10);

/// Tries whether the kernel makes rings for this thread.
///
/// # Errors
/// The kernel refused.
pub fn io_uring() -> Result<(), RingRefusal> {
    Ring::<IoRequest>::new(1).map(drop).map_err(refused)
}

/// The refusal for an error of the kernel.
pub(crate) fn refused(error: io::Error) -> RingRefusal {
    RingRefusal::Kernel {
        source: Arc::new(error),
        switch: std::fs::read_to_string(SWITCH).ok(),
    }
}

/// A queue over a ring.
pub(crate) struct UringQueue {
    /// Before `host`: a dropped ring waits for the kernel before the file is closed.
    ring: Ring<IoRequest>,
    /// Registered buffers, from the first request for one on; empty if the kernel refused.
    pool: Option<Arc<BufPool>>,
    host: Arc<HostFile>,
    depth: usize,
    /// Completions that were not reaped.
    done: Vec<Completion>,
    ended: Vec<Ended<IoRequest>>,
}

impl UringQueue {
    /// A queue for up to `depth` requests, or as many as a ring can have. `file` is the one that
    /// `host` has for rings.
    ///
    /// # Errors
    /// The kernel refused: too many files may be open by now, or memory may be short.
    pub(crate) fn new(host: &Arc<HostFile>, file: &Arc<File>, depth: usize) -> io::Result<Self> {
        let depth = depth.clamp(1, MAX_DEPTH);
        let mut ring = Ring::new(depth)?;
        ring.set_file(Arc::clone(file) as _);
        Ok(Self {
            ring,
            pool: None,
            host: Arc::clone(host),
            depth,
            done: Vec::with_capacity(depth),
            ended: Vec::with_capacity(depth),
        })
    }

    /// Returns whether the ring can take the request.
    fn suits(&self, request: &IoRequest) -> bool {
        let in_range = !request.buf.is_empty()
            && check_range(request.offset, request.buf.len(), self.host.len()).is_ok();
        match request.op {
            IoOp::Read => in_range && self.host.takes(request.offset, &request.buf),
            IoOp::Write => {
                in_range && !self.host.read_only() && self.host.takes(request.offset, &request.buf)
            }
            IoOp::Flush => !self.host.read_only(),
        }
    }

    /// A registered buffer, if one of that size is left.
    fn registered(&mut self, len: usize) -> Option<IoBuf> {
        let (ring, depth) = (&mut self.ring, self.depth);
        let pool = self.pool.get_or_insert_with(|| register(ring, depth));
        pool.lend(len)
    }

    /// The number of a request's buffer, if it is a registered one.
    fn number(&self, request: &IoRequest) -> Option<u16> {
        request.buf.number_in(self.pool.as_ref()?)
    }

    /// Gives a request to the ring.
    fn give(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        let number = self.number(&request);
        self.ring.transfer(request, |request| {
            let (buf, at) = (&mut request.buf, request.offset.get());
            match request.op {
                IoOp::Read => Transfer::Read(buf, at, number),
                IoOp::Write => Transfer::Write(buf, at, number),
                IoOp::Flush => Transfer::Sync,
            }
        })
    }

    /// Enters the ring and completes the requests that it has finished.
    fn enter(&mut self, min: usize) {
        let enters = self.ring.wait(min, &mut self.ended);
        let counters = self.host.counters();
        if enters > 0 {
            counters.enters.fetch_add(enters, Ordering::Relaxed);
        }
        let numbers = self.ended.iter().filter_map(|(r, _)| self.number(r));
        let registered = numbers.count();
        counters
            .registered
            .fetch_add(registered as u64, Ordering::Relaxed);
        for ended in self.ended.drain(..) {
            self.done.push(complete(&self.host, ended));
        }
    }
}

impl IoQueue for UringQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.ring.lent() + self.done.len()
    }

    fn buffer(&mut self, len: usize) -> IoBuf {
        let buf = self.registered(len);
        buf.unwrap_or_else(|| IoBuf::zeroed(len))
    }

    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        let request = if self.suits(&request) {
            match self.give(request) {
                Ok(()) => {
                    self.host
                        .counters()
                        .requests
                        .fetch_add(1, Ordering::Relaxed);
                    return Ok(());
                }
                Err(request) => request,
            }
        } else {
            request
        };
        self.done.push(by_calls(&self.host, request));
        Ok(())
    }

    fn kick(&mut self) {
        self.enter(0);
    }

    fn reap(&mut self, min: usize, done: &mut Vec<Completion>) {
        // Zero if more have completed than the caller waits for.
        let missing = min.saturating_sub(self.done.len());
        self.enter(missing);
        done.append(&mut self.done);
    }
}

/// Registers buffers; none if the kernel refuses (locked memory is limited).
fn register(ring: &mut Ring<IoRequest>, depth: usize) -> Arc<BufPool> {
    let piece = (REGISTERED_LEN / depth).clamp(*BUFFER_LEN.start(), *BUFFER_LEN.end());
    let pool = BufPool::new(exact_u16(depth as u64), piece);
    let mut pieces = Vec::with_capacity(depth);
    pool.for_each_free(|_, bytes| pieces.push(&raw mut *bytes));
    // SAFETY: the pool's memory never moves, and it outlives the ring: the queue drops the ring
    // first. A request that names a buffer owns that buffer of the pool.
    #[allow(unsafe_code, reason = "the kernel keeps the pages of the pool")]
    let registered = unsafe { ring.register_buffers(&pieces) };
    if registered { pool } else { Arc::default() }
}

/// Makes a request by system calls.
fn by_calls(host: &HostFile, mut request: IoRequest) -> Completion {
    let result = match request.op {
        IoOp::Read => host.read(request.offset, &mut request.buf),
        IoOp::Write => host.write(request.offset, &request.buf),
        IoOp::Flush => host.flush(),
    };
    Completion {
        tag: request.tag,
        buf: request.buf,
        result,
    }
}

/// Completes a request that the kernel finished in whole, in part or not at all.
fn complete(host: &HostFile, (mut request, moved): Ended<IoRequest>) -> Completion {
    let moved = match moved {
        // The submitting thread ended, a signal came, or a ring gave up before the kernel took the
        // request.
        Err(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => 0,
        Err(error) => {
            return Completion {
                tag: request.tag,
                buf: request.buf,
                result: Err(error.into()),
            };
        }
        Ok(moved) if moved >= request.buf.len() || request.op == IoOp::Flush => {
            return Completion {
                tag: request.tag,
                buf: request.buf,
                result: Ok(()),
            };
        }
        Ok(moved) => moved,
    };
    host.counters()
        .finished_by_calls
        .fetch_add(1, Ordering::Relaxed);
    if moved == 0 {
        return by_calls(host, request);
    }
    // `moved` is less than the buffer's length: longer transfers returned above.
    let result = match (advance(request.offset, moved), request.op) {
        (Ok(at), IoOp::Write) => host.write(at, &request.buf[moved..]),
        (Ok(at), _) => host.read(at, &mut request.buf[moved..]),
        (Err(error), _) => Err(error),
    };
    Completion {
        tag: request.tag,
        buf: request.buf,
        result,
    }
}
