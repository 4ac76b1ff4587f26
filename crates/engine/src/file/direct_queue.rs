//! Many direct requests in flight.
//!
//! A request for whole blocks that have their data, below the size on disk, with nothing cached,
//! takes the *fast path* to the device's queue: its range stays locked until the device has
//! answered, and nothing else is left to do then. Every other request is a call of
//! [`file::write_direct`] or [`file::read_direct`] on one of a few threads. So is each write of a
//! file that was opened with `O_SYNC` or `O_DSYNC`: a sync follows it there.
//!
//! # Locks
//! A submission never waits for a range, which a request of the same queue may hold: a request that
//! would have to wait goes to the threads. The device queue and the lists have a mutex each. With
//! the first held, ranges are unlocked but never locked. The user holds it while the device works;
//! other threads only try it.
//!
//! # Concurrency
//! The range of a request on the fast path is locked until a thread reads the device queue. The
//! user does when it reaps. The user may instead wait for such a range, by a buffered write; so the
//! completion poller reads the queue every millisecond while something is in flight.

use extant_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use extant_sync::thread::{self, JoinHandle};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use extant_blockdev::{Completion, IoBuf, IoOp, IoQueue, IoRequest, open_queue};
use extant_sync::{Condvar, Mutex, MutexGuard};
use extant_units::at_most_usize;

use crate::file::direct::fast_path::{DirectRequest, Direction, FastRequest, take_fast_path};
use crate::file::direct::known_runs::KnownRuns;
use crate::file::{self, WriteAt};
use crate::state::inode::InodeRef;
use crate::types::error::{Error, Result};
use crate::types::{AfterWrite, Cred};
use crate::volume::Fs;

/// The most requests that a queue has in flight, whatever depth is asked for.
const MAX_DEPTH: usize = 4096;
/// Threads for requests that are not on the fast path.
const MAX_THREADS: usize = 4;
/// Time between two reads of the queue by the completion poller while something is in flight.
const POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Reads in a row that find nothing before the poller sleeps.
const IDLE_POLLS: u32 = 16;

/// A request of a queue's user.
pub(crate) struct QueuedRequest {
    pub(crate) direction: Direction,
    pub(crate) pos: u64,
    pub(crate) buf: IoBuf,
    pub(crate) tag: u64,
    /// Sync that follows a write, before its result is known.
    pub(crate) after: AfterWrite,
}

/// A file that requests are for. They share one reference to the inode, so queues of the same file
/// do not contend for its count.
type FileRef = Arc<InodeRef>;

/// A completed request.
#[derive(Debug)]
pub struct Finished {
    /// Tag that the request was submitted with.
    pub tag: u64,
    /// The request's buffer.
    pub buf: IoBuf,
    /// Bytes read or written, as by [`crate::Volume::read_direct`] and
    /// [`crate::Volume::write_direct`].
    pub result: Result<usize>,
}

/// A queue of requests, of one user.
pub(crate) struct Queue {
    shared: Arc<Shared>,
    /// Requests that the user has not reaped.
    outstanding: usize,
    depth: usize,
    /// The file of the latest request, while any is outstanding.
    file: Option<FileRef>,
    /// The known runs of that file, also afterwards.
    known_runs: KnownRuns,
    /// Memory for reaping.
    spare: Completed,
    workers: Vec<JoinHandle<()>>,
    poller: Option<JoinHandle<()>>,
}

struct Shared {
    fs: Arc<Fs>,
    cred: Cred,
    device: Mutex<DeviceSide>,
    backlog: Mutex<Backlog>,
    /// There is a request in the backlog, or the queue ends.
    work: Condvar,
    /// Requests that the threads have.
    with_threads: AtomicUsize,
    completed: Mutex<Completed>,
    /// Signals that a request has completed.
    arrived: Condvar,
    /// The queue has ended.
    ended: Mutex<bool>,
    /// Signals that something is in flight again, or that the queue ends.
    poll_wanted: Condvar,
    /// The completion poller sleeps until it is woken.
    asleep: AtomicBool,
}

/// The requests that wait for a thread.
#[derive(Default)]
struct Backlog {
    waiting: VecDeque<(FileRef, QueuedRequest)>,
    idle: usize,
    ended: bool,
}

