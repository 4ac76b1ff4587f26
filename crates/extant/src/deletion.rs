//! Deletion of inodes without a name that nobody refers to any more.
//!
//! Such inodes wait in a queue (`inode/reaper.rs`), which is worked off by operations at a good moment ([`Fs::reap`]) and by a thread,
//! which every few seconds also stores deferred times. A deletion starts handles of its own: nothing may be held.
//!
//! A deletion that fails (damage, a stopped journal) leaves the inode on the list of orphans, for e2fsck or the next mount;
//! until then its number stays taken.
//!
//! Concurrency: every inode is taken from the queue once; different ones are deleted in parallel.

use std::sync::{Arc, Weak};

use extant_disk::inode::BLOCK_AREA;
use extant_units::{Lblk, Pblk};

use crate::alloc;
use crate::credits;
use crate::error::Result;
use crate::file;
use crate::fs::Fs;
use crate::inode::{self, Inode, InodeFlags, Queue};
use crate::map;
use crate::orphan;
use crate::types::FileKind;
use crate::xattr;

/// Rounds after which times are stored that may wait for long: half a day.
const LAZY_ROUNDS: u64 = 12 * 60 * 60 / 5;

impl Fs {
    /// Deletes the inodes that wait for it. Hold nothing.
    pub(crate) fn reap(self: &Arc<Self>) {
        while let Some((inode, _busy)) = self.inodes.reaper.pop() {
            delete_or_give_up(self, &inode);
        }
    }

    /// The same, if the reaper has fallen behind: for operations that make more work for it. Hold nothing.
    pub(crate) fn reap_if_behind(self: &Arc<Self>) {
        if self.inodes.reaper.is_behind() {
            self.reap();
        }
    }

    /// Deletes what waits and waits for what others are deleting: before "no space" is final, before sync. Hold nothing.
    pub(crate) fn reap_all(self: &Arc<Self>) {
        self.reap();
        self.inodes.reaper.wait_until_idle();
    }

    /// Starts the reaper's thread: mount's last step for a writable file system.
    ///
    /// # Errors
    /// The host has no thread left.
    pub(crate) fn start_reaper(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        // Without flushers nothing is written but on request.
        let rounds = self.tuning.flushers > 0;
        self.inodes
            .reaper
            .start(move |queue| run(&weak, queue, rounds))
    }

    /// Stops the thread and finishes its work: nothing may be queued later. Unmount calls it after the data is
    /// written and before the last commit. Inodes without a name are deleted although someone may hold a reference.
    ///
    /// # Errors
    /// Deferred times could not be stored.
    pub(crate) fn retire_inodes(self: &Arc<Self>) -> Result<()> {
        self.inodes.reaper.stop();
        if self.check_writable().is_ok() {
            for inode in self.inodes.all() {
                if inode.is_unlinked() && inode.begin_deletion() {
                    self.inodes.reaper.push(inode);
                }
            }
            self.reap_all();
            inode::flush_all_times(self, true)?;
        }
        Ok(())
    }

    /// Lets go of all inodes in memory: unmount's last step.
    pub(crate) fn clear_inodes(&self) {
        self.inodes.late.lock().clear();
        self.inodes.clear();
    }
}

/// The thread: works the queue off, and with `rounds` comes by every few seconds besides.
fn run(fs: &Weak<Fs>, queue: &Queue, rounds: bool) {
    for round in 1_u64.. {
        let Some(busy) = queue.next_round(rounds) else {
            return;
        };
        let Some(fs) = fs.upgrade() else { return };
        fs.reap();
        if fs.check_writable().is_ok()
            && let Err(error) = inode::flush_all_times(&fs, round % LAZY_ROUNDS == 0)
        {
            tracing::warn!(%error, "times could not be stored");
        }
        if let Err(error) = fs.fault.record_later(&fs) {
            tracing::warn!(%error, "a fault could not be recorded in the superblock");
        }
        // Before `fs`: its end, if this was the last reference, waits for the reaper.
        drop(busy);
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
    let has_map = inode::has_blocks(fs, inode);
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
    u32::try_from(inode::now().secs.clamp(1, i64::from(u32::MAX))).unwrap_or(1)
}
