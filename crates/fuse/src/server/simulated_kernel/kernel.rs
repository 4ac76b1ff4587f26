//! The kernel's side of a mount: requests and their replies, signals, notifications, and the cache
//! of dirty pages.
//!
//! As with Linux, a reply or a notification has been acted on when the write that brings it
//! returns. The transports are in [`super::channel`].
//!
//! # Locks
//! `state` is one lock for all; the queues of rings have another, below it.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::panic::resume_unwind;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use extant_testkit::Rng;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::event::{EventfdFlags, eventfd};
use zerocopy::{FromBytes, IntoBytes};

use super::device_queue::{DeviceQueue, parts};
use super::pages::{Inode, PAGE, Page, Run};
use crate::abi::{
    ForgetOne, InHeader, InvalInodeOut, NOTIFY_INVAL_INODE, NOTIFY_PRUNE, OUT_HEADER, OutHeader,
    WRITE_CACHE, WriteIn, WriteOut, op,
};
use crate::uring::simulated::{QueuedRequest, SimulatedQueues};

/// Number of the tasks that write back.
const FLUSHER: u32 = 9;
/// Time after which a task that waits looks again.
const LOOK: Duration = Duration::from_millis(50);

/// A reply: its error, or the bytes behind its header.
pub(super) type Reply = Result<Vec<u8>, i32>;

/// The payload of a task's panic when the mount was ended under it.
pub(super) struct Aborted;

/// A request that is not ended.
#[derive(Debug)]
pub(super) struct Asked {
    opcode: u32,
    task: u32,
    pub(super) is_background: bool,
    /// A worker has it.
    pub(super) is_sent: bool,
    /// Its task got a signal before a worker had it.
    pub(super) is_signalled: bool,
    /// The pages that it writes back; a task waits for any other.
    run: Option<Run>,
    reply: Option<Reply>,
}

impl Asked {
    pub(super) fn task(&self) -> u32 {
        self.task
    }
}

/// The measures of a kernel.
#[derive(Clone, Copy, Debug)]
pub(super) struct KernelLimits {
    /// Bytes that it holds dirty at most.
    pub(super) dirty: u64,
    /// Background requests that `/dev/fuse` has in work before others are held back.
    pub(super) background: usize,
    /// The time that a WRITE takes before it is served.
    pub(super) pace: Duration,
    /// The time after which a task that waits hangs.
    pub(super) patience: Duration,
}

pub(super) struct KernelState {
    pub(super) rng: Rng,
    last: u64,
    pub(super) asked: HashMap<u64, Asked>,
    pub(super) device: DeviceQueue,
    inodes: HashMap<u64, Inode>,
    /// Replies that no kernel would have taken.
    wrong: Vec<String>,
    is_ending: bool,
    pub(super) is_gone: bool,
    /// Pages that were promised space and found none.
    broken_promises: u64,
    /// Times that pages were lost.
    losses: u64,
}

/// See the module's header.
#[derive(Clone)]
pub(super) struct Kernel(pub(super) Arc<Shared>);

pub(super) struct Shared {
    /// Readable while there is something to receive by the device.
    pub(super) bell: OwnedFd,
    pub(super) limits: KernelLimits,
    pub(super) queues: OnceLock<Arc<SimulatedQueues>>,
    pub(super) state: Mutex<KernelState>,
    pub(super) changed: Condvar,
}

/// An operation of a task on a node.
struct Call {
    opcode: u32,
    nodeid: u64,
    task: u32,
}

impl Kernel {
    pub(super) fn new(limits: KernelLimits, rng: Rng) -> Kernel {
        let state = KernelState {
            rng,
            last: 0,
            asked: HashMap::new(),
            device: DeviceQueue::default(),
            inodes: HashMap::new(),
            wrong: Vec::new(),
            is_ending: false,
            is_gone: false,
            broken_promises: 0,
            losses: 0,
        };
        Kernel(Arc::new(Shared {
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).unwrap(),
            limits,
            queues: OnceLock::new(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }))
    }