/// The device's queue, and the requests in it.
struct DeviceSide {
    queue: Box<dyn IoQueue>,
    slots: Vec<Option<InFlight>>,
    free: Vec<usize>,
    done: Vec<Completion>,
    /// Memory for completions.
    completed: Completed,
}

/// A request that the device has.
struct InFlight {
    fast: FastRequest,
    tag: u64,
}

/// Completed requests, in order.
struct Completed {
    finished: Vec<Finished>,
    /// The requests' references to inodes. They go when the user reaps, under no lock.
    files: Vec<FileRef>,
}

impl Completed {
    /// None, with room for `many`.
    fn with_capacity(many: usize) -> Self {
        Self {
            finished: Vec::with_capacity(many),
            files: Vec::with_capacity(many),
        }
    }

    fn is_empty(&self) -> bool {
        self.finished.is_empty()
    }

    fn push(&mut self, tag: u64, buf: IoBuf, result: Result<usize>, file: Option<FileRef>) {
        self.finished.push(Finished { tag, buf, result });
        self.files.extend(file);
    }

    /// Takes all that `other` has.
    fn append(&mut self, other: &mut Self) {
        self.finished.append(&mut other.finished);
        self.files.append(&mut other.files);
    }
}

/// Makes `inode` the file that requests are for, which forgets the known runs of another one.
/// Returns the requests' reference to it.
#[inline]
fn switch_to_file<'a>(
    file: &'a mut Option<FileRef>,
    known_runs: &mut KnownRuns,
    inode: &InodeRef,
) -> &'a FileRef {
    let known = file.as_ref();
    if known.is_none_or(|file| !Arc::ptr_eq(file.shared(), inode.shared())) {
        known_runs.switch_file(inode.shared());
        *file = None;
    }
    file.get_or_insert_with(|| Arc::new(inode.clone()))
}

impl Queue {
    pub(crate) fn new(fs: &Arc<Fs>, cred: Cred, depth: usize) -> Self {
        let depth = depth.clamp(1, MAX_DEPTH);
        let queue = open_queue(&fs.dev, depth);
        let slots = queue.depth();
        debug_assert!(slots > 0, "a queue takes a request");
        Self {
            shared: Arc::new(Shared {
                fs: Arc::clone(fs),
                cred,
                device: Mutex::new(DeviceSide {
                    queue,
                    slots: (0..slots).map(|_| None).collect(),
                    free: (0..slots).collect(),
                    done: Vec::with_capacity(slots),
                    completed: Completed::with_capacity(slots),
                }),
                backlog: Mutex::default(),
                work: Condvar::new(),
                with_threads: AtomicUsize::new(0),
                completed: Mutex::new(Completed::with_capacity(depth)),
                arrived: Condvar::new(),
                ended: Mutex::new(false),
                poll_wanted: Condvar::new(),
                asleep: AtomicBool::new(false),
            }),
            outstanding: 0,
            depth,
            file: None,
            known_runs: KnownRuns::default(),
            spare: Completed::with_capacity(depth),
            workers: Vec::new(),
            poller: None,
        }
    }

    /// Number of requests that the user has not reaped.
    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// A buffer of the alignment that the device likes best.
    pub(crate) fn buffer(&self, len: usize) -> IoBuf {
        self.shared.device.lock().queue.buffer(len)
    }

    /// Takes a request for `inode`. Waits while as many are in flight as the queue's depth.
    pub(crate) fn submit(&mut self, inode: &InodeRef, queued: QueuedRequest) {
        // Requests in flight are outstanding.
        while self.outstanding >= self.depth && self.shared.in_flight() >= self.depth {
            self.shared.wait_for_completion();
        }
        self.outstanding += 1;
        let shared = &*self.shared;
        let file = switch_to_file(&mut self.file, &mut self.known_runs, inode);
        let request = DirectRequest {
            direction: queued.direction,
            pos: queued.pos,
            len: queued.buf.len(),
            cred: &shared.cred,
        };
        // The threads make a write durable: a sync waits, and a submission does not.
        let fast = match queued.after {
            AfterWrite::Nothing => take_fast_path(&shared.fs, file, request, &mut self.known_runs),
            AfterWrite::SyncData | AfterWrite::SyncAll => Ok(None),
        };
        match fast {
            Err(error) => {
                file::latch_if_corrupt(&shared.fs, &error);
                shared.push_completed(queued.tag, queued.buf, Err(error));
            }
            Ok(Some(fast)) => {
                let poller = self.ensure_completion_poller();
                self.shared.submit_to_device(queued, fast);
                if !poller {
                    // No thread would look after it while the user waits for something else.
                    self.shared
                        .complete_answered(&mut self.shared.device.lock(), usize::MAX);
                }
            }
            Ok(None) => {
                let file = Arc::clone(file);
                self.hand_over(file, queued);
            }
        }
    }

