//! Times: the clock, access times by the mount's rule, and times that change without a handle.
//!
//! A buffered write or a read must not start a handle only to change a time. It changes `core` and
//! marks the inode. The time is stored by [`flush_times`] (before an fsync, with writeback), with
//! any other update of the inode, or in the reaper's round a few seconds later. Under `lazytime`
//! access times wait for another reason to be written: an update, `sync`, the last reference to the
//! inode, or unmount, half a day at most. An inode with deferred times stays in memory, so the
//! round comes at once, and stores all kinds, when [`MANY`] inodes are listed. A crash loses
//! deferred times and nothing else.
//!
//! Most reads and writes find that there is nothing to note: `deferred_times::Noted` tells them
//! without a lock, by comparing ticks of the coarse clock. A tick is one value of that clock, which
//! advances every few milliseconds. A write that finds its time noted in the current tick has no
//! time to note, and may take a short cut: the folio fast path, a short append, a direct
//! request without the inode's `lock`. The first cached write of a tick notes the time on
//! its way, if there are no privileges to take away; that takes `core` alone.
//!
//! # Locks
//! `core`, and inside it the list of marked inodes. A thread that stores the times of all inodes
//! holds `InodeCache::storing`, which comes before handles and is taken with no lock held.

use extant_sync::atomic::Ordering;
use std::sync::Arc;

use extant_units::exact_u32;

use super::{InodeCore, InodeFlags, InodeTime};
use crate::config::AtimeMode;
use crate::state::inode::{Inode, InodeRef, LAZY, NEVER, SOON};
use crate::types::error::Result;
use crate::types::{FileKind, Timestamp};
use crate::volume::{Fs, credits};

/// Under relatime an access time is renewed at least this often.
const DAY_SECS: i64 = 24 * 60 * 60;
/// Nanoseconds in a second.
const NANOS: u64 = 1_000_000_000;
/// Inodes whose times are stored under one handle.
const BATCH: usize = 16;
/// Inodes with deferred times that may stay in memory for them: some 10 MiB.
pub(super) const MANY: usize = 8192;

/// The coarse clock in nanoseconds since 1970, 0 before. Reading it costs next to nothing.
#[inline]
fn tick() -> u64 {
    let now = Timestamp::now();
    let secs = u64::try_from(now.secs).unwrap_or(0);
    secs.wrapping_mul(NANOS).wrapping_add(now.nanos.into())
}

/// Returns whether a write now finds its time noted already.
#[inline]
pub(crate) fn is_write_noted(inode: &Inode) -> bool {
    inode.noted.write.load(Ordering::Acquire) == tick()
}

impl From<InodeTime> for Timestamp {
    fn from(t: InodeTime) -> Self {
        Self {
            secs: t.secs,
            nanos: t.nanos,
        }
    }
}

impl From<Timestamp> for InodeTime {
    fn from(t: Timestamp) -> Self {
        Self {
            secs: t.secs,
            nanos: t.nanos,
        }
    }
}

/// The clock: [`Timestamp::now`], the only one whose time is stored.
pub(crate) fn now() -> InodeTime {
    Timestamp::now().into()
}

/// Records a change of the inode itself: change time and version.
pub(crate) fn changed(core: &mut InodeCore, at: InodeTime) {
    core.ctime = at.clamped(core.has_wide_times());
    core.version = core.version.wrapping_add(1);
}

/// Records a change of the content: modification time, change time and version.
pub(crate) fn modified(core: &mut InodeCore, at: InodeTime) {
    core.mtime = at.clamped(core.has_wide_times());
    changed(core, at);
}

/// Records that the content was read, by the mount's rule. Never fails: a time is not worth an
/// error.
pub(crate) fn touch_atime(fs: &Fs, inode: &Arc<Inode>) {
    let options = &fs.options;
    let tick = tick();
    if tick < inode.noted.read_until.load(Ordering::Acquire) {
        return;
    }
    if options.atime() == AtimeMode::Noatime
        || (options.nodiratime() && inode.kind == FileKind::Directory)
        || fs.check_writable().is_err()
    {
        return;
    }
    let at = now();
    {
        let core = inode.core.read();
        if !wants_atime(&core, options.atime(), at) {
            let until = quiet_until(&core, options.atime());
            inode.noted.read_until.store(until, Ordering::Release);
            return;
        }
    }
    let mut core = inode.core.write();
    core.atime = at.clamped(core.has_wide_times());
    defer(
        fs,
        inode,
        &mut core,
        if options.lazytime() { LAZY } else { SOON },
    );
}

/// Returns whether reading at `at` changes the access time.
fn wants_atime(core: &InodeCore, mode: AtimeMode, at: InodeTime) -> bool {
    if core.flags.contains(InodeFlags::NOATIME) || core.atime == at {
        return false;
    }
    match mode {
        AtimeMode::Noatime => false,
        AtimeMode::Strictatime => true,
        AtimeMode::Relatime => {
            core.atime <= core.mtime
                || core.atime <= core.ctime
                || at.secs.saturating_sub(core.atime.secs) >= DAY_SECS
        }
    }
}

/// The tick before which reads do not change the access time, if they do not now and the inode is
/// not changed meanwhile.
fn quiet_until(core: &InodeCore, mode: AtimeMode) -> u64 {
    if core.flags.contains(InodeFlags::NOATIME) {
        return u64::MAX;
    }
    let due = core.atime.secs.saturating_add(DAY_SECS);
    match mode {
        AtimeMode::Noatime => u64::MAX,
        AtimeMode::Strictatime => NEVER,
        AtimeMode::Relatime => u64::try_from(due).unwrap_or(0).saturating_mul(NANOS),
    }
}

