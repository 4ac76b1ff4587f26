//! A simulated kernel's queues, and rings over them.
//!
//! Requests come in entries, and a reply leaves with the command that fetches the next request, as
//! with Linux (`fs/fuse/dev_uring.c`). These rules are Linux's too:
//!
//! * A request goes to the entry that became free last. Without one it waits in its queue, and the
//!   next entry that commits takes it.
//! * Background requests are held back beyond a limit for all queues, but for one of each queue.
//!   The end of one lets others go; these wait for an entry that commits, even beside free ones.
//! * The end of the mount completes the commands of free entries with an error.
//!
//! # Locks
//! `state` is taken with the simulated kernel's lock held, or alone.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, Scope};
use std::time::Duration;

use extant_testkit::Rng;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use zerocopy::{FromBytes, IntoBytes};

use super::entry::Entry;
use super::start::take_steps;
use super::transport::{EntryRing, Event};
use super::worker::{Party, Worker, split};
use super::{RingThreads, spawn_all};
use crate::abi::{InHeader, RingInOut, op};
use crate::device::Device;
use crate::in_flight::InFlight;
use crate::serve::Serve;
use crate::traffic::Traffic;

/// Bytes of an entry's payload: more than the simulated kernel sends or asks for.
const PAYLOAD_LEN: usize = 128 << 10;

/// A request for a queue, in the parts in which the kernel writes it.
pub(crate) struct QueuedRequest {
    pub(crate) header: InHeader,
    pub(crate) operation: Vec<u8>,
    pub(crate) payload: Vec<u8>,
    pub(crate) is_background: bool,
}

/// The limits of a simulated kernel.
#[derive(Clone, Debug)]
pub(crate) struct RingShape {
    /// The queues that each worker has an entry of.
    pub(crate) duties: Vec<Vec<u16>>,
    /// Background requests that are let go at once.
    pub(crate) background: u64,
    /// The time that a WRITE takes before it is served.
    pub(crate) pace: Duration,
}

impl RingShape {
    pub(crate) fn queues(&self) -> usize {
        let last = self.duties.iter().flatten().max();
        last.map_or(0, |&last| usize::from(last) + 1)
    }
}

/// An entry that the kernel has.
struct FreeEntry {
    worker: usize,
    number: usize,
    entry: Entry,
}

#[derive(Default)]
struct SimulatedQueue {
    waiting: VecDeque<QueuedRequest>,
    held: VecDeque<QueuedRequest>,
    /// Background requests that were let go and have not ended.
    active: u64,
    free: Vec<FreeEntry>,
}

/// An entry whose command was completed.
type Completed = (usize, Entry, Result<(), Errno>);

struct QueuesState {
    queues: Vec<SimulatedQueue>,
    completed: Vec<Vec<Completed>>,
    /// Requests in entries: whether they are background requests.
    served: HashMap<u64, bool>,
    active: u64,
    is_gone: bool,
}

/// Takes replies: the rest of the simulated kernel.
pub(crate) type TakeReply = Box<dyn Fn(&[u8]) + Send + Sync>;

/// See the module's header.
pub(crate) struct SimulatedQueues {
    shape: RingShape,
    state: Mutex<QueuesState>,
    /// Each rings when a command of the worker was completed.
    bells: Vec<OwnedFd>,
    take_reply: TakeReply,
}

impl SimulatedQueues {
    pub(crate) fn new(shape: RingShape, take_reply: TakeReply) -> SimulatedQueues {
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let bells = shape.duties.iter().map(|_| eventfd(0, flags).unwrap());
        let state = QueuesState {
            queues: (0..shape.queues())
                .map(|_| SimulatedQueue::default())
                .collect(),
            completed: shape.duties.iter().map(|_| Vec::new()).collect(),
            served: HashMap::new(),
            active: 0,
            is_gone: false,
        };
        SimulatedQueues {
            bells: bells.collect(),
            state: Mutex::new(state),
            shape,
            take_reply,
        }
    }

    pub(crate) fn queues(&self) -> usize {
        self.shape.queues()
    }

    /// A caller on processor `queue` sends a request.
    pub(crate) fn send(&self, queue: usize, request: QueuedRequest) {
        let state = &mut *self.state.lock();
        if state.is_gone {
            return;
        }
        let is_background = request.is_background;
        let of = &mut state.queues[queue];
        if is_background {
            of.held.push_back(request);
            self.let_go(&mut state.active, of);
        } else {
            of.waiting.push_back(request);
        }
        if of.free.is_empty() {
            return;
        }
        // One that is not held back goes before what waits beside free entries.
        let next = match is_background {
            true => of.waiting.pop_front(),
            false => of.waiting.pop_back(),
        };
        if let Some(request) = next
            && let Some(free) = of.free.pop()
        {
            self.dispatch(state, free, &request);
        }
    }

