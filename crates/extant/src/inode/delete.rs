//! Deletion of inodes without a name, and the thread that does it.
//!
//! The last reference to such an inode may go anywhere, under a lock or a handle; so it only puts the inode into the
//! reaper's queue. The queue is worked off by operations at a good moment ([`Fs::reap`]) and by a thread, which every
//! few seconds also stores deferred times. A deletion starts handles of its own: nothing may be held.
//!
//! A deletion that fails (damage, a stopped journal) leaves the inode on the list of orphans, for e2fsck or the next mount;
//! until then its number stays taken.
//!
//! Locks: the queue's, a leaf. Concurrency: every inode is taken from the queue once; different ones are deleted in parallel.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use extant_disk::inode::BLOCK_AREA;
use extant_units::{Lblk, Pblk};
use parking_lot::{Condvar, Mutex};

use super::{Inode, InodeFlags, symlink, times};
use crate::alloc;
use crate::credits;
use crate::error::Result;
use crate::file;
use crate::fs::Fs;
use crate::map;
use crate::orphan;
use crate::types::FileKind;
use crate::xattr;

/// Between two rounds of the thread, if nothing wakes it.
const ROUND: Duration = Duration::from_secs(5);
/// Rounds after which times are stored that may wait for long: half a day.
const LAZY_ROUNDS: u64 = 12 * 60 * 60 / 5;
/// Operations that free names help once this many inodes wait.
const BEHIND: usize = 512;

/// Inodes to delete, and who does it.
#[derive(Default)]
pub(super) struct Reaper {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Something was queued, or the thread shall stop.
    work: Condvar,
    /// A deletion ended.
    idle: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Arc<Inode>>,
    /// Deletions under way.
    busy: usize,
    stop: bool,
}

impl Reaper {
    /// Queues an inode whose last reference went.
    pub(super) fn push(&self, inode: Arc<Inode>) {
        let mut state = self.shared.state.lock();
        state.queue.push_back(inode);
        if state.queue.len() == 1 {
            self.shared.work.notify_one();
        }
    }

    fn pop(&self) -> Option<Arc<Inode>> {
        let mut state = self.shared.state.lock();
        let inode = state.queue.pop_front()?;
        state.busy += 1;
        Some(inode)
    }

    fn done(&self) {
        let mut state = self.shared.state.lock();
        state.busy -= 1;
        if state.busy == 0 && state.queue.is_empty() {
            self.shared.idle.notify_all();
        }
    }
}

impl Fs {
    /// Deletes the inodes that wait for it. Hold nothing.
    pub(crate) fn reap(self: &Arc<Self>) {
        while let Some(inode) = self.inodes.reaper.pop() {
            delete_or_give_up(self, &inode);
            self.inodes.reaper.done();
        }
    }

    /// The same, if the reaper has fallen behind: for operations that make more work for it. Hold nothing.
    pub(crate) fn reap_if_behind(self: &Arc<Self>) {
        if self.inodes.reaper.shared.state.lock().queue.len() > BEHIND {
            self.reap();
        }
    }

    /// Deletes what waits and waits for what others are deleting: before "no space" is final, before sync. Hold nothing.
    pub(crate) fn reap_all(self: &Arc<Self>) {
        self.reap();
        let shared = &self.inodes.reaper.shared;
        let mut state = shared.state.lock();
        while state.busy > 0 || !state.queue.is_empty() {
            shared.idle.wait(&mut state);
        }
    }

    /// Starts the reaper's thread: mount's last step for a writable file system.
    ///
    /// # Errors
    /// The host has no thread left.
    pub(crate) fn start_reaper(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        let shared = Arc::clone(&self.inodes.reaper.shared);
        let thread = thread::Builder::new()
            .name("extant-reaper".into())
            .spawn(move || run(&weak, &shared))?;
        *self.inodes.reaper.thread.lock() = Some(thread);
        Ok(())
    }

