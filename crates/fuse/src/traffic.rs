//! What the workers of a mount's rings share with the rest of the daemon: what is under way, and
//! the replies that another thread has for them.
//!
//! # Concurrency
//! [`Traffic::is_idle`] finds out whether requests wait in the kernel. The kernel shows no count of
//! them, but a request waits only while the kernel has no entry of its queue to put it in: it would
//! hold back requests that it sends in the background, as it does all WRITEs from its page cache,
//! where there are many of them, but INIT allows as many as there can be.
//!
//! So it asks every worker, and each answers once it has served what the kernel had given to it,
//! and has looked again and found nothing: at that moment the kernel has its entry, or its request
//! waits for a reply, which some worker of each queue is free of ([`Traffic::may_keep`]). Take a
//! WRITE that was sent before the question, and the first worker of its queue that answers with its
//! entry in the kernel. At that moment nothing waits in the queue, so the WRITE is served, or in
//! the entry of another worker. That one has not answered yet, and serves the WRITE before it does.
//! The requests that are sent meanwhile do not matter.
//!
//! A reply that is sent later and the worker that keeps the entry for it meet in `late`, in either
//! order.
//!
//! # Locks
//! `late` and the mailboxes are leaves, taken one after the other. `asking` is held while workers
//! are waited for; they do not take it.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

/// How long workers may take to look whether they have a request.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often the one that asked looks whether they have.
const LOOK: Duration = Duration::from_micros(20);

/// Where a request waits for its reply: the number of the worker and that of its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) worker: usize,
    pub(crate) entry: usize,
}

/// A request that is answered later.
enum Late {
    /// It waits.
    Parked(Parked),
    /// Its reply came before it was parked.
    Answered(Vec<u8>),
}

/// What others have for a worker.
struct Mailbox {
    /// Readable once there is something.
    bell: OwnedFd,
    /// Replies, by the number of the entry.
    replies: Mutex<Vec<(usize, Vec<u8>)>>,
    /// The last question that the worker has answered.
    answered: AtomicU64,
}

/// See the module's header.
pub(crate) struct Traffic {
    /// Requests that workers got.
    received: AtomicU64,
    /// Questions so far: one at a time.
    asked: AtomicU64,
    asking: Mutex<()>,
    /// Times that a worker entered the kernel.
    enters: AtomicU64,
    late: Mutex<HashMap<u64, Late>>,
    queues: Box<[Queue]>,
    mailboxes: Box<[Mailbox]>,
}

/// What is known of a queue.
#[derive(Default)]
struct Queue {
    /// Entries that the kernel has taken.
    entries: AtomicUsize,
    /// Those whose requests wait for a reply that is sent later.
    kept: AtomicUsize,
}

/// The answer of a worker that has ended, to all questions.
const RETIRED: u64 = u64::MAX;

impl Traffic {
    /// For so many workers and queues.
    pub(crate) fn new(workers: usize, queues: usize) -> io::Result<Self> {
        let mailbox = || {
            let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
            Ok(Mailbox {
                bell,
                replies: Mutex::default(),
                answered: AtomicU64::new(0),
            })
        };
        let mailboxes: io::Result<Vec<_>> = (0..workers).map(|_| mailbox()).collect();
        Ok(Self {
            received: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            asking: Mutex::default(),
            enters: AtomicU64::new(0),
            late: Mutex::default(),
            queues: (0..queues).map(|_| Queue::default()).collect(),
            mailboxes: mailboxes?.into_boxed_slice(),
        })
    }

    /// Whether a request of `queue` may wait for a reply that is sent later; if so,
    /// [`Traffic::let_go`] has to follow. It keeps an entry, and each queue needs one more: what
    /// comes while the kernel has none waits for the next reply.
    pub(crate) fn may_keep(&self, queue: u16) -> bool {
        let Some(queue) = self.queues.get(usize::from(queue)) else {
            return false;
        };
        let entries = queue.entries.load(Ordering::SeqCst);
        let more = |kept: usize| (kept + 1 < entries).then_some(kept + 1);
        let order = (Ordering::SeqCst, Ordering::SeqCst);
        queue.kept.fetch_update(order.0, order.1, more).is_ok()
    }

