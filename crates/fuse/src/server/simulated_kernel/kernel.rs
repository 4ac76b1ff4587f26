//! The kernel's side of a mount: requests and their replies, signals, notifications, and the cache
//! of dirty pages.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_testkit::Rng;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::net::{Shutdown, shutdown};
use zerocopy::{FromBytes, IntoBytes};

use super::pages::{Inode, PAGE, Page};
use crate::abi::{
    ForgetIn, InHeader, InterruptIn, InvalInodeOut, NOTIFY_INVAL_INODE, NOTIFY_PRUNE, OUT_HEADER,
    OutHeader, WRITE_CACHE, WriteIn, op,
};

/// Longer than any answer takes on a busy machine: a request that waits longer hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Number of the tasks that write back.
const FLUSHER: u32 = 9;

/// A reply: its error, or the bytes behind its header.
pub(super) type Reply = Result<Vec<u8>, i32>;

#[derive(Debug)]
struct Asked {
    opcode: u32,
    reply: Option<Reply>,
}

#[derive(Default)]
struct KernelState {
    last: u64,
    asked: HashMap<u64, Asked>,
    inodes: HashMap<u64, Inode>,
    /// Replies that no kernel would have taken.
    wrong: Vec<String>,
    is_ending: bool,
    is_gone: bool,
    /// Pages that were promised space and found none.
    broken_promises: u64,
}

/// See the module's header.
#[derive(Clone)]
pub(super) struct Kernel(Arc<Shared>);

struct Shared {
    socket: OwnedFd,
    dirty_limit: u64,
    state: Mutex<KernelState>,
    changed: Condvar,
}

impl Kernel {
    pub(super) fn new(socket: OwnedFd, dirty_limit: u64) -> Kernel {
        Kernel(Arc::new(Shared {
            socket,
            dirty_limit,
            state: Mutex::default(),
            changed: Condvar::new(),
        }))
    }

    fn send(&self, opcode: u32, (nodeid, task): (u64, u32), unique: u64, body: &[u8]) {
        let header = InHeader {
            len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
            opcode,
            unique,
            nodeid,
            pid: task,
            ..InHeader::default()
        };
        let bytes = [header.as_bytes(), body].concat();
        // Once the mount is gone there is no reader.
        let _ = rustix::io::write(&self.0.socket, &bytes);
    }

    /// A request without a reply.
    pub(super) fn tell(&self, opcode: u32, nodeid: u64, body: &[u8]) {
        let unique = self.next_unique();
        self.send(opcode, (nodeid, 0), unique, body);
    }

    fn next_unique(&self) -> u64 {
        let mut state = self.0.state.lock();
        state.last += 2;
        state.last
    }

    /// Sends a request of `task` and waits for its reply. With `patience`, the task gets a signal
    /// after so long, and waits on.
    pub(super) fn call(
        &self,
        opcode: u32,
        (nodeid, task): (u64, u32),
        body: &[u8],
        patience: Option<Duration>,
    ) -> Reply {
        let unique = self.next_unique();
        let asked = Asked {
            opcode,
            reply: None,
        };
        self.0.state.lock().asked.insert(unique, asked);
        self.send(opcode, (nodeid, task), unique, body);
        let begun = Instant::now();
        let mut patience = patience;
        let mut state = self.0.state.lock();
        loop {
            if state
                .asked
                .get(&unique)
                .is_some_and(|one| one.reply.is_some())
            {
                let asked = state.asked.remove(&unique);
                return asked.and_then(|one| one.reply).unwrap();
            }
            assert!(!state.is_gone, "the mount ended before request {unique}");
            assert!(
                begun.elapsed() < LIMIT,
                "no reply to {opcode}: {:?}",
                state.asked
            );
            let left = patience.map_or(LIMIT, |patience| patience.saturating_sub(begun.elapsed()));
            let timed_out = self.0.changed.wait_for(&mut state, left).timed_out();
            if timed_out && patience.take().is_some() {
                let interrupt = InterruptIn { unique };
                MutexGuard::unlocked(&mut state, || {
                    self.send(op::INTERRUPT, (0, task), unique | 1, interrupt.as_bytes());
                });
            }
        }
    }

    /// Takes replies and notifications until the mount is gone.
    pub(super) fn hear(&self) {
        let mut message = vec![0; 1 << 21];
        loop {
            let len = match rustix::io::read(&self.0.socket, &mut message) {
                Ok(0) | Err(_) => break,
                Ok(len) => len,
            };
            let (header, _) = OutHeader::read_from_prefix(&message[..len]).unwrap();
            let body = &message[OUT_HEADER..len];
            match (header.unique, header.error) {
                (0, NOTIFY_INVAL_INODE) => self.invalidate(body),
                (0, NOTIFY_PRUNE) => {}
                (unique, error) => self.take_reply(unique, error, body),
            }
        }
        self.0.state.lock().is_gone = true;
        self.0.changed.notify_all();
    }

    fn take_reply(&self, unique: u64, error: i32, body: &[u8]) {
        let mut state = self.0.state.lock();
        let reply = match error {
            0 => Ok(body.to_vec()),
            error => Err(-error),
        };
        match state.asked.get_mut(&unique) {
            Some(asked) if asked.reply.is_none() => asked.reply = Some(reply),
            asked => {
                let opcode = asked.map(|one| one.opcode);
                let what = format!("no reply was due to {unique} ({opcode:?}): {reply:?}");
                state.wrong.push(what);
            }
        }
        drop(state);
        self.0.changed.notify_all();
    }

