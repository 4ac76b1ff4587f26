//! What the workers of a mount's rings share with the rest of the daemon: what is under way, and
//! the replies that another thread has for them.
//!
//! # Concurrency
//! [`Traffic::is_idle`] finds out whether requests wait in the kernel, which shows no count of
//! them.
//! Three things are known of each of its queues (Linux 6.14 to 6.18, `fs/fuse/dev_uring.c`):
//!
//! 1. An entry becomes free only at a moment when no request waits for one.
//! 2. Requests that are sent in the background, as all WRITEs from the page cache are, may be held
//!    back where there are many: INIT asks for as many as there can be, but the kernel grants fewer
//!    to a process without privileges. Some are held back only while another background request
//!    waits for an entry or is in one.
//! 3. Requests wait beside free entries only after they were held back, and only while a background
//!    request is in an entry.
//!
//! Each worker is asked four times. It answers once it has served what the kernel had given to it,
//! has looked again and found nothing: then the kernel has its entry, or its request waits for a
//! reply that is sent later. Some worker of each queue is free of those ([`Traffic::may_keep`]).
//! The mount is idle if workers got few background requests from before the first question until
//! after the last answer: fewer than the kernel lets be in work, less two for each entry
//! ([`Traffic::set_bound`]). To see that it is, take a request that was sent before:
//!
//! - The kernel looks what to let go whenever a background request of the queue is sent or ends.
//!   If it held some back at such a moment before the third answers, as many as it lets be in work
//!   would wait or be in entries. Before the fourth answers the lists are empty once (1, 3), so all
//!   of them but one for each entry would have been got: they are too few.
//! - If the request is held back, another of its queue waits or is in an entry (2), and has ended
//!   before the second answers. So then the request is not held back any more.
//! - If it waits then, it is in an entry before the third answers, as the list is empty once; and
//!   what is in an entry then is served before the fourth.
//!
//! Where the bound is not known, no background request or late reply may be got.
//!
//! Other requests that are sent meanwhile do not matter, but that a worker answers after the one
//! that it serves. One that takes long, such as an FSYNC, fails the attempt, and the caller tries
//! again. Its worker is not excused: right after a look at what it serves, it may take a request
//! that waited. To order such looks after the answers of others would save a wait that ends with
//! the FSYNC.
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

use crate::abi::op;

/// How long workers may take to look whether they have a request.
const PATIENCE: Duration = Duration::from_millis(100);
/// How often the one that asked looks whether they have.
const LOOK: Duration = Duration::from_micros(20);
/// How many times workers are asked: see the module's header.
const QUESTIONS: u32 = 4;

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

/// What others have for a worker, and what it counts. Each request is counted: no two workers write
/// to one cache line, or to two that the processor fetches together.
#[repr(align(128))]
struct Mailbox {
    /// Readable once there is something.
    bell: OwnedFd,
    /// Replies, by the number of the entry.
    replies: Mutex<Vec<(usize, Vec<u8>)>>,
    /// The last question that the worker has answered.
    answered: AtomicU64,
    /// Requests that the worker got.
    received: AtomicU64,
    /// What may bring it a request that was held back: requests that the kernel may have sent in
    /// the background, and late replies.
    disturbances: AtomicU64,
    /// Times that the worker entered the kernel.
    enters: AtomicU64,
}