    /// Sends a request of `task`, which waits for it, or writes a run back.
    fn push(&self, state: &mut KernelState, call: Call, (body, run): (&[u8], Option<Run>)) -> u64 {
        let Call {
            opcode,
            nodeid,
            task,
        } = call;
        state.last += 2;
        let unique = state.last;
        let header = InHeader {
            len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
            opcode,
            unique,
            nodeid,
            pid: task,
            ..InHeader::default()
        };
        let is_background = run.is_some() || opcode == op::RELEASE;
        let asked = Asked {
            opcode,
            task,
            is_background,
            is_sent: false,
            is_signalled: false,
            run,
            reply: None,
        };
        state.asked.insert(unique, asked);
        match self.0.queues.get() {
            None => {
                let bytes = [header.as_bytes(), body].concat();
                state.device.push(unique, bytes, is_background);
                self.let_go(state);
            }
            Some(queues) => {
                let (operation, payload) = parts(opcode, body);
                let request = QueuedRequest {
                    header,
                    operation,
                    payload,
                    is_background,
                };
                queues.send(state.rng.index(queues.queues()), request);
            }
        }
        unique
    }

    /// Sends a request of `task`, to be waited for.
    pub(super) fn begin(&self, opcode: u32, of: (u64, u32), body: &[u8]) -> u64 {
        let state = &mut *self.0.state.lock();
        let (nodeid, task) = of;
        let call = Call {
            opcode,
            nodeid,
            task,
        };
        self.push(state, call, (body, None))
    }

    /// Sends a request of `task` and waits for its reply. With `patience`, the task gets a signal
    /// after so long, and waits on.
    pub(super) fn call(
        &self,
        opcode: u32,
        of: (u64, u32),
        body: &[u8],
        patience: Option<Duration>,
    ) -> Reply {
        let unique = self.begin(opcode, of, body);
        self.wait(unique, patience)
    }

    /// Waits for the reply to a request, with a signal after `patience`.
    pub(super) fn wait(&self, unique: u64, mut patience: Option<Duration>) -> Reply {
        let begun = Instant::now();
        let mut state = self.0.state.lock();
        loop {
            if state.asked[&unique].reply.is_some() {
                let asked = state.asked.remove(&unique);
                return asked.and_then(|one| one.reply).unwrap();
            }
            let asked = &state.asked[&unique];
            let what = (asked.opcode, unique, asked.is_sent, asked.is_signalled);
            self.check_waiter(&state, begun, &what);
            let left = patience.map_or(LOOK, |patience| patience.saturating_sub(begun.elapsed()));
            let timed_out = self.0.changed.wait_for(&mut state, left).timed_out();
            if timed_out && patience.take().is_some() {
                self.signal_locked(&mut state, unique);
            }
        }
    }

    /// A task that waits since `begun` goes on waiting, for `what`.
    fn check_waiter(&self, state: &KernelState, begun: Instant, what: &impl std::fmt::Debug) {
        if state.is_gone {
            resume_unwind(Box::new(Aborted));
        }
        let is_patient = begun.elapsed() < self.0.limits.patience;
        assert!(is_patient, "waits for ever: {what:?}");
    }

    /// The task of a request gets a signal.
    pub(super) fn signal(&self, unique: u64) {
        self.signal_locked(&mut self.0.state.lock(), unique);
    }

    /// By the device the INTERRUPT of a request that nothing has read follows when it is. Over
    /// rings it does not come.
    fn signal_locked(&self, state: &mut KernelState, unique: u64) {
        let Some(asked) = state.asked.get_mut(&unique) else {
            return;
        };
        if asked.reply.is_some() {
            return;
        }
        let is_sent = match self.0.queues.get() {
            Some(queues) => queues.is_sent(unique),
            None => asked.is_sent,
        };
        asked.is_signalled = true;
        if is_sent {
            state.device.interrupt(unique, asked.task);
            self.ring(state);
        }
    }

    /// Acts on what the server writes. Returns whether there was something to act on.
    pub(super) fn take(&self, message: &[u8]) -> bool {
        let (header, _) = OutHeader::read_from_prefix(message).unwrap();
        assert_eq!(header.len as usize, message.len(), "a message's length");
        let body = &message[OUT_HEADER..];
        let state = &mut *self.0.state.lock();
        let is_due = match (header.unique, header.error) {
            (0, NOTIFY_INVAL_INODE) => {
                let (told, _) = InvalInodeOut::read_from_prefix(body).unwrap();
                let inode = state.inodes.get_mut(&told.nodeid);
                inode.map(Inode::doubt).is_some()
            }
            // All files are in use until they are dropped.
            (0, NOTIFY_PRUNE) => true,
            (unique, error) => self.end(state, unique, error, body),
        };
        self.0.changed.notify_all();
        is_due
    }

