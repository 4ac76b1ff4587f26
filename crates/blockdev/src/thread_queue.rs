//! The queue of devices that have none: threads that make the synchronous calls.
//!
//! # Locks
//! One mutex protects both lists. It is never held over a request.
//!
//! # Concurrency
//! Workers are started as requests need them, up to [`MAX_THREADS`]. Dropping the queue waits for
//! them.
//!
//! # Errors
//! A request that makes the device panic completes with an error.

use extant_sync::thread::{self, JoinHandle};
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use extant_sync::{Condvar, Mutex};

use crate::device::{BlockDevice, perform};
use crate::io_buf::IoBuf;
use crate::queue::{Completion, IoQueue, IoRequest};

/// The most threads of one queue. Further requests wait in the queue, not in the device.
const MAX_THREADS: usize = 16;

/// A queue over any device.
pub(crate) struct ThreadQueue {
    shared: Arc<Shared>,
    depth: usize,
    in_flight: usize,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    device: Arc<dyn BlockDevice>,
    lists: Mutex<Lists>,
    /// Signalled when a request waits or the queue ends.
    work: Condvar,
    /// Signalled when a request has completed.
    finished: Condvar,
}

#[derive(Default)]
struct Lists {
    waiting: VecDeque<IoRequest>,
    done: Vec<Completion>,
    /// Workers that wait for a request.
    idle: usize,
    ended: bool,
}

impl ThreadQueue {
    /// A queue of threads for up to `depth` requests to `device`, whatever the device would choose;
    /// `depth` 0 counts as 1.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, depth: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                device,
                lists: Mutex::default(),
                work: Condvar::new(),
                finished: Condvar::new(),
            }),
            depth: depth.max(1),
            in_flight: 0,
            workers: Vec::new(),
        }
    }

    /// Starts one more worker. If there is none, this thread makes the requests.
    fn start_worker(&mut self) {
        let shared = Arc::clone(&self.shared);
        let started = thread::Builder::new()
            .name("blockdev-queue".into())
            .spawn(move || shared.serve());
        match started {
            Ok(worker) => self.workers.push(worker),
            Err(_) if self.workers.is_empty() => {
                while self.shared.serve_one(&mut self.shared.lists.lock()) {}
            }
            Err(_) => {}
        }
    }
}

impl Shared {
    fn serve(&self) {
        let mut lists = self.lists.lock();
        while !lists.ended || !lists.waiting.is_empty() {
            if !self.serve_one(&mut lists) {
                lists.idle += 1;
                self.work.wait(&mut lists);
                lists.idle -= 1;
            }
        }
    }

    /// Makes the first request that waits; `false` if there is none.
    fn serve_one(&self, lists: &mut extant_sync::MutexGuard<'_, Lists>) -> bool {
        let Some(request) = lists.waiting.pop_front() else {
            return false;
        };
        let completion = extant_sync::MutexGuard::unlocked(lists, || {
            let tag = request.tag;
            catch_unwind(AssertUnwindSafe(|| perform(&*self.device, request))).unwrap_or_else(
                |_| Completion {
                    tag,
                    buf: IoBuf::default(),
                    result: Err(io::Error::other("the device panicked")),
                },
            )
        });
        lists.done.push(completion);
        self.finished.notify_one();
        true
    }
}

impl IoQueue for ThreadQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight >= self.depth {
            return Err(request);
        }
        self.in_flight += 1;
        let mut lists = self.shared.lists.lock();
        lists.waiting.push_back(request);
        let too_few = lists.waiting.len() > lists.idle;
        drop(lists);
        self.shared.work.notify_one();
        if too_few && self.workers.len() < MAX_THREADS.min(self.depth) {
            self.start_worker();
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, done: &mut Vec<Completion>) {
        let min = min.min(self.in_flight);
        let mut lists = self.shared.lists.lock();
        while lists.done.len() < min {
            self.shared.finished.wait(&mut lists);
        }
        debug_assert!(
            lists.done.len() <= self.in_flight,
            "each request completes once"
        );
        self.in_flight -= lists.done.len();
        done.append(&mut lists.done);
    }
}

impl Drop for ThreadQueue {
    fn drop(&mut self) {
        self.shared.lists.lock().ended = true;
        self.shared.work.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}