    /// Lets background requests of a queue go, as many as may be in work.
    fn let_go(&self, active: &mut u64, queue: &mut SimulatedQueue) {
        while *active < self.shape.background || queue.active == 0 {
            let Some(request) = queue.held.pop_front() else {
                return;
            };
            queue.waiting.push_back(request);
            queue.active += 1;
            *active += 1;
        }
    }

    fn dispatch(&self, state: &mut QueuesState, free: FreeEntry, request: &QueuedRequest) {
        let FreeEntry {
            worker,
            number,
            mut entry,
        } = free;
        let unique = request.header.unique;
        let in_out = RingInOut {
            commit_id: unique,
            payload_len: u32::try_from(request.payload.len()).unwrap(),
            ..RingInOut::default()
        };
        let header = request.header.as_bytes();
        entry.fill(header, &request.operation, &request.payload, &in_out);
        state.served.insert(unique, request.is_background);
        self.complete(state, worker, (number, entry, Ok(())));
    }

    fn complete(&self, state: &mut QueuesState, worker: usize, what: Completed) {
        state.completed[worker].push(what);
        rustix::io::write(&self.bells[worker], &1_u64.to_ne_bytes()).unwrap();
    }

    /// A worker gives an entry to its queue.
    fn fetch(&self, queue: u16, free: FreeEntry) {
        let state = &mut *self.state.lock();
        self.fetch_locked(state, queue, free);
    }

    fn fetch_locked(&self, state: &mut QueuesState, queue: u16, free: FreeEntry) {
        if state.is_gone {
            let what = (free.number, free.entry, Err(Errno::NOTCONN));
            return self.complete(state, free.worker, what);
        }
        let of = &mut state.queues[usize::from(queue)];
        match of.waiting.pop_front() {
            Some(request) => self.dispatch(state, free, &request),
            None => of.free.push(free),
        }
    }

    /// A worker gives an entry with a reply to its queue.
    fn commit(&self, queue: u16, mut free: FreeEntry) {
        let (unique, reply) = (free.entry.commit_id(), free.entry.answered());
        let (header, _) = split(&reply).unwrap();
        assert_eq!(header.unique, unique, "the reply of another request");
        (self.take_reply)(&reply);
        let state = &mut *self.state.lock();
        // Queues that have ended count none.
        if state.served.remove(&unique) == Some(true) && !state.is_gone {
            let of = &mut state.queues[usize::from(queue)];
            of.active -= 1;
            state.active -= 1;
            self.let_go(&mut state.active, of);
        }
        self.fetch_locked(state, queue, free);
    }

    /// Returns whether request `unique` is in an entry.
    pub(crate) fn is_sent(&self, unique: u64) -> bool {
        self.state.lock().served.contains_key(&unique)
    }

    /// Lets go of all entries.
    pub(crate) fn end(&self) {
        let state = &mut *self.state.lock();
        state.is_gone = true;
        for at in 0..state.queues.len() {
            let queue = std::mem::take(&mut state.queues[at]);
            for free in queue.free {
                let what = (free.number, free.entry, Err(Errno::NOTCONN));
                self.complete(state, free.worker, what);
            }
        }
    }

    fn take_completed(&self, worker: usize) -> Vec<Completed> {
        silence(&self.bells[worker]);
        std::mem::take(&mut self.state.lock().completed[worker])
    }

    /// Starts a worker for each duty.
    pub(crate) fn start<'scope, S: Serve>(
        self: &Arc<Self>,
        scope: &'scope Scope<'scope, '_>,
        place: &RingHost<'scope, S>,
        rng: &mut Rng,
    ) -> io::Result<RingThreads<'scope>> {
        let &RingHost {
            server,
            device,
            in_flight,
            first_slot,
        } = place;
        let entries = self.shape.duties.iter().flatten().count() as u64;
        let mut traffic = Traffic::new(self.shape.duties.len(), self.queues())?;
        traffic.set_bound(self.shape.background, entries);
        let traffic = Arc::new(traffic);
        device.use_rings(Arc::clone(&traffic));
        let party = Party {
            server,
            device,
            traffic,
            in_flight,
            first_slot,
        };
        let mut workers = Vec::new();
        for (number, queues) in self.shape.duties.iter().enumerate() {
            let entry = || Entry::new(PAYLOAD_LEN).map(Some);
            let ring = SimulatedRing {
                kernel: Arc::clone(self),
                device,
                worker: number,
                queues: queues.clone(),
                entries: queues.iter().map(|_| entry()).collect::<io::Result<_>>()?,
                pushed: Vec::new(),
                bell: None,
                hears_close: false,
                rng: rng.fork(),
            };
            workers.push(Worker::new(ring, number, None)?);
        }
        let (mut threads, mut controls) = (Vec::new(), Vec::new());
        spawn_all(scope, workers, &party, (&mut threads, &mut controls))?;
        assert!(take_steps(&controls)?.is_empty(), "no entry is refused");
        Ok(threads)
    }
}