/// See the module's header.
pub(crate) struct Traffic {
    /// Questions so far: one at a time.
    asked: AtomicU64,
    asking: Mutex<()>,
    late: Mutex<HashMap<u64, Late>>,
    /// See [`Traffic::set_bound`].
    bound: u64,
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
                received: AtomicU64::new(0),
                disturbances: AtomicU64::new(0),
                enters: AtomicU64::new(0),
            })
        };
        let mailboxes: io::Result<Vec<_>> = (0..workers).map(|_| mailbox()).collect();
        Ok(Self {
            asked: AtomicU64::new(0),
            asking: Mutex::default(),
            late: Mutex::default(),
            bound: 1,
            queues: (0..queues).map(|_| Queue::default()).collect(),
            mailboxes: mailboxes?.into_boxed_slice(),
        })
    }

    /// The kernel lets so many background requests be in work before it holds some back, or more;
    /// it has so many `entries`.
    pub(crate) fn set_bound(&mut self, background: u64, entries: u64) {
        self.bound = background.saturating_sub(2 * entries + 1).max(1);
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
        let some = |mailbox: &Mailbox| mailbox.received.load(Ordering::SeqCst) > 0;
        self.mailboxes.iter().any(some)
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

    pub(crate) fn entered(&self, worker: usize) {
        let enters = &self.mailboxes[worker].enters;
        enters.fetch_add(1, Ordering::Relaxed);
    }

    /// A worker has a request.
    pub(crate) fn received(&self, worker: usize, opcode: u32) {
        let mailbox = &self.mailboxes[worker];
        if is_background(opcode) {
            mailbox.disturbances.fetch_add(1, Ordering::SeqCst);
        }
        mailbox.received.fetch_add(1, Ordering::SeqCst);
    }

    /// A worker is about to send a reply that came later.
    pub(crate) fn got_late_reply(&self, worker: usize) {
        let disturbances = &self.mailboxes[worker].disturbances;
        disturbances.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether each request that the kernel had sent before the call was served, but for those that
    /// are answered later. Waits until the workers have looked, for each look
    /// [`PATIENCE`] at most.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_idle_by(PATIENCE)
    }

    /// The same, with so long for the answers to each question.
    fn is_idle_by(&self, patience: Duration) -> bool {
        let _one = self.asking.lock();
        let disturbances = || self.sum(|mailbox| &mailbox.disturbances);
        let before = disturbances();
        (0..QUESTIONS).all(|_| self.all_answer(patience)) && disturbances() - before < self.bound
    }

    /// Asks all workers, and returns whether each has answered in time.
    fn all_answer(&self, patience: Duration) -> bool {
        let question = self.asked.fetch_add(1, Ordering::SeqCst) + 1;
        let begun = Instant::now();
        for mailbox in &self.mailboxes {
            if rustix::io::write(&mailbox.bell, &1_u64.to_ne_bytes()).is_err() {
                return false;
            }
        }
        let answered = |mailbox: &Mailbox| mailbox.answered.load(Ordering::SeqCst) >= question;
        while !self.mailboxes.iter().all(answered) {
            if begun.elapsed() > patience {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    fn sum(&self, count: impl Fn(&Mailbox) -> &AtomicU64) -> u64 {
        let counts = self.mailboxes.iter().map(count);
        counts.map(|count| count.load(Ordering::SeqCst)).sum()
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
    pub(crate) fn send_deferred_reply(&self, unique: u64, reply: &[u8]) -> io::Result<()> {
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
            ("transport_enters", self.sum(|mailbox| &mailbox.enters)),
            ("transport_requests", self.sum(|mailbox| &mailbox.received)),
        ]
    }
}

/// Whether Linux sends such requests in the background, for some callers: those of
/// `fuse_simple_background` that do not go by `/dev/fuse` alone.
fn is_background(opcode: u32) -> bool {
    matches!(opcode, op::READ | op::WRITE | op::RELEASE | op::RELEASEDIR)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Longer than any answer takes on a busy machine.
    const LONG: Duration = Duration::from_secs(60);

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
            traffic.received(0, op::LOOKUP);
            let both = traffic.is_idle_by(LONG);
            stop.store(true, Ordering::Relaxed);
            [one, both]
        });
        assert!(!one, "one worker does not answer");
        assert!(both && traffic.carries(), "one that has ended is not asked");
    }

    /// Has workers 0 and 1 answer each question in turn, and lets worker 0 get what `disturb` has
    /// for it between its answer to question `after` and that of worker 1. Returns whether the
    /// traffic was found idle.
    fn found_idle(after: u64, disturb: impl Fn(&Traffic)) -> bool {
        let traffic = Traffic::new(2, 1).unwrap();
        thread::scope(|scope| {
            let asker = scope.spawn(|| traffic.is_idle_by(LONG));
            let mut answered = 0;
            while !asker.is_finished() {
                let question = traffic.question();
                if question > answered {
                    traffic.answer(0, question);
                    if question == after {
                        disturb(&traffic);
                    }
                    traffic.answer(1, question);
                    answered = question;
                }
                thread::sleep(LOOK);
            }
            asker.join().unwrap()
        })
    }

    /// A request that was held back may come to a worker that has answered already.
    #[test]
    fn it_is_not_idle_if_what_was_held_back_comes_after_an_answer() {
        for after in 1..=u64::from(QUESTIONS) {
            for kind in [op::WRITE, op::READ, op::RELEASE, op::RELEASEDIR] {
                let idle = found_idle(after, |traffic| traffic.received(0, kind));
                assert!(!idle, "{kind} after {after}");
            }
            let idle = found_idle(after, |traffic| traffic.got_late_reply(0));
            assert!(!idle, "a late reply after {after}");
            let idle = found_idle(after, |traffic| traffic.received(0, op::FSYNC));
            assert!(idle, "a caller's own after {after}");
        }
    }

    #[test]
    fn few_background_requests_do_not_matter() {
        let mut traffic = Traffic::new(1, 1).unwrap();
        traffic.set_bound(10, 3);
        let found = |requests: u32| {
            thread::scope(|scope| {
                let last = traffic.question();
                let asker = scope.spawn(|| traffic.is_idle_by(LONG));
                let mut answered = last;
                while !asker.is_finished() {
                    let question = traffic.question();
                    if question > answered {
                        if answered == last {
                            (0..requests).for_each(|_| traffic.received(0, op::READ));
                        }
                        traffic.answer(0, question);
                        answered = question;
                    }
                    thread::sleep(LOOK);
                }
                asker.join().unwrap()
            })
        };
        // Two for each entry are left out, and one.
        assert!(found(2) && !found(3));
    }

    /// In its entry, but not yet got, when all workers have answered once.
    #[test]
    fn it_is_not_idle_before_workers_have_looked_again() {
        let traffic = Traffic::new(1, 1).unwrap();
        thread::scope(|scope| {
            let asker = scope.spawn(|| traffic.is_idle_by(LONG));
            let next = |before| {
                while traffic.question() == before && !asker.is_finished() {
                    thread::sleep(LOOK);
                }
            };
            next(0);
            traffic.answer(0, 1);
            next(1);
            traffic.received(0, op::WRITE);
            for question in 2..=u64::from(QUESTIONS) {
                traffic.answer(0, question);
                next(question);
            }
            assert!(!asker.join().unwrap());
        });
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
        traffic.send_deferred_reply(7, b"reply").unwrap();
        traffic.hear(1);
        assert_eq!(traffic.take_replies(1), [(5, b"reply".to_vec())]);
        assert!(traffic.take_replies(1).is_empty() && traffic.take_replies(0).is_empty());
        traffic.send_deferred_reply(8, b"early").unwrap();
        assert_eq!(traffic.park(8, parked), Some(b"early".to_vec()));
        assert!(traffic.late.lock().is_empty());
    }
}