    /// A request of `queue` that was allowed to wait is answered.
    pub(crate) fn let_go(&self, queue: u16) {
        if let Some(queue) = self.queues.get(usize::from(queue)) {
            queue.kept.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Whether the rings carry the kernel's requests: it has sent one. It sends none before all
    /// queues have an entry, and none at all after it has refused one.
    pub(crate) fn carries(&self) -> bool {
        self.received.load(Ordering::SeqCst) > 0
    }

    /// The kernel has taken an entry of `queue`.
    pub(crate) fn added_entry(&self, queue: u16) {
        if let Some(queue) = self.queues.get(usize::from(queue)) {
            queue.entries.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// A worker has ended without an entry: it is asked nothing.
    pub(crate) fn retire(&self, worker: usize) {
        self.mailboxes[worker]
            .answered
            .store(RETIRED, Ordering::SeqCst);
    }

    pub(crate) fn entered(&self) {
        self.enters.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker has a request.
    pub(crate) fn received(&self) {
        self.received.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether each request that the kernel had sent before the call was served, but for those that
    /// are answered later. Waits until the workers have looked, [`PATIENCE`] at most.
    pub(crate) fn is_idle(&self) -> bool {
        let _one = self.asking.lock();
        let question = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let begun = Instant::now();
        for mailbox in &self.mailboxes {
            if rustix::io::write(&mailbox.bell, &1_u64.to_ne_bytes()).is_err() {
                return false;
            }
        }
        let answered = |mailbox: &Mailbox| mailbox.answered.load(Ordering::SeqCst) >= question;
        while !self.mailboxes.iter().all(answered) {
            if begun.elapsed() > PATIENCE {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// The question that workers are to answer.
    pub(crate) fn question(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }

    /// The worker has served what the kernel had given to it when `question` was asked, and the
    /// kernel has its entries.
    pub(crate) fn answer(&self, worker: usize, question: u64) {
        self.mailboxes[worker]
            .answered
            .store(question, Ordering::SeqCst);
    }

    /// The request `unique` is answered later. Returns the reply if it has come already.
    pub(crate) fn park(&self, unique: u64, parked: Parked) -> Option<Vec<u8>> {
        match self.late.lock().entry(unique) {
            Slot::Occupied(slot) => match slot.remove() {
                Late::Answered(reply) => Some(reply),
                // No two requests have the same number, unless the kernel errs: the first is lost.
                Late::Parked(_) => None,
            },
            Slot::Vacant(slot) => {
                slot.insert(Late::Parked(parked));
                None
            }
        }
    }

    /// Gives the reply to `unique` to the worker that has the request.
    pub(crate) fn send_later(&self, unique: u64, reply: &[u8]) -> io::Result<()> {
        let parked = match self.late.lock().entry(unique) {
            Slot::Occupied(slot) => match slot.remove() {
                Late::Parked(parked) => parked,
                Late::Answered(_) => return Ok(()),
            },
            Slot::Vacant(slot) => {
                slot.insert(Late::Answered(reply.to_vec()));
                return Ok(());
            }
        };
        if let Some(mailbox) = self.mailboxes.get(parked.worker) {
            let mut replies = mailbox.replies.lock();
            replies.push((parked.entry, reply.to_vec()));
            drop(replies);
            rustix::io::write(&mailbox.bell, &1_u64.to_ne_bytes())?;
        }
        Ok(())
    }

    /// Rings when a worker has a reply to send.
    pub(crate) fn bell(&self, worker: usize) -> BorrowedFd<'_> {
        self.mailboxes[worker].bell.as_fd()
    }

    /// Silences the worker's bell. To be followed by [`Traffic::question`] and
    /// [`Traffic::take_replies`].
    pub(crate) fn hear(&self, worker: usize) {
        let mut count = [0; 8];
        // Empty if it has not rung, which is as good.
        let _ = rustix::io::read(&self.mailboxes[worker].bell, &mut count);
    }

    /// The replies that came for the worker.
    pub(crate) fn take_replies(&self, worker: usize) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut *self.mailboxes[worker].replies.lock())
    }

    /// Names and numbers for the counters of a mount.
    pub(crate) fn list(&self) -> [(&'static str, u64); 3] {
        let entries = |queue: &Queue| queue.entries.load(Ordering::Relaxed) as u64;
        [
            ("transport_entries", self.queues.iter().map(entries).sum()),
            ("transport_enters", self.enters.load(Ordering::Relaxed)),
            ("transport_requests", self.received.load(Ordering::Relaxed)),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// What a worker does when its bell rings, until `stop`.
    fn work(traffic: &Traffic, worker: usize, stop: &AtomicBool) {
        while !stop.load(Ordering::Relaxed) {
            traffic.hear(worker);
            traffic.answer(worker, traffic.question());
            thread::sleep(LOOK);
        }
    }

    #[test]
    fn it_is_idle_if_all_workers_say_so() {
        let traffic = Traffic::new(2, 1).unwrap();
        assert!(!traffic.carries());
        assert!(!traffic.is_idle(), "no worker answers");
        let stop = AtomicBool::new(false);
        let [one, both] = thread::scope(|scope| {
            scope.spawn(|| work(&traffic, 0, &stop));
            let one = traffic.is_idle();
            traffic.retire(1);
            traffic.received();
            let both = traffic.is_idle();
            stop.store(true, Ordering::Relaxed);
            [one, both]
        });
        assert!(!one, "one worker does not answer");
        assert!(both && traffic.carries(), "one that has ended is not asked");
    }

    #[test]
    fn each_queue_keeps_an_entry_for_what_others_wait_for() {
        let traffic = Traffic::new(6, 2).unwrap();
        assert!(!traffic.may_keep(0), "no entry");
        (0..3).for_each(|_| traffic.added_entry(0));
        (0..2).for_each(|_| traffic.added_entry(1));
        assert!(traffic.may_keep(0) && traffic.may_keep(0) && !traffic.may_keep(0));
        assert!(traffic.may_keep(1), "another queue");
        traffic.let_go(0);
        assert!(traffic.may_keep(0) && !traffic.may_keep(0));
        assert!(!traffic.may_keep(2), "no such queue");
    }

    #[test]
    fn a_late_reply_finds_its_entry_in_either_order() {
        let traffic = Traffic::new(2, 1).unwrap();
        let parked = Parked {
            worker: 1,
            entry: 5,
        };
        assert_eq!(traffic.park(7, parked), None);
        traffic.send_later(7, b"reply").unwrap();
        traffic.hear(1);
        assert_eq!(traffic.take_replies(1), [(5, b"reply".to_vec())]);
        assert!(traffic.take_replies(1).is_empty() && traffic.take_replies(0).is_empty());
        traffic.send_later(8, b"early").unwrap();
        assert_eq!(traffic.park(8, parked), Some(b"early".to_vec()));
        assert!(traffic.late.lock().is_empty());
    }
}
