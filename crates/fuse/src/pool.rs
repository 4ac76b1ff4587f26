//! The worker threads: they take requests from the device and have them served.
//!
//! A round trip through FUSE costs mostly two thread wake-ups. Therefore one idle worker, the
//! watcher, does not sleep at once: it polls the kernel for a short while ([`SPIN`]). Only the
//! watcher waits at the device. All other idle workers are parked, because a request wakes every
//! thread that sleeps at the device.
//!
//! A worker that receives a request stops watching and serves it. Before a request that may take
//! long (much data, or durability) it wakes another worker to watch. A short request does not pay
//! for that wake-up. If a short one takes long after all (it had to read the disk), the supervisor
//! finds within a [`TICK`] that there is no watcher and no progress, and wakes a worker. A queue
//! that does not run empty wakes more workers, one for each [`BACKLOG`] requests.
//!
//! # Invariants
//! There is at most one watcher. After the kernel is gone no worker stays parked or at the device.
//!
//! # Locks
//! `parked` is a leaf.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::abi::op;
use crate::device::{Device, MaybeWrite, Received};
use crate::in_flight::InFlight;
use crate::reply::{ReplyBuf, ReplyMemory, zeroed};
use crate::request::Request;
use crate::serve::{Completion, Serve, serve_one};

/// How long the watcher asks before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How long a watcher that does not poll lets requests gather before it reads them: beside rings
/// nearly all are of what the kernel has forgotten, and one read takes many of those.
const GATHER: Duration = Duration::from_millis(1);
/// How often the supervisor looks.
const TICK: Duration = Duration::from_micros(300);
/// After so many ticks without a request the supervisor sleeps too.
const TICKS_TO_REST: u32 = 30;
/// So many requests without finding the queue empty wake another worker.
const BACKLOG: u32 = 4;

/// Policy of the watching worker when it finds no request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum IdlePolicy {
    /// It polls for a while before it sleeps.
    Poll,
    /// It sleeps.
    Sleep,
    /// It sleeps, and lets requests gather when it was woken.
    Gather,
}

/// See the module's header.
pub(crate) struct Pool<'a, S> {
    device: &'a Device,
    server: &'a S,
    in_flight: &'a InFlight,
    workers: usize,
    spin: Duration,
    gather: bool,
    watched: AtomicBool,
    stopped: AtomicBool,
    served: AtomicU64,
    supervisor_parked: AtomicBool,
    parked: Mutex<Vec<Thread>>,
}

/// A request taken from the device: its length, and the guard that counts it.
type Taken<'a> = (usize, MaybeWrite<'a>);

/// The memory of a worker for requests and replies.
struct Buffers {
    request: Box<[u8]>,
    reply: ReplyMemory,
}

impl Buffers {
    /// Fails, instead of ending the process, where there is no memory.
    fn new(request_len: usize, reply_len: usize) -> io::Result<Self> {
        Ok(Self {
            request: zeroed(request_len)?,
            reply: ReplyMemory::try_new(reply_len)?,
        })
    }
}

impl<'a, S: Serve> Pool<'a, S> {
    /// A pool of `workers` threads, which have the first slots of `in_flight`.
    pub(crate) fn new(
        device: &'a Device,
        server: &'a S,
        in_flight: &'a InFlight,
        (workers, policy): (usize, IdlePolicy),
    ) -> Self {
        Self {
            device,
            server,
            in_flight,
            workers: workers.min(in_flight.workers()),
            spin: if policy == IdlePolicy::Poll {
                SPIN
            } else {
                Duration::ZERO
            },
            gather: policy == IdlePolicy::Gather,
            watched: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            served: AtomicU64::new(0),
            supervisor_parked: AtomicBool::new(false),
            parked: Mutex::default(),
        }
    }

    /// Serves with the pool's threads until the file system is unmounted. Once there are threads
    /// that serve, `ready` is called; should it fail, the mount ends. Requests are at most
    /// `request_len` bytes long, replies have at most `reply_len` bytes behind their header.
    pub(crate) fn run(
        &self,
        (request_len, reply_len): (usize, usize),
        ready: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        thread::scope(|scope| {
            let supervisor = thread::Builder::new()
                .name("fuse-supervisor".into())
                .spawn_scoped(scope, || self.supervise())?;
            let mut result = Ok(());
            let mut handles = Vec::with_capacity(self.workers);
            for i in 0..self.workers {
                let rested = supervisor.thread().clone();
                // Had before the mount answers: a worker that finds no memory for them would end
                // the process.
                let buffers = Buffers::new(request_len, reply_len);
                let worker = buffers.and_then(|buffers| {
                    let worker = thread::Builder::new().name(format!("fuse-{i}"));
                    worker.spawn_scoped(scope, move || self.work(i, &rested, buffers))
                });
                match worker {
                    Ok(handle) => handles.push(handle),
                    // Fewer workers will do; none will not.
                    Err(error) if handles.is_empty() => {
                        result = Err(error);
                        break;
                    }
                    Err(_) => break,
                }
            }
            if result.is_ok() {
                result = ready();
            }
            if result.is_err() {
                self.device.close()?;
            }
            for handle in handles {
                let ended = handle
                    .join()
                    .unwrap_or_else(|_| Err(io::Error::other("worker died")));
                result = result.and(ended);
                self.stop();
            }
            self.stop();
            supervisor.thread().unpark();
            result
        })
    }

