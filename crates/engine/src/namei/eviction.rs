//! Eviction of unlinked inodes: frees the blocks and the number of an inode that has neither a name
//! nor a reference.
//!
//! Such inodes wait in a queue (`inode/reaper.rs`). Operations work it off where they hold nothing
//! ([`Fs::reap`]), and so does a thread, which also stores deferred times every few seconds. An
//! eviction starts handles of its own, so its caller holds no lock and no handle.
//!
//! # Errors
//! An eviction that fails (damage, a stopped journal) leaves the inode on the orphan list, for
//! e2fsck or the next mount. Its number stays taken until then. An inode on the list stays in
//! memory as well: if a damaged bitmap says that the number is free, its next use is an error.
//!
//! # Concurrency
//! Every inode is taken from the queue once; different inodes are evicted in parallel.

use std::sync::{Arc, Weak};

use extant_disk::inode::BLOCK_AREA;
use extant_jbd2::Handle;
use extant_units::{Lblk, Pblk, at_most_u32};

use crate::inode::{HeldRecord, InodeCore, InodeFlags};
use crate::state::inode::{EvictionQueue, Inode};
use crate::types::FileKind;
use crate::types::error::Result;
use crate::volume::{Fs, all_or_abort, credits, stop};
use crate::{alloc, file, inode, map, orphan, quota, xattr};

/// Rounds of the thread after which lazy times are stored: half a day.
const LAZY_ROUNDS: u64 = 12 * 60 * 60 / 5;

impl Fs {
    /// Starts the reaper's thread: mount's last step for a writable file system.
    ///
    /// # Errors
    /// The host has no thread left.
    pub(crate) fn start_reaper(self: &Arc<Self>) -> Result<()> {
        let weak = Arc::downgrade(self);
        // Without flushers nothing is written unless a caller asks for it.
        let rounds = self.tuning.flushers > 0;
        self.inodes
            .reaper
            .start(move |queue| run(&weak, queue, rounds))
    }

    /// Stops the thread and finishes its work; later nothing may be queued. Unmount calls it after
    /// the data is written and before the last commit. Evicts unlinked inodes even if references to
    /// them are left.
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
            quota::add_missing(self);
        }
        Ok(())
    }

    /// Drops all inodes in memory, and all keys: unmount's last step.
    pub(crate) fn clear_inodes(&self) {
        self.keys.clear();
        for inode in self.inodes.all() {
            inode.key.clear();
        }
        self.inodes.late.lock().clear();
        self.inodes.clear();
    }
}

/// The thread: works the queue off, and with `rounds` also wakes every few seconds.
fn run(fs: &Weak<Fs>, queue: &EvictionQueue, rounds: bool) {
    for round in 1_u64.. {
        let Some(busy) = queue.next_round(rounds) else {
            return;
        };
        let Some(fs) = fs.upgrade() else { return };
        fs.reap();
        let lazy = round % LAZY_ROUNDS == 0 || inode::are_many_late(&fs);
        if fs.check_writable().is_ok()
            && let Err(error) = inode::flush_all_times(&fs, lazy)
        {
            tracing::warn!(%error, "times could not be stored");
        }
        if let Err(error) = fs.fault.record_later(&fs) {
            tracing::warn!(%error, "a fault could not be recorded in the superblock");
        }
        // Before `fs`: if this was the last reference, dropping `fs` waits for the reaper.
        drop(busy);
    }
}

/// Evicts an inode from the queue. After a failure it stays on the orphan list.
pub(crate) fn evict(fs: &Arc<Fs>, inode: &Arc<Inode>) {
    let deleted = fs.check_writable().and_then(|()| delete(fs, inode));
    note_deletion(fs, inode, deleted);
}

/// Counts or reports the outcome of a deletion.
pub(super) fn note_deletion(fs: &Fs, inode: &Arc<Inode>, deleted: Result<()>) {
    match deleted {
        Ok(()) => fs.stats.inode_deletions.bump(),
        Err(error) => {
            tracing::warn!(ino = inode.ino.get(), %error, "inode could not be deleted");
            fs.fault.report(fs, &error);
            if !inode.is_on_orphan_list() {
                fs.inodes.forget(inode);
            }
        }
    }
}

/// Frees everything that `inode` has, and its number.
fn delete(fs: &Arc<Fs>, inode: &Arc<Inode>) -> Result<()> {
    debug_assert!(inode.is_unlinked(), "inode {} has a name", inode.ino);
    file::drop_data_for_eviction(fs, inode);
    let has_map = inode::has_blocks(fs, inode);
    let last = credits::inode_delete(fs);
    let mut h =
        fs.start_with_revokes(credits::sum([credits::remove(fs), last]), credits::REVOKES)?;
    if has_map && inode.core.read().sectors != 0 {
        inode.update(fs, &mut h, |core| core.disk_size = 0)?;
        map::remove(fs, &mut h, inode, Lblk::ZERO, 1 << 32)?;
        if !h.ensure(last)? {
            h.restart(last)?;
        }
    }
    xattr::release(fs, &mut h, inode, last)?;
    let record = inode.hold_record(fs)?;
    // While the inode is an orphan: if its bit could not be cleared later, it would stay taken.
    let _bitmap = alloc::hold_inode_bitmap(fs, &mut h, inode.ino)?;
    all_or_abort(&mut h, |h| {
        orphan::remove(fs, h, inode)?;
        clear_record(fs, h, inode, &record)
    })?;
    free_number(fs, &mut h, inode)
}

