//! The queue of a device: many requests in flight, from one thread.
//!
//! A request that the server takes as it is goes into the flight. The submitting thread makes the
//! others: those that are too long or not aligned, and flushes of a server that has none.

use std::collections::HashMap;
use std::sync::Arc;

use extant_blockdev::{Completion, IoBuf, IoOp, IoQueue, IoRequest};
use extant_units::exact_u32;

use crate::flight::Flight;
use crate::protocol::{Command, Request, flag};
use crate::remote::Remote;

/// The queue of a device.
pub(crate) struct NbdQueue {
    remote: Arc<Remote>,
    flight: Flight,
    depth: usize,
    /// The caller's tags and buffers, by the numbers of the flight. A read's buffer is in flight.
    tags: HashMap<u64, Tag>,
    done: Vec<Completion>,
}

struct Tag {
    tag: u64,
    /// The mark of the writes that a flush covers once it has succeeded.
    mark: Option<u64>,
}

impl NbdQueue {
    /// A queue for up to `depth` requests.
    pub(crate) fn new(remote: &Arc<Remote>, depth: usize) -> NbdQueue {
        NbdQueue {
            remote: Arc::clone(remote),
            flight: Flight::new(&remote.link),
            depth,
            tags: HashMap::new(),
            done: Vec::new(),
        }
    }

    /// Returns whether the server takes the request as it is.
    fn suits(&self, request: &IoRequest) -> bool {
        let (offset, len) = (request.offset.get(), request.buf.len() as u64);
        let export = &self.remote.link.export;
        let whole = len > 0
            && len <= export.longest.into()
            && self.remote.is_aligned(offset, len)
            && self.remote.check_range(offset, len).is_ok();
        match request.op {
            IoOp::Read => whole,
            IoOp::Write => whole && !self.remote.read_only,
            IoOp::Flush => export.has(flag::FLUSH) && !self.remote.read_only,
        }
    }

    /// Makes a request while its caller waits.
    fn perform(&self, mut request: IoRequest) -> Completion {
        let offset = request.offset.get();
        let result = match request.op {
            IoOp::Read => self.remote.read(offset, &mut request.buf),
            IoOp::Write => self.remote.write(offset, &request.buf, false),
            IoOp::Flush => self.remote.flush(),
        };
        Completion {
            tag: request.tag,
            buf: request.buf,
            result,
        }
    }

    fn start(&mut self, request: IoRequest) {
        let IoRequest {
            op,
            offset,
            buf,
            tag,
        } = request;
        let offset = offset.get();
        // It is at most as long as the server takes.
        let len = exact_u32(buf.len() as u64);
        let mut mark = None;
        let number = match op {
            IoOp::Read => {
                let read = Request::new(Command::Read, offset, len);
                self.flight.start(read, buf)
            }
            IoOp::Write => {
                let write = self.remote.change(Command::Write, offset, len, false);
                self.flight.change(write, Arc::from(&*buf), buf)
            }
            IoOp::Flush => {
                mark = Some(self.remote.link.log.mark());
                self.flight.start(Request::new(Command::Flush, 0, 0), buf)
            }
        };
        self.tags.insert(number, Tag { tag, mark });
    }

    fn finish(&mut self, number: u64, buf: IoBuf, result: std::io::Result<()>) {
        let Some(Tag { tag, mark }) = self.tags.remove(&number) else {
            debug_assert!(false, "each request ends once");
            return;
        };
        if let (Some(mark), Ok(())) = (mark, &result) {
            self.remote.link.log.flushed(mark);
        }
        self.done.push(Completion { tag, buf, result });
    }
}

impl IoQueue for NbdQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.flight.in_flight() + self.done.len()
    }

    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        if !self.suits(&request) {
            let done = self.perform(request);
            self.done.push(done);
            return Ok(());
        }
        if request.op == IoOp::Write
            && let Err(error) = self.remote.bound_log()
        {
            self.done.push(Completion {
                tag: request.tag,
                buf: request.buf,
                result: Err(error),
            });
            return Ok(());
        }
        self.start(request);
        Ok(())
    }

    fn reap(&mut self, min: usize, done: &mut Vec<Completion>) {
        // Zero if more have completed than the caller waits for.
        let missing = min.saturating_sub(self.done.len());
        for ended in self.flight.reap(missing) {
            self.finish(ended.number, ended.buf, ended.result);
        }
        done.append(&mut self.done);
    }
}