/// Records that the content was written; stored within seconds.
pub(crate) fn touch_mtime(fs: &Fs, inode: &Arc<Inode>) {
    let tick = tick();
    if inode.noted.write.load(Ordering::Acquire) == tick {
        return;
    }
    let at = now();
    {
        let core = inode.core.read();
        let stored = at.clamped(core.has_wide_times());
        if core.mtime == stored && core.ctime == stored {
            inode.noted.write.store(tick, Ordering::Release);
            return;
        }
    }
    let mut core = inode.core.write();
    modified(&mut core, at);
    inode.noted.forget();
    inode.noted.write.store(tick, Ordering::Release);
    defer(fs, inode, &mut core, SOON);
}

/// Marks a time in `_core`, the inode's, as newer than its stored form.
fn defer(fs: &Fs, inode: &Arc<Inode>, _core: &mut InodeCore, how: u8) {
    if inode.deferred.mark(how) {
        let listed = {
            let mut late = fs.inodes.late.lock();
            late.push(inode.ino);
            late.len()
        };
        if listed.is_multiple_of(MANY) {
            fs.inodes.reaper.hurry();
        }
    }
    fs.stats.times_deferred.bump();
}

/// Returns whether so many inodes have deferred times that lazy ones are stored as well.
pub(crate) fn are_many_late(fs: &Fs) -> bool {
    fs.inodes.late.lock().len() >= MANY
}

/// Stores deferred times, if there are any. Starts a handle: see the lock order.
///
/// # Errors
/// As [`Inode::update`].
pub(crate) fn flush_times(fs: &Fs, inode: &Inode) -> Result<()> {
    if !inode.has_deferred() {
        return Ok(());
    }
    let mut h = fs.start(credits::INODE_UPDATE)?;
    inode.update(fs, &mut h, |_| ())
}

/// Stores deferred times of all inodes; lazy ones only with `lazy`, or of inodes that no caller
/// has: these would leave memory. On return no time is left that was deferred before the call, also
/// where another thread has begun to store it. Starts handles; the caller holds no lock.
///
/// # Errors
/// The first error; the remaining inodes stay marked.
pub(crate) fn flush_all_times(fs: &Fs, lazy: bool) -> Result<()> {
    extant_lock_order::assert_none_held();
    let due = if lazy { SOON | LAZY } else { SOON };
    let _one_thread = fs.inodes.storing.lock();
    let listed = std::mem::take(&mut *fs.inodes.late.lock());
    let mut marked = Vec::new();
    // An inode with deferred times stays in memory; one that has left has none. Counted: none
    // leaves or is deleted before its record is stored, which would else go over a successor's.
    for inode in listed.into_iter().filter_map(|ino| fs.inodes.counted(ino)) {
        // Off the list first: a mark that comes after this puts the inode there again.
        inode.deferred.unlist();
        if inode.deferred.has(due) || (inode.has_deferred() && inode.is_counted_once()) {
            marked.push(inode);
        } else if inode.has_deferred() {
            relist(fs, &inode);
        }
    }
    let mut result = Ok(());
    for batch in marked.chunks(BATCH) {
        result = result.and_then(|()| store_batch(fs, batch));
        if result.is_err() {
            let left = batch.iter().filter(|inode| inode.has_deferred());
            left.for_each(|inode| relist(fs, inode));
        }
    }
    result
}

fn relist(fs: &Fs, inode: &Inode) {
    if inode.deferred.mark(0) {
        fs.inodes.late.lock().push(inode.ino);
    }
}

fn store_batch(fs: &Fs, batch: &[InodeRef]) -> Result<()> {
    debug_assert!((1..=BATCH).contains(&batch.len()), "{} inodes", batch.len());
    let mut h = fs.start(credits::INODE_UPDATE * exact_u32(batch.len() as u64))?;
    for inode in batch {
        if inode.has_deferred() && !inode.is_gone() {
            inode.update(fs, &mut h, |_| ())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::test_rig::blank_core;

    fn core(atime: i64, mtime: i64, ctime: i64) -> InodeCore {
        let mut core = blank_core();
        let at = |secs| InodeTime { secs, nanos: 5 };
        (core.atime, core.mtime, core.ctime) = (at(atime), at(mtime), at(ctime));
        core
    }

    #[test]
    fn relatime_follows_changes_and_days() {
        let at = |secs| InodeTime { secs, nanos: 0 };
        let wants = |core: &InodeCore, now| wants_atime(core, AtimeMode::Relatime, at(now));
        assert!(wants(&core(10, 20, 5), 30), "modified since");
        assert!(wants(&core(10, 5, 20), 30), "changed since");
        assert!(wants(&core(10, 10, 5), 30), "modified at the same moment");
        assert!(!wants(&core(20, 10, 10), 30));
        assert!(wants(&core(20, 10, 10), 20 + DAY_SECS), "a day old");
    }

    #[test]
    fn modes_and_the_flag_decide() {
        let at = InodeTime { secs: 30, nanos: 0 };
        let mut c = core(20, 10, 10);
        assert!(wants_atime(&c, AtimeMode::Strictatime, at));
        assert!(!wants_atime(&c, AtimeMode::Noatime, at));
        c.flags |= InodeFlags::NOATIME;
        assert!(!wants_atime(&c, AtimeMode::Strictatime, at));
    }

    #[test]
    fn change_moves_the_version() {
        let mut c = core(1, 1, 1);
        modified(&mut c, InodeTime { secs: 9, nanos: 1 });
        assert_eq!((c.mtime.secs, c.ctime.secs, c.version), (9, 9, 1));
        c.version = u64::MAX;
        changed(&mut c, InodeTime::default());
        assert_eq!(c.version, 0);
    }
}