/// Makes `record` that of an inode that is free.
///
/// # Errors
/// A stopped journal.
pub(super) fn clear_record(
    fs: &Fs,
    h: &mut Handle,
    inode: &Inode,
    record: &HeldRecord,
) -> Result<()> {
    let has_map = inode::has_blocks(fs, inode);
    inode.update_held(fs, h, record, |core| clear(core, has_map))?;
    match &inode.quota {
        Some(quota) => quota.end(h).inspect_err(|error| stop(h, error)),
        None => Ok(()),
    }
}

/// Frees the number of `inode`, whose record is clear.
///
/// # Errors
/// Damage: the number stays taken. A stopped journal.
pub(super) fn free_number(fs: &Fs, h: &mut Handle, inode: &Arc<Inode>) -> Result<()> {
    debug_assert_eq!(map::reserved_blocks(inode), 0, "nothing is reserved (J9)");
    // Out of the cache before the number is free: the next owner of the number makes a new inode of
    // it.
    fs.inodes.forget(inode);
    alloc::free_inode(fs, h, inode.ino, inode.kind == FileKind::Directory)
}

/// Makes `core` that of an inode that is free. `has_map` says that it has blocks of its own.
fn clear(core: &mut InodeCore, has_map: bool) {
    core.links = 0;
    core.disk_size = 0;
    core.sectors = 0;
    core.file_acl = Pblk::ZERO;
    core.xattrs.fill(0);
    if core.flags.contains(InodeFlags::INLINE_DATA) {
        core.i_block = [0; BLOCK_AREA]; // removed data does not linger on the disk
    } else if has_map {
        // An extent tree keeps its (empty) root: e2fsck takes an inode with the flag but without a
        // root for garbage.
        core.i_block = match core.flags.contains(InodeFlags::EXTENTS) {
            true => map::empty_root(),
            false => [0; BLOCK_AREA],
        };
    }
    core.dtime = deletion_time();
}

/// The clock in 32 bits, never zero, which would mean "not deleted": 1 before 1970.
fn deletion_time() -> u32 {
    u64::try_from(inode::now().secs).map_or(1, |secs| at_most_u32(secs).max(1))
}

#[cfg(test)]
mod tests {
    use extant_testkit::Image;

    use super::*;
    use crate::file::{WriteAt, write};
    use crate::namei;
    use crate::state::map::MapState;
    use crate::test_support::test_mount::TestFs;
    use crate::types::{Cred, XattrMode};

    /// A device number or a short link's target lies in the bytes by which other inodes name their
    /// blocks. The block of its attributes is counted all the same.
    #[test]
    fn a_device_and_a_short_link_give_up_their_attributes_and_no_other_block() {
        // Attributes do not fit these inodes: each has a block of them, or a cluster.
        give_up_attributes("-b 1024 -I 128", 1);
        give_up_attributes("-b 1024 -I 128 -O bigalloc -C 8192", 8);
    }

    fn give_up_attributes(args: &str, cluster: u64) {
        let image = Image::of_mib(16).args(args).make().unwrap();
        let fs = TestFs::mount(image.path(), "");
        let (root, cred) = (fs.root(), Cred::root());
        let file = fs.create("file");
        write(&fs, &file, None, WriteAt::Pos(0), &[7; 1024], &cred).unwrap();
        file::writeback_all_files(&fs).unwrap();
        let MapState::Written(block) = map::lookup(&fs, &file, Lblk::ZERO, 1).unwrap().state else {
            panic!("the file has a block")
        };
        let free_blocks = || fs.alloc.counts.free_blocks().get();
        let free = free_blocks();
        // As the first of twelve block numbers.
        let kind = (FileKind::CharDevice, u32::try_from(block.get()).unwrap());
        let device = namei::mknod(&fs, &root, b"device", kind, 0o600, &cred).unwrap();
        let link = namei::symlink(&fs, &root, b"link", b"somewhere else", &cred).unwrap();
        for (inode, value) in [(&device, b"a"), (&link, b"b")] {
            xattr::set(&fs, inode, b"trusted.x", value, XattrMode::Either, &cred).unwrap();
            assert!(!inode::has_blocks(&fs, inode));
            assert_eq!(inode.core.read().sectors, 2 * cluster);
        }
        assert_eq!(free_blocks(), free - 2 * cluster);
        let evicted = fs.stats.inode_deletions.get();
        fs.unlink("device");
        fs.unlink("link");
        drop((device, link));
        fs.reap_all();
        assert_eq!(fs.stats.inode_deletions.get() - evicted, 2);
        assert_eq!(fs.stats.faults.get(), 0);
        assert_eq!(free_blocks(), free, "the blocks of the attributes are free");
        // With the file its block goes, and once.
        drop(file);
        fs.unlink("file");
        fs.reap_all();
        assert_eq!(free_blocks(), free + cluster);
        drop(root);
        fs.unmount();
        image.fsck_clean().unwrap();
    }
}