    /// A request for the threads.
    fn hand_over(&mut self, file: FileRef, queued: QueuedRequest) {
        let shared = &self.shared;
        shared.with_threads.fetch_add(1, Ordering::AcqRel);
        let mut backlog = shared.backlog.lock();
        backlog.waiting.push_back((file, queued));
        let short = backlog.waiting.len() > backlog.idle;
        drop(backlog);
        shared.work.notify_one();
        if short && self.workers.len() < MAX_THREADS.min(self.depth) {
            let worker = Arc::clone(shared);
            let name = thread::Builder::new().name("extant-direct".into());
            match name.spawn(move || worker.serve()) {
                Ok(worker) => self.workers.push(worker),
                Err(_) if self.workers.is_empty() => while shared.serve_one() {},
                Err(_) => {}
            }
        }
    }

    /// Starts the completion poller if there is none. Returns false if the host has no thread for
    /// it.
    fn ensure_completion_poller(&mut self) -> bool {
        if self.poller.is_none() {
            let shared = Arc::clone(&self.shared);
            let name = thread::Builder::new().name("extant-direct-care".into());
            self.poller = name.spawn(move || shared.poll_completions()).ok();
        }
        self.poller.is_some()
    }

    /// Waits until at least `min` requests are complete, or all there are. Adds all complete ones
    /// to `to`.
    pub(crate) fn reap(&mut self, min: usize, to: &mut Vec<Finished>) {
        let min = min.min(self.outstanding);
        let mut got = 0;
        self.shared.poll();
        loop {
            std::mem::swap(&mut *self.shared.completed.lock(), &mut self.spare);
            got += self.spare.finished.len();
            to.append(&mut self.spare.finished);
            self.spare.files.clear();
            if got >= min {
                break;
            }
            self.shared.wait_for_completion();
        }
        debug_assert!(got <= self.outstanding, "a request completes once");
        self.outstanding -= got;
        if self.outstanding == 0 {
            // An idle queue keeps no file.
            self.file = None;
        }
    }
}