    /// Stops the thread and finishes its work: nothing may be queued later. Unmount calls it after the data is
    /// written and before the last commit. Inodes without a name are deleted although someone may hold a reference.
    ///
    /// # Errors
    /// Deferred times could not be stored.
    pub(crate) fn retire_inodes(self: &Arc<Self>) -> Result<()> {
        let shared = &self.inodes.reaper.shared;
        shared.state.lock().stop = true;
        shared.work.notify_all();
        let thread = self.inodes.reaper.thread.lock().take();
        // The thread itself may be the one that drops the last reference to the file system.
        if let Some(thread) = thread
            && thread.thread().id() != thread::current().id()
            && thread.join().is_err()
        {
            tracing::error!("the reaper's thread panicked");
        }
        if self.check_writable().is_ok() {
            for inode in self.inodes.all() {
                if inode.is_unlinked() && !inode.life.dead.swap(true, Ordering::AcqRel) {
                    self.inodes.reaper.push(inode);
                }
            }
            self.reap_all();
            times::flush_all_times(self, true)?;
        }
        Ok(())
    }

    /// Lets go of all inodes in memory: unmount's last step.
    pub(crate) fn clear_inodes(&self) {
        self.inodes.late.lock().clear();
        self.inodes.clear();
    }
}

fn run(fs: &Weak<Fs>, shared: &Shared) {
    for round in 1_u64.. {
        {
            let mut state = shared.state.lock();
            if !state.stop && state.queue.is_empty() {
                shared.work.wait_for(&mut state, ROUND);
            }
            if state.stop {
                return;
            }
        }
        let Some(fs) = fs.upgrade() else { return };
        fs.reap();
        if fs.check_writable().is_ok()
            && let Err(error) = times::flush_all_times(&fs, round % LAZY_ROUNDS == 0)
        {
            tracing::warn!(%error, "times could not be stored");
        }
        if let Err(error) = fs.fault.record_later(&fs) {
            tracing::warn!(%error, "a fault could not be recorded in the superblock");
        }
    }
}

fn delete_or_give_up(fs: &Arc<Fs>, inode: &Arc<Inode>) {
    let result = fs.check_writable().and_then(|()| delete(fs, inode));
    match result {
        Ok(()) => fs.stats.inode_deletions.bump(),
        Err(error) => {
            tracing::warn!(ino = inode.ino.get(), %error, "inode could not be deleted");
            fs.fault.report(fs, &error);
            fs.inodes.forget(inode);
        }
    }
}

/// Frees everything that `inode` has, and its number.
fn delete(fs: &Arc<Fs>, inode: &Arc<Inode>) -> Result<()> {
    file::evict(fs, inode);
    let has_map = symlink::has_blocks(fs, inode);
    let last = credits::inode_delete(fs);
    let mut h =
        fs.start_with_revokes(credits::remove(fs).saturating_add(last), credits::REVOKES)?;
    if has_map && inode.core.read().sectors != 0 {
        inode.update(fs, &mut h, |core| core.disk_size = 0)?;
        map::remove(fs, &mut h, inode, Lblk::ZERO, 1 << 32)?;
        if !h.ensure(last)? {
            h.restart(last)?;
        }
    }
    xattr::release(fs, &mut h, inode)?;
    orphan::remove(fs, &mut h, inode)?;
    inode.update(fs, &mut h, |core| {
        core.links = 0;
        core.disk_size = 0;
        core.sectors = 0;
        core.file_acl = Pblk::ZERO;
        core.xattrs.fill(0);
        if has_map {
            // An extent tree keeps its (empty) root: e2fsck takes a block of inodes without one for garbage.
            core.i_block = match core.flags.contains(InodeFlags::EXTENTS) {
                true => map::empty_root(),
                false => [0; BLOCK_AREA],
            };
        }
        core.dtime = deletion_time();
    })?;
    // Off the cache before the number is free: whoever gets the number next makes a new inode of it.
    fs.inodes.forget(inode);
    alloc::free_inode(fs, &mut h, inode.ino, inode.kind == FileKind::Directory)
}

/// The clock in 32 bits; never zero, which would mean "not deleted".
fn deletion_time() -> u32 {
    u32::try_from(times::now().secs.clamp(1, i64::from(u32::MAX))).unwrap_or(1)
}
