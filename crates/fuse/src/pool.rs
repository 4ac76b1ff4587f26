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
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::device::{Device, Received};
use crate::in_flight::InFlight;
use crate::reply::ReplyBuf;
use crate::request::Request;

/// How long the watcher asks before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
/// How often the supervisor looks.
const TICK: Duration = Duration::from_micros(300);
/// After so many ticks without a request the supervisor sleeps too.
const TICKS_TO_REST: u32 = 30;
/// So many requests without finding the queue empty wake another worker.
const BACKLOG: u32 = 4;

/// Serves requests. Called from many threads at once.
pub(crate) trait Serve: Sync {
    /// Whether the request may take long.
    fn may_block(&self, request: &[u8]) -> bool;
    /// Serves one request and sends the reply.
    fn serve(&self, request: &[u8], reply: &mut ReplyBuf) -> io::Result<()>;
    /// A bug surfaced in [`Serve::serve`]; the request is answered, but nothing may be changed any
    /// more.
    fn panicked(&self, request: &[u8], reply: &mut ReplyBuf) -> io::Result<()>;
}

/// See the module's header.
pub(crate) struct Pool<'a, S> {
    device: &'a Device,
    server: &'a S,
    in_flight: &'a InFlight,
    spin: Duration,
    watched: AtomicBool,
    stopped: AtomicBool,
    served: AtomicU64,
    resting: AtomicBool,
    parked: Mutex<Vec<Thread>>,
}

/// What a worker keeps requests and replies in.
struct Buffers {
    request: Vec<u8>,
    reply: ReplyBuf,
}

impl Buffers {
    /// Fails, instead of ending the process, where there is no memory.
    fn new(request_len: usize, reply_len: usize) -> io::Result<Self> {
        let reply = ReplyBuf::try_new(reply_len)?;
        let mut request = Vec::new();
        request.try_reserve_exact(request_len)?;
        request.resize(request_len, 0);
        Ok(Self { request, reply })
    }
}

impl<'a, S: Serve> Pool<'a, S> {
    pub(crate) fn new(
        device: &'a Device,
        server: &'a S,
        in_flight: &'a InFlight,
        cpus: usize,
    ) -> Self {
        Self {
            device,
            server,
            in_flight,
            // On a single processor the watcher would take it from the process that is to send the
            // request.
            spin: if cpus > 1 { SPIN } else { Duration::ZERO },
            watched: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            served: AtomicU64::new(0),
            resting: AtomicBool::new(false),
            parked: Mutex::default(),
        }
    }

    /// Serves with a thread for each slot of the requests in flight until the file system is
    /// unmounted. Once there are threads that serve, `ready` is called; should it fail, the mount
    /// ends. Requests are at most `request_len` bytes long, replies have at most `reply_len` bytes
    /// behind their header.
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
            let workers = self.in_flight.workers();
            let mut handles = Vec::with_capacity(workers);
            for i in 0..workers {
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
            let len = match self.next(&mut request, &mut streak) {
                Ok(Some(len)) => len,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            if self.resting.load(Ordering::Relaxed) && self.resting.swap(false, Ordering::AcqRel) {
                supervisor.unpark();
            }
            // The kernel gives no more than the buffer holds; an empty request is no request.
            let request = request.get(..len).unwrap_or(&[]);
            streak += 1;
            if streak % BACKLOG == 0 || self.server.may_block(request) {
                self.call_help();
            }
            let unique = Request::new(request).map_or(0, |request| request.header.unique);
            let in_flight = self.in_flight.begin(number, unique);
            let serve = || self.server.serve(request, &mut reply);
            let served = catch_unwind(AssertUnwindSafe(|| in_flight.interrupt.during(serve)))
                .unwrap_or_else(|_| self.server.panicked(request, &mut reply));
            drop(in_flight);
            self.served.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = served {
                break Err(error);
            }
        };
        self.stop();
        result
    }

    /// The next request's length; `None` when there will be none.
    fn next(&self, request: &mut [u8], streak: &mut u32) -> io::Result<Option<usize>> {
        loop {
            if self.stopped.load(Ordering::Acquire) {
                return Ok(None);
            }
            match self.device.receive(request)? {
                Received::Request(len) => return Ok(Some(len)),
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

    fn watch(&self, request: &mut [u8]) -> io::Result<Option<usize>> {
        let mut since = Instant::now();
        loop {
            match self.device.receive(request)? {
                Received::Request(len) => return Ok(Some(len)),
                Received::Gone => return Ok(None),
                Received::Nothing if since.elapsed() < self.spin => thread::yield_now(),
                Received::Nothing => {
                    self.device.wait(None)?;
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

    fn call_help(&self) {
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
                self.call_help();
            } else {
                quiet += 1;
            }
            if quiet >= TICKS_TO_REST {
                quiet = 0;
                self.resting.store(true, Ordering::Release);
                // A request that came before the flag was up is noticed at the next tick after all.
                if self.served.load(Ordering::Acquire) == last
                    && self.watched.load(Ordering::Acquire)
                    && !self.stopped.load(Ordering::Acquire)
                {
                    thread::park();
                }
                self.resting.store(false, Ordering::Release);
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
