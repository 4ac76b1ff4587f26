//! The queue of devices that have none: threads that make the synchronous calls.
//!
//! # Concurrency
//! One mutex guards both lists and is never held over a request. Workers are started as requests need them, up to
//! [`MOST_THREADS`], and end with the queue, which waits for them. A request that makes a device panic ends with an error.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use crate::device::BlockDevice;
use crate::io_buf::IoBuf;
use crate::queue::{Completion, IoQueue, IoRequest, make};

/// Threads of one queue. More requests than that wait in the queue, not in the device.
const MOST_THREADS: usize = 16;

/// A queue over any device.
pub struct ThreadQueue {
    shared: Arc<Shared>,
    depth: usize,
    in_flight: usize,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    device: Arc<dyn BlockDevice>,
    lists: Mutex<Lists>,
    /// There is something to do, or the queue ends.
    work: Condvar,
    /// There is something done.
    finished: Condvar,
}

#[derive(Default)]
struct Lists {
    waiting: VecDeque<IoRequest>,
    done: Vec<Completion>,
    /// Workers that wait for something to do.
    idle: usize,
    ended: bool,
}

impl ThreadQueue {
    /// A queue for up to `depth` requests (at least one) to `device`, by threads whatever the device would choose.
    pub fn new(device: Arc<dyn BlockDevice>, depth: usize) -> Self {
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

    /// One more worker. Without any, the caller does the work.
    fn hire(&mut self) {
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

    /// Makes the first request that waits; `false` if none does.
    fn serve_one(&self, lists: &mut parking_lot::MutexGuard<'_, Lists>) -> bool {
        let Some(request) = lists.waiting.pop_front() else {
            return false;
        };
        let completion = parking_lot::MutexGuard::unlocked(lists, || {
            let tag = request.tag;
            catch_unwind(AssertUnwindSafe(|| make(&*self.device, request))).unwrap_or_else(|_| {
                Completion {
                    tag,
                    buf: IoBuf::default(),
                    result: Err(io::Error::other("the device panicked")),
                }
            })
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
        let short = lists.waiting.len() > lists.idle;
        drop(lists);
        self.shared.work.notify_one();
        if short && self.workers.len() < MOST_THREADS.min(self.depth) {
            self.hire();
        }
        Ok(())
    }

    fn reap(&mut self, min: usize, done: &mut Vec<Completion>) {
        let min = min.min(self.in_flight);
        let mut lists = self.shared.lists.lock();
        while lists.done.len() < min {
            self.shared.finished.wait(&mut lists);
        }
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