    fn work(&self, number: usize, supervisor: &Thread, buffers: Buffers) -> io::Result<()> {
        let Buffers {
            mut request,
            mut reply,
        } = buffers;
        let mut streak = 0;
        let result = loop {
            let (len, maybe_write) = match self.next(&mut request, &mut streak) {
                Ok(Some(received)) => received,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            if self.supervisor_parked.load(Ordering::Relaxed)
                && self.supervisor_parked.swap(false, Ordering::AcqRel)
            {
                supervisor.unpark();
            }
            // The kernel gives no more than the buffer holds; an empty request is no request.
            let request = request.get(..len).unwrap_or(&[]);
            streak += 1;
            if streak % BACKLOG == 0 || self.server.may_block(request) {
                self.wake_parked_worker();
            }
            let mut reply = reply.start();
            reply.let_zeros_follow();
            let is_write = Request::new(request).is_some_and(|r| r.header.opcode == op::WRITE);
            let maybe_write = is_write.then_some(maybe_write);
            let slot = (self.in_flight, number);
            let served = serve_one(self.server, slot, request, &mut reply)
                .and_then(|done| self.answer(done, &reply));
            drop(maybe_write);
            self.served.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = served {
                break Err(error);
            }
        };
        self.stop();
        result
    }

    /// Sends the reply, if there is one now.
    fn answer(&self, done: Completion, reply: &ReplyBuf<'_>) -> io::Result<()> {
        let send = || self.device.send_with_zeros(reply.bytes(), reply.zeros());
        if !matches!(done, Completion::Silent | Completion::Deferred) && !send()? {
            self.server.undo_undelivered(done);
        }
        Ok(())
    }

    /// The next request's length, and that it may be a WRITE; `None` when there will be none.
    fn next(&self, request: &mut [u8], streak: &mut u32) -> io::Result<Option<Taken<'_>>> {
        loop {
            if self.stopped.load(Ordering::Acquire) {
                return Ok(None);
            }
            match self.device.receive(request)? {
                Received::Request(len, maybe_write) => return Ok(Some((len, maybe_write))),
                Received::Gone => return Ok(None),
                Received::Nothing => *streak = 0,
            }
            if self.watched.swap(true, Ordering::AcqRel) {
                self.park();
                continue;
            }
            let found = self.watch(request);
            self.watched.store(false, Ordering::Release);
            return found;
        }
    }

    fn watch(&self, request: &mut [u8]) -> io::Result<Option<Taken<'_>>> {
        let mut since = Instant::now();
        loop {
            match self.device.receive(request)? {
                Received::Request(len, maybe_write) => return Ok(Some((len, maybe_write))),
                Received::Gone => return Ok(None),
                Received::Nothing if since.elapsed() < self.spin => thread::yield_now(),
                Received::Nothing => {
                    self.device.wait(None)?;
                    if self.gather {
                        thread::sleep(GATHER);
                    }
                    since = Instant::now();
                }
            }
        }
    }

    fn park(&self) {
        let me = thread::current();
        self.parked.lock().push(me.clone());
        if !self.stopped.load(Ordering::Acquire) {
            thread::park();
        }
        self.parked.lock().retain(|thread| thread.id() != me.id());
    }

    fn wake_parked_worker(&self) {
        if let Some(thread) = self.parked.lock().pop() {
            thread.unpark();
        }
    }

    fn supervise(&self) {
        let (mut last, mut quiet) = (0, 0);
        while !self.stopped.load(Ordering::Acquire) {
            thread::park_timeout(TICK);
            let served = self.served.load(Ordering::Relaxed);
            let watched = self.watched.load(Ordering::Acquire);
            if served != last {
                (last, quiet) = (served, 0);
            } else if !watched {
                quiet = 0;
                self.wake_parked_worker();
            } else {
                quiet += 1;
            }
            if quiet >= TICKS_TO_REST {
                quiet = 0;
                self.supervisor_parked.store(true, Ordering::Release);
                // A request that came before the flag was up is noticed at the next tick after all.
                if self.served.load(Ordering::Acquire) == last
                    && self.watched.load(Ordering::Acquire)
                    && !self.stopped.load(Ordering::Acquire)
                {
                    thread::park();
                }
                self.supervisor_parked.store(false, Ordering::Release);
            }
        }
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        for thread in self.parked.lock().drain(..) {
            thread.unpark();
        }
    }
}