/// The server that the workers serve, and the slots of `in_flight` that they have, from
/// `first_slot` on.
pub(crate) struct RingHost<'a, S> {
    pub(crate) server: &'a S,
    pub(crate) device: &'a Device,
    pub(crate) in_flight: &'a InFlight,
    pub(crate) first_slot: usize,
}

fn silence(bell: &OwnedFd) {
    // Empty if it has not rung, which is as good.
    let _ = rustix::io::read(bell, &mut [0; 8]);
}

/// The ring of one worker.
struct SimulatedRing<'a> {
    kernel: Arc<SimulatedQueues>,
    device: &'a Device,
    worker: usize,
    queues: Vec<u16>,
    /// Those that the kernel does not have.
    entries: Vec<Option<Entry>>,
    /// Commands that the kernel has not taken yet: the entry, and whether it has a reply.
    pushed: Vec<(usize, bool)>,
    bell: Option<OwnedFd>,
    hears_close: bool,
    rng: Rng,
}

impl SimulatedRing<'_> {
    fn hand_over(&mut self) {
        for (number, has_reply) in std::mem::take(&mut self.pushed) {
            let Some(entry) = self.entries[number].take() else {
                panic!("entry {number} is the kernel's");
            };
            let worker = self.worker;
            let free = FreeEntry {
                worker,
                number,
                entry,
            };
            match has_reply {
                true => self.kernel.commit(self.queues[number], free),
                false => self.kernel.fetch(self.queues[number], free),
            }
        }
    }

    /// Takes what has completed.
    fn collect(&mut self, events: &mut Vec<Event>) {
        for (number, mut entry, result) in self.kernel.take_completed(self.worker) {
            let header = InHeader::read_from_prefix(entry.bytes());
            let is_write = header.is_ok_and(|(header, _)| header.opcode == op::WRITE);
            if is_write && result.is_ok() {
                thread::sleep(self.kernel.shape.pace);
            }
            self.entries[number] = Some(entry);
            events.push(Event::Entry(number, result));
        }
        if self.bell.as_ref().is_some_and(is_readable) {
            self.bell = None;
            let at = self.rng.index(events.len() + 1);
            events.insert(at, Event::Bell);
        }
        if self.hears_close && is_readable(&self.device.bell()) {
            self.hears_close = false;
            events.push(Event::Closed);
        }
    }
}

fn is_readable(fd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).is_ok_and(|ready| ready > 0)
}

impl EntryRing for SimulatedRing<'_> {
    fn queues(&self) -> &[u16] {
        &self.queues
    }

    fn enable(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn entry(&mut self, number: usize) -> Option<&mut Entry> {
        self.entries.get_mut(number)?.as_mut()
    }

    fn commit(&mut self, number: usize) {
        self.pushed.push((number, true));
    }

    fn hear_bell(&mut self, bell: BorrowedFd<'_>) {
        self.bell = Some(bell.try_clone_to_owned().unwrap());
    }

    fn hear_close(&mut self) {
        self.hears_close = true;
    }

    fn submit(&mut self) {
        self.hand_over();
    }

    fn register_all(&mut self, _: &mut Vec<Event>) -> io::Result<()> {
        self.pushed
            .extend((0..self.queues.len()).map(|n| (n, false)));
        self.hand_over();
        Ok(())
    }

    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        loop {
            self.hand_over();
            self.collect(events);
            if !events.is_empty() {
                return Ok(());
            }
            let ring = self.kernel.bells[self.worker].as_fd();
            let mut fds = vec![PollFd::from_borrowed_fd(ring, PollFlags::IN)];
            fds.extend(
                self.bell
                    .as_ref()
                    .map(|bell| PollFd::new(bell, PollFlags::IN)),
            );
            if self.hears_close {
                let close = self.device.bell();
                fds.push(PollFd::from_borrowed_fd(close, PollFlags::IN));
            }
            poll(&mut fds, None)?;
        }
    }

    fn look(&mut self, events: &mut Vec<Event>) -> io::Result<bool> {
        // Now and then the kernel lacks memory.
        if self.rng.chance(5) {
            return Ok(false);
        }
        self.hand_over();
        self.collect(events);
        Ok(true)
    }
}
