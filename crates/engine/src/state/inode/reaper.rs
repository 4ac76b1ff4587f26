//! The queue of unlinked inodes without a reference, and the thread that works it off.
//!
//! The last reference to such an inode may be dropped under any lock or handle. So the drop only
//! queues the inode; [`crate::namei`] evicts it.
//!
//! # Locks
//! The queue's, a leaf.
//!
//! # Concurrency
//! Every inode is taken from the queue once.

use extant_sync::atomic::{AtomicUsize, Ordering};
use extant_sync::thread::{self, JoinHandle};
use extant_sync::time::Instant;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use extant_sync::{Condvar, Mutex};

use crate::state::inode::Inode;
use crate::types::error::Result;

/// The time between two rounds of the thread while nothing is queued.
const ROUND: Duration = Duration::from_secs(5);
/// Operations that unlink help with evictions once this many inodes wait.
const BEHIND: usize = 512;

/// Inodes to evict, and the thread that does it.
#[derive(Default)]
pub(crate) struct Reaper {
    queue: Arc<EvictionQueue>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// State that the reaper's thread shares with the threads that queue inodes.
#[derive(Default)]
pub(crate) struct EvictionQueue {
    state: Mutex<QueueState>,
    /// The length of the queue, for callers that need no exact answer.
    waiting: AtomicUsize,
    /// An inode was queued, or the thread shall stop.
    work: Condvar,
    /// Nothing is queued or under way any more.
    idle: Condvar,
}

#[derive(Default)]
struct QueueState {
    inodes: VecDeque<Arc<Inode>>,
    /// Evictions under way, and the round of the thread.
    busy: usize,
    /// The next round is due.
    hurry: bool,
    stop: bool,
}

impl Reaper {
    /// The queue.
    pub(crate) fn queue(&self) -> &Arc<EvictionQueue> {
        &self.queue
    }

    /// See [`EvictionQueue::push`].
    pub(crate) fn push(&self, inode: Arc<Inode>) {
        self.queue.push(inode);
    }

    /// Takes an inode. It counts as being evicted until the returned [`Busy`] is dropped.
    pub(crate) fn pop(&self) -> Option<(Arc<Inode>, Busy<'_>)> {
        let mut state = self.queue.state.lock();
        let inode = state.inodes.pop_front()?;
        self.queue.publish(&state);
        Some((inode, self.queue.busy(&mut state)))
    }

    /// Has the thread begin its round now, if it has rounds.
    pub(crate) fn hurry(&self) {
        self.queue.state.lock().hurry = true;
        self.queue.work.notify_one();
    }

    /// Returns whether so many inodes wait that operations should help.
    pub(crate) fn is_behind(&self) -> bool {
        self.queue.waiting.load(Ordering::Relaxed) > BEHIND
    }

    /// Waits until the queue is empty, no eviction is under way, and the thread's round is over.
    /// The caller holds no lock and no handle.
    #[track_caller]
    pub(crate) fn wait_until_idle(&self) {
        extant_lock_order::assert_none_held();
        let mut state = self.queue.state.lock();
        while !state.is_idle() {
            self.queue.idle.wait(&mut state);
        }
    }

    /// As [`Reaper::wait_until_idle`], but leaves the work to the thread, if there is one.
    pub(crate) fn wait_for_thread(&self) {
        if self.thread.lock().is_some() {
            self.wait_until_idle();
        }
    }

    /// Starts the thread, which runs `work`.
    ///
    /// # Errors
    /// The host has no thread left.
    pub(crate) fn start(&self, work: impl FnOnce(&EvictionQueue) + Send + 'static) -> Result<()> {
        let queue = Arc::clone(&self.queue);
        let thread = thread::Builder::new()
            .name("extant-reaper".into())
            .spawn(move || work(&queue))?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Stops the thread. Waits for it unless called on that thread.
    pub(crate) fn stop(&self) {
        self.queue.state.lock().stop = true;
        self.queue.work.notify_all();
        let thread = self.thread.lock().take();
        // The thread itself may drop the last reference to the file system.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the reaper's thread panicked");
        }
    }
}

impl EvictionQueue {
    /// Queues an inode whose last reference went.
    pub(crate) fn push(&self, inode: Arc<Inode>) {
        debug_assert!(inode.is_unlinked() && inode.is_gone(), "no new reference");
        let mut state = self.state.lock();
        state.inodes.push_back(inode);
        self.publish(&state);
        if state.inodes.len() == 1 {
            self.work.notify_one();
        }
    }

    /// Waits for work, with `rounds` for a limited time. `None` when the thread shall stop.
    pub(crate) fn next_round(&self, rounds: bool) -> Option<Busy<'_>> {
        let due = Instant::now() + ROUND;
        let mut state = self.state.lock();
        while !state.stop && state.inodes.is_empty() {
            if !rounds {
                self.work.wait(&mut state);
            } else if std::mem::take(&mut state.hurry)
                || self.work.wait_until(&mut state, due).timed_out()
            {
                break;
            }
        }
        (!state.stop).then(|| self.busy(&mut state))
    }

    fn publish(&self, state: &QueueState) {
        self.waiting.store(state.inodes.len(), Ordering::Relaxed);
    }

    fn busy(&self, state: &mut QueueState) -> Busy<'_> {
        state.busy += 1;
        Busy { queue: self }
    }
}

impl QueueState {
    fn is_idle(&self) -> bool {
        self.busy == 0 && self.inodes.is_empty()
    }
}

/// Work under way, until this is dropped.
#[must_use]
pub(crate) struct Busy<'a> {
    queue: &'a EvictionQueue,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock();
        debug_assert!(state.busy > 0, "work ends once");
        state.busy -= 1;
        if state.is_idle() {
            self.queue.idle.notify_all();
        }
    }
}
