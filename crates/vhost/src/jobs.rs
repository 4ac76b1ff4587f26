//! Requests between the threads of the queues, which take them in, and the workers.
//!
//! # Invariants
//! A queue has no more requests under way than its ring has descriptors, whatever its driver makes
//! available: one more breaks the queue.
//!
//! # Locks
//! `waiting` and the count of a queue are leaves.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use vhost_user_backend::VringT;
use virtio_queue::QueueT;
use vm_memory::GuestMemoryMmap;

use crate::broken::Broken;
use crate::chain::Chain;
use crate::queue::{BrokenMark, MemoryNow, Vring, complete, take};

/// A queue of requests as its thread and the workers know it.
#[derive(Default)]
pub(crate) struct SharedQueue {
    pub(crate) broken: BrokenMark,
    /// Requests under way.
    count: Mutex<u16>,
    none_left: Condvar,
}

/// A request that is to be served, and completed on its queue.
pub(crate) struct Job {
    pub(crate) chain: Chain<MemoryNow>,
    memory: MemoryNow,
    vring: Vring,
    queue: Arc<SharedQueue>,
}

impl SharedQueue {
    /// Takes the next request out of the ring, if there is one.
    ///
    /// # Errors
    /// The ring or the request is one that no driver makes.
    pub(crate) fn take(
        self: &Arc<Self>,
        vring: &Vring,
        memory: MemoryNow,
    ) -> Result<Option<Job>, Broken> {
        let mut ring = vring.get_mut();
        let queue = ring.get_queue_mut();
        let Some(chain) = take(queue, &memory)? else {
            return Ok(None);
        };
        let mut count = self.count.lock();
        // A request counts until its worker has let go of it, when the guest may have its place
        // back: so twice as many as the ring has.
        if *count >= queue.size().saturating_mul(2) {
            return Err(Broken::Ring);
        }
        *count += 1;
        drop(count);
        Ok(Some(Job {
            chain,
            memory,
            vring: vring.clone(),
            queue: Arc::clone(self),
        }))
    }

    /// Waits until no request is under way.
    pub(crate) fn drain(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            self.none_left.wait(&mut count);
        }
    }
}

impl Job {
    /// The request is one that no driver makes: its queue is not served any more.
    pub(crate) fn give_up<T>(&self, broken: Broken) -> Option<T> {
        self.queue.broken.set(broken);
        None
    }

    /// Gives the request back to the guest, with an answer of `len` bytes.
    pub(crate) fn complete(self, len: usize) {
        let memory: &GuestMemoryMmap<()> = &self.memory;
        let len = u32::try_from(len).unwrap_or(0);
        let head = self.chain.head();
        if let Err(broken) = complete(&mut self.vring.get_mut(), memory, head, len) {
            self.queue.broken.set(broken);
        }
    }
}

/// However a request ends, it is under way no longer.
impl Drop for Job {
    fn drop(&mut self) {
        let mut count = self.queue.count.lock();
        *count = count.saturating_sub(1);
        if *count == 0 {
            self.queue.none_left.notify_all();
        }
    }
}

/// Requests that wait for a worker.
#[derive(Default)]
pub(crate) struct Jobs {
    waiting: Mutex<Waiting>,
    news: Condvar,
}

/// Ends the workers when it is dropped, also where a thread panics.
#[must_use]
pub(crate) struct CloseGuard<'a>(&'a Jobs);

impl Drop for CloseGuard<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

#[derive(Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    is_closed: bool,
}

impl Jobs {
    /// Adds a request behind the others.
    pub(crate) fn add(&self, job: Job) {
        self.waiting.lock().jobs.push_back(job);
        self.news.notify_one();
    }

    /// Puts a request before the others again.
    pub(crate) fn put_back(&self, job: Job) {
        self.waiting.lock().jobs.push_front(job);
        self.news.notify_one();
    }

    /// The next request; nothing once there will be none, or `is_over` says so.
    pub(crate) fn next(&self, is_over: impl Fn() -> bool) -> Option<Job> {
        let mut waiting = self.waiting.lock();
        loop {
            if is_over() {
                return None;
            }
            if let Some(job) = waiting.jobs.pop_front() {
                return Some(job);
            }
            if waiting.is_closed {
                return None;
            }
            self.news.wait(&mut waiting);
        }
    }

    /// Has all that wait in [`Jobs::next`] ask their `is_over` again.
    pub(crate) fn wake_all(&self) {
        // None of them is between its question and its sleep.
        drop(self.waiting.lock());
        self.news.notify_all();
    }

    /// Has no more requests come once the guard is dropped.
    pub(crate) fn closing(&self) -> CloseGuard<'_> {
        CloseGuard(self)
    }

    fn close(&self) {
        self.waiting.lock().is_closed = true;
        self.news.notify_all();
    }
}