    /// Ends a request. Returns whether it waited for a reply.
    fn end(&self, state: &mut KernelState, unique: u64, error: i32, body: &[u8]) -> bool {
        let reply = match error {
            0 => Ok(body.to_vec()),
            error => Err(-error),
        };
        let by_ring = self.0.queues.get().is_some();
        let is_due = |one: &Asked| one.reply.is_none() && (by_ring || one.is_sent);
        let Some(asked) = state.asked.get_mut(&unique).filter(|one| is_due(one)) else {
            let asked = state.asked.get(&unique);
            let what = format!("no reply was due to {unique} ({asked:?}): {reply:?}");
            state.wrong.push(what);
            return false;
        };
        let is_background = asked.is_background;
        match asked.run.take() {
            Some(run) => {
                state.asked.remove(&unique);
                end_run(state, &run, &reply);
            }
            None => asked.reply = Some(reply),
        }
        if is_background && !by_ring {
            state.device.ended();
            self.let_go(state);
        }
        true
    }

    /// Calls `change` with an inode that is open.
    pub(super) fn inode<R>(&self, id: u64, change: impl FnOnce(&mut Inode) -> R) -> R {
        let mut state = self.0.state.lock();
        let result = change(state.inodes.entry(id).or_default());
        drop(state);
        self.0.changed.notify_all();
        result
    }

    /// A task stores a page in the cache, which has to be stable: it waits while the page
    /// is written back, and while as much is dirty as may be. It has its space if `promise` says so
    /// at the end.
    pub(super) fn store(&self, id: u64, page: u64, byte: u8, promise: impl Fn() -> bool) {
        let begun = Instant::now();
        let mut state = self.0.state.lock();
        loop {
            let held = |one: &Inode| one.dirty.len() + one.under_way.len();
            let held: usize = state.inodes.values().map(held).sum();
            let is_under_way = state.inodes[&id].under_way.contains(&page);
            if !is_under_way && (held as u64) * PAGE < self.0.limits.dirty {
                break;
            }
            self.check_waiter(&state, begun, &(id, page));
            if !is_under_way {
                self.start_one(&mut state, |_| true);
            }
            self.0.changed.wait_for(&mut state, LOOK);
        }
        let is_promised = promise();
        if let Some(inode) = state.inodes.get_mut(&id) {
            inode.dirty.insert(page, Page { byte, is_promised });
            inode.size = inode.size.max((page + 1) * PAGE);
            inode.lost.remove(&page);
        }
    }

    /// Begins to write back some pages of a file that is `chosen`, if one is dirty.
    fn start_one(&self, state: &mut KernelState, chosen: impl Fn(u64) -> bool) -> bool {
        let is_due = |(id, inode): &(&u64, &Inode)| chosen(**id) && !inode.dirty.is_empty();
        let mut ids: Vec<u64> = state
            .inodes
            .iter()
            .filter(is_due)
            .map(|(&id, _)| id)
            .collect();
        ids.sort_unstable();
        if ids.is_empty() {
            return false;
        }
        let id = ids[state.rng.index(ids.len())];
        self.start(state, id, None)
    }

    /// Begins to write back pages of a file, from page `first` on if that is given and is dirty.
    fn start(&self, state: &mut KernelState, id: u64, first: Option<u64>) -> bool {
        let KernelState { inodes, rng, .. } = state;
        let Some((run, fh)) = inodes.get_mut(&id).and_then(|inode| {
            let run = inode.begin(id, first, rng)?;
            Some((run, inode.handle))
        }) else {
            return false;
        };
        let write = WriteIn {
            fh,
            offset: run.first * PAGE,
            size: u32::try_from(run.pages.len() as u64 * PAGE).unwrap(),
            write_flags: WRITE_CACHE,
            ..WriteIn::default()
        };
        let mut body = write.as_bytes().to_vec();
        for page in &run.pages {
            body.resize(body.len() + usize::try_from(PAGE).unwrap(), page.byte);
        }
        let call = Call {
            opcode: op::WRITE,
            nodeid: id,
            task: FLUSHER,
        };
        self.push(state, call, (&body, Some(run)));
        true
    }