    fn invalidate(&self, body: &[u8]) {
        let (told, _) = InvalInodeOut::read_from_prefix(body).unwrap();
        if let Some(inode) = self.0.state.lock().inodes.get_mut(&told.nodeid) {
            inode.is_valid = false;
            inode.told += 1;
        }
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
    /// is written back, and while as much is dirty as may be.
    pub(super) fn store(&self, id: u64, page: u64, content: Page) {
        let begun = Instant::now();
        let mut state = self.0.state.lock();
        loop {
            let dirty: usize = state
                .inodes
                .values()
                .map(|one| one.dirty.len() + one.under_way.len())
                .sum();
            let is_under_way = state.inodes[&id].under_way.contains(&page);
            if !is_under_way && (dirty as u64) * PAGE < self.0.dirty_limit {
                break;
            }
            assert!(begun.elapsed() < LIMIT, "no page is written back");
            if is_under_way {
                self.0
                    .changed
                    .wait_for(&mut state, Duration::from_millis(1));
            } else {
                MutexGuard::unlocked(&mut state, || self.write_back_one(|_| true));
            }
        }
        if let Some(inode) = state.inodes.get_mut(&id) {
            inode.dirty.insert(page, content);
            inode.size = inode.size.max((page + 1) * PAGE);
            inode.lost.remove(&page);
        }
    }

    /// Writes back one page of a file that is `chosen`, if one is dirty.
    fn write_back_one(&self, chosen: impl Fn(u64) -> bool) -> bool {
        let mut state = self.0.state.lock();
        let found = state
            .inodes
            .iter_mut()
            .filter(|(id, _)| chosen(**id))
            .find_map(|(&id, inode)| {
                let page = *inode
                    .dirty
                    .keys()
                    .find(|page| !inode.under_way.contains(page))?;
                let (content, len) = inode.begin(page)?;
                Some((id, inode.handle, page, content, len))
            });
        drop(state);
        let Some((id, fh, page, content, len)) = found else {
            return false;
        };
        let reply = match len {
            0 => Ok(Vec::new()),
            len => {
                let write = WriteIn {
                    fh,
                    offset: page * PAGE,
                    size: u32::try_from(len).unwrap(),
                    write_flags: WRITE_CACHE,
                    ..WriteIn::default()
                };
                let data = vec![content.byte; usize::try_from(len).unwrap()];
                let body = [write.as_bytes(), &data].concat();
                self.call(op::WRITE, (id, FLUSHER), &body, None)
            }
        };
        let is_lost = reply.is_err();
        self.inode(id, |inode| {
            inode.under_way.remove(&page);
            if let Err(error) = reply {
                inode.error = Some(error);
                inode.failures += 1;
                inode.lost.insert(page);
            }
        });
        let is_broken = is_lost && content.is_promised;
        self.0.state.lock().broken_promises += u64::from(is_broken);
        true
    }

    /// Begins to write back all that is dirty now, as a drain of the daemon wants it.
    pub(super) fn start_write_back(&self) -> io::Result<()> {
        while self.write_back_one(|_| true) {}
        Ok(())
    }

    /// Writes back all that is dirty of a file, and waits for what is under way.
    pub(super) fn write_back(&self, id: u64) {
        let begun = Instant::now();
        loop {
            while self.write_back_one(|one| one == id) {}
            let mut state = self.0.state.lock();
            let inode = &state.inodes[&id];
            if inode.dirty.is_empty() && inode.under_way.is_empty() {
                return;
            }
            assert!(begun.elapsed() < LIMIT, "pages are written back for ever");
            self.0
                .changed
                .wait_for(&mut state, Duration::from_millis(1));
        }
    }

    /// Writes back now and then, until there is nothing to be written back any more.
    pub(super) fn flush_behind(&self, mut rng: Rng) {
        while !self.0.state.lock().is_ending {
            std::thread::sleep(Duration::from_micros(rng.below(3000)));
            for _ in 0..rng.below(8) {
                self.write_back_one(|_| true);
            }
        }
    }

    pub(super) fn end_flushing(&self) {
        self.0.state.lock().is_ending = true;
    }

    /// The kernel drops an inode.
    pub(super) fn drop_inode(&self, id: u64) {
        let inode = self.0.state.lock().inodes.remove(&id);
        if let Some(inode) = inode {
            let forget = ForgetIn {
                nlookup: inode.lookups,
            };
            self.tell(op::FORGET, id, forget.as_bytes());
        }
    }

    /// Each request was answered, once.
    pub(super) fn is_idle(&self) -> Result<(), String> {
        let state = self.0.state.lock();
        match state.asked.is_empty() && state.wrong.is_empty() {
            true => Ok(()),
            false => Err(format!("{:?} {:?}", state.asked, state.wrong)),
        }
    }

    /// The mount goes.
    pub(super) fn unmount(&self) {
        let _ = shutdown(&self.0.socket, Shutdown::Both);
    }

    /// Pages that were promised space and found none.
    pub(super) fn broken_promises(&self) -> u64 {
        self.0.state.lock().broken_promises
    }
}
