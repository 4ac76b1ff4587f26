//! The queue of a file where the kernel has io_uring: what is in flight, and what the ring cannot do.
//!
//! Requests that the file's descriptor can take as they are go to the [`Ring`]. All else is done by the system calls that
//! [`HostFile`] makes for the synchronous methods too: a request that cuts alignment units, the rest of a short transfer,
//! what the kernel cancelled because the submitting thread ended, and everything after the kernel refused to go on.
//!
//! A flush goes through the ring too; it covers the writes that were reaped before, as the queue's rules have it.

mod ring;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::io::Errno;

use crate::device::check_range;
use crate::host_file::HostFile;
use crate::io_buf::IoBuf;
use crate::queue::{Completion, IoOp, IoQueue, IoRequest};
use ring::{Finished, MOST, Ring, set_up};

/// Where the kernel says whether it has its rings switched off.
const SWITCH: &str = "/proc/sys/kernel/io_uring_disabled";

/// Tries whether the kernel has io_uring for this thread.
///
/// # Errors
/// Why not, for people.
pub fn io_uring() -> Result<(), String> {
    set_up(1)
        .map(drop)
        .map_err(|error| reason(&error, std::fs::read_to_string(SWITCH).ok().as_deref()))
}

/// What a refusal means. `switch` is what the kernel's switch says, if it can be read.
fn reason(error: &io::Error, switch: Option<&str>) -> String {
    match (Errno::from_io_error(error), switch.map(str::trim)) {
        (Some(Errno::NOSYS), _) => "this kernel has no io_uring".into(),
        (Some(Errno::PERM), Some("1")) => {
            "io_uring is for privileged users only (kernel.io_uring_disabled is 1)".into()
        }
        (Some(Errno::PERM), Some("2")) => {
            "io_uring is switched off (kernel.io_uring_disabled is 2)".into()
        }
        (Some(Errno::PERM | Errno::ACCESS), _) => {
            "io_uring is not permitted here (a seccomp filter or another security policy)".into()
        }
        (Some(Errno::NOMEM), _) => {
            "no memory for io_uring (locked memory may be limited: ulimit -l)".into()
        }
        _ if error.kind() == io::ErrorKind::Unsupported => {
            "this kernel's io_uring lacks what is needed (Linux 5.6 has it)".into()
        }
        _ => format!("io_uring: {error}"),
    }
}

/// A queue over a ring.
pub(crate) struct UringQueue {
    /// Before `host`: it is done with the file before the file is let go.
    ring: Ring,
    host: Arc<HostFile>,
    depth: usize,
    /// Finished and not reaped.
    done: Vec<Completion>,
    finished: Vec<Finished>,
}

impl UringQueue {
    /// A queue for up to `depth` requests, or as many as a ring can have. `file` is what `host` has for rings.
    ///
    /// # Errors
    /// What the kernel says: there may be too many open files by now, or too little memory.
    pub(crate) fn new(host: &Arc<HostFile>, file: &Arc<File>, depth: usize) -> io::Result<Self> {
        let depth = depth.clamp(1, MOST);
        Ok(Self {
            ring: Ring::new(file, depth)?,
            host: Arc::clone(host),
            depth,
            done: Vec::with_capacity(depth),
            finished: Vec::with_capacity(depth),
        })
    }

    /// Whether the ring can take the request.
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

    /// Enters the ring and settles what is finished.
    fn enter(&mut self, min: usize) {
        let enters = self.ring.wait(min, &mut self.finished);
        let counters = self.host.counters();
        if enters > 0 {
            counters.enters.fetch_add(enters, Ordering::Relaxed);
        }
        let registered = self.finished.iter().filter(|f| f.registered).count();
        counters
            .registered
            .fetch_add(registered as u64, Ordering::Relaxed);
        for finished in self.finished.drain(..) {
            self.done.push(settle(&self.host, finished));
        }
    }
}

impl IoQueue for UringQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.ring.in_flight() + self.done.len()
    }

    fn buffer(&mut self, len: usize) -> IoBuf {
        let buf = self.ring.buffer(len);
        buf.unwrap_or_else(|| IoBuf::zeroed(len))
    }

    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        let request = if self.suits(&request) {
            match self.ring.push(request) {
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
        let missing = min.saturating_sub(self.done.len());
        self.enter(missing);
        done.append(&mut self.done);
    }
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

/// Makes a whole request of what the kernel did of it.
fn settle(host: &HostFile, finished: Finished) -> Completion {
    let Finished {
        mut request, moved, ..
    } = finished;
    let moved = match moved {
        // The submitting thread ended, a signal came, or a ring gave up before the kernel saw the request.
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
    let rest = u64::try_from(moved)
        .ok()
        .and_then(|moved| request.offset.checked_add(moved));
    let result = match (rest, request.op) {
        (Some(at), IoOp::Write) => host.write(at, request.buf.get(moved..).unwrap_or_default()),
        (Some(at), _) => host.read(at, request.buf.get_mut(moved..).unwrap_or_default()),
        (None, _) => Err(io::ErrorKind::InvalidInput.into()),
    };
    Completion {
        tag: request.tag,
        buf: request.buf,
        result,
    }
}