    /// Begins to write back all that is dirty now, as a drain of the daemon wants it, and does not
    /// wait for the replies.
    pub(super) fn start_write_back(&self) -> io::Result<()> {
        let state = &mut *self.0.state.lock();
        let pages = |(&id, inode): (&u64, &Inode)| -> Vec<(u64, u64)> {
            inode.dirty.keys().map(|&page| (id, page)).collect()
        };
        let mut due: Vec<_> = state.inodes.iter().flat_map(pages).collect();
        while !due.is_empty() {
            let (id, page) = due.swap_remove(state.rng.index(due.len()));
            self.start(state, id, Some(page));
        }
        Ok(())
    }

    /// Writes back all that is dirty of a file, and waits for what is under way.
    pub(super) fn write_back(&self, id: u64) {
        let begun = Instant::now();
        let mut state = self.0.state.lock();
        loop {
            while self.start_one(&mut state, |one| one == id) {}
            let inode = &state.inodes[&id];
            if inode.dirty.is_empty() && inode.under_way.is_empty() {
                return;
            }
            self.check_waiter(&state, begun, &("pages", id));
            self.0.changed.wait_for(&mut state, LOOK);
        }
    }

    /// Writes back now and then, until there is nothing to be written back any more.
    pub(super) fn flush_behind(&self, mut rng: Rng) {
        while !self.0.state.lock().is_ending {
            std::thread::sleep(Duration::from_micros(rng.below(3000)));
            let mut state = self.0.state.lock();
            for _ in 0..rng.below(3) {
                self.start_one(&mut state, |_| true);
            }
        }
    }

    pub(super) fn end_flushing(&self) {
        self.0.state.lock().is_ending = true;
    }

    /// The kernel drops an inode, and forgets the lookups that it knows of.
    pub(super) fn drop_inode(&self, id: u64) {
        let mut state = self.0.state.lock();
        if let Some(inode) = state.inodes.remove(&id) {
            let nlookup = inode.lookups;
            state.device.forget(ForgetOne {
                nodeid: id,
                nlookup,
            });
            self.ring(&mut state);
        }
    }

    /// Each request was answered, once, and nothing is left to be received.
    pub(super) fn is_idle(&self) -> Result<(), String> {
        let state = self.0.state.lock();
        let is_idle = state.asked.is_empty() && state.wrong.is_empty() && state.device.is_empty();
        match is_idle {
            true => Ok(()),
            false => Err(format!("{:?} {:?}", state.asked, state.wrong)),
        }
    }

    /// Has the calling task unwind if the mount is gone.
    pub(super) fn check_is_there(&self) {
        if self.0.state.lock().is_gone {
            resume_unwind(Box::new(Aborted));
        }
    }

    /// The mount goes. Tasks that wait unwind.
    pub(super) fn unmount(&self) {
        self.go();
        self.0.changed.notify_all();
    }

    /// Pages that were promised space and found none, and times that some were lost.
    pub(super) fn losses(&self) -> (u64, u64) {
        let state = self.0.state.lock();
        (state.broken_promises, state.losses)
    }
}

/// Pages were written back, or lost.
fn end_run(state: &mut KernelState, run: &Run, reply: &Reply) {
    if let Ok(reply) = reply {
        let (done, _) = WriteOut::read_from_prefix(reply).unwrap();
        if u64::from(done.size) != run.pages.len() as u64 * PAGE {
            state.wrong.push(format!("{done:?} is short of {run:?}"));
        }
    }
    let Some(inode) = state.inodes.get_mut(&run.id) else {
        state.wrong.push(format!("{run:?} of a dropped inode"));
        return;
    };
    for page in run.numbers() {
        inode.under_way.remove(&page);
    }
    if let Err(error) = *reply {
        inode.error = Some(error);
        inode.failures += 1;
        inode.lost.extend(run.numbers());
        let broken = run.pages.iter().filter(|page| page.is_promised);
        state.broken_promises += broken.count() as u64;
        state.losses += 1;
    }
}

impl Kernel {
    /// The state, for the transports.
    pub(super) fn lock(&self) -> MutexGuard<'_, KernelState> {
        self.0.state.lock()
    }
}