impl Drop for Queue {
    /// Waits for everything in flight.
    fn drop(&mut self) {
        let mut rest = Vec::new();
        self.reap(self.outstanding, &mut rest);
        debug_assert_eq!(self.outstanding, 0, "nothing is in flight");
        self.shared.backlog.lock().ended = true;
        self.shared.work.notify_all();
        *self.shared.ended.lock() = true;
        self.shared.poll_wanted.notify_all();
        for thread in self.workers.drain(..).chain(self.poller.take()) {
            // What the thread had to report is in the results.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn in_flight(&self) -> usize {
        let device = self.device.lock();
        device.slots.len() - device.free.len() + self.with_threads.load(Ordering::Acquire)
    }

    /// Submits a request to the device.
    fn submit_to_device(&self, queued: QueuedRequest, fast: FastRequest) {
        let mut device = self.device.lock();
        let slot = loop {
            match device.free.pop() {
                Some(slot) => break slot,
                None => self.complete_answered(&mut device, 1),
            }
        };
        let request = IoRequest {
            op: match queued.direction {
                Direction::Read => IoOp::Read,
                Direction::Write => IoOp::Write,
            },
            offset: fast.at,
            buf: queued.buf,
            tag: slot as u64,
        };
        debug_assert!(device.slots[slot].is_none(), "slot {slot} was free");
        device.slots[slot] = Some(InFlight {
            fast,
            tag: queued.tag,
        });
        let mut refused = device.queue.submit(request).err();
        while let Some(request) = refused {
            self.complete_answered(&mut device, 1);
            refused = device.queue.submit(request).err();
        }
        drop(device);
        if self.asleep.load(Ordering::SeqCst) {
            drop(self.ended.lock());
            self.poll_wanted.notify_one();
        }
    }

    /// Completes what the device has answered, `min` requests at least.
    fn complete_answered(&self, device: &mut DeviceSide, min: usize) {
        device.queue.reap(min, &mut device.done);
        for completion in device.done.drain(..) {
            let slot = at_most_usize(completion.tag);
            let Some(over) = device.slots.get_mut(slot).and_then(Option::take) else {
                debug_assert!(false, "the device answers what it was asked");
                continue;
            };
            device.free.push(slot);
            debug_assert!(
                device.free.len() <= device.slots.len(),
                "a slot is free once"
            );
            let (result, file) = over.fast.end(&self.fs, completion.result);
            device
                .completed
                .push(over.tag, completion.buf, result, file);
        }
        if !device.completed.is_empty() {
            self.completed.lock().append(&mut device.completed);
            self.arrived.notify_one();
        }
    }

    fn push_completed(&self, tag: u64, buf: IoBuf, result: Result<usize>) {
        self.completed.lock().push(tag, buf, result, None);
        self.arrived.notify_one();
    }

    /// Completes what the device has answered by now.
    fn poll(&self) {
        self.complete_answered(&mut self.device.lock(), 0);
    }

    /// Waits until another request is complete, if any is in flight.
    fn wait_for_completion(&self) {
        let mut device = self.device.lock();
        if device.free.len() < device.slots.len() {
            // Requests of the threads may be waiting for ranges that are unlocked here.
            self.complete_answered(&mut device, 1);
            return;
        }
        drop(device);
        let mut completed = self.completed.lock();
        if completed.is_empty() && self.with_threads.load(Ordering::Acquire) > 0 {
            self.arrived.wait(&mut completed);
        }
    }

    /// The body of a thread.
    fn serve(&self) {
        loop {
            while self.serve_one() {}
            let mut backlog = self.backlog.lock();
            if !backlog.waiting.is_empty() {
                continue;
            }
            if backlog.ended {
                return;
            }
            backlog.idle += 1;
            self.work.wait(&mut backlog);
            backlog.idle -= 1;
        }
    }

    /// Runs the first waiting request. Returns false if there is none.
    fn serve_one(&self) -> bool {
        let Some((file, mut queued)) = self.backlog.lock().waiting.pop_front() else {
            return false;
        };
        let result = catch_unwind(AssertUnwindSafe(|| self.run_request(&file, &mut queued)));
        let result = result.unwrap_or_else(|_| Err(Error::Io("a direct request panicked".into())));
        // In this order: a reader that finds no request with the threads finds it completed.
        let mut completed = self.completed.lock();
        completed.push(queued.tag, queued.buf, result, Some(file));
        let before = self.with_threads.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "a thread had the request");
        drop(completed);
        self.arrived.notify_one();
        true
    }

    fn run_request(&self, file: &InodeRef, queued: &mut QueuedRequest) -> Result<usize> {
        let (fs, inode) = (&self.fs, file.shared());
        match queued.direction {
            Direction::Read => {
                crate::file::read_direct(fs, inode, None, queued.pos, &mut queued.buf)
            }
            Direction::Write => {
                let at = WriteAt::Pos(queued.pos);
                let (_, done) = file::write_direct(fs, inode, None, at, &queued.buf, &self.cred)?;
                if done > 0 && queued.after != AfterWrite::Nothing {
                    file::fsync(fs, inode, None, queued.after == AfterWrite::SyncData)?;
                }
                Ok(done)
            }
        }
    }

    /// The body of the completion poller.
    fn poll_completions(&self) {
        let mut ended = self.ended.lock();
        let mut in_vain = 0;
        while !*ended {
            if in_vain < IDLE_POLLS {
                self.poll_wanted.wait_for(&mut ended, POLL_INTERVAL);
            } else {
                self.asleep.store(true, Ordering::SeqCst);
                // A thread that submits after this look sees that it has to wake the completion
                // poller.
                if self.is_idle() {
                    self.poll_wanted.wait(&mut ended);
                }
                self.asleep.store(false, Ordering::SeqCst);
                in_vain = 0;
                continue;
            }
            in_vain = MutexGuard::unlocked(&mut ended, || match self.device.try_lock() {
                Some(mut device) if device.free.len() < device.slots.len() => {
                    self.complete_answered(&mut device, 0);
                    0
                }
                Some(_) => in_vain + 1,
                None => 0,
            });
        }
    }

    /// Returns whether the device queue is empty.
    fn is_idle(&self) -> bool {
        let device = self.device.try_lock();
        device.is_some_and(|device| device.free.len() == device.slots.len())
    }
}
