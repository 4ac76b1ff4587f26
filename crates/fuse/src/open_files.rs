//! The files that are open for writing through the kernel's cache, and what each handle has still
//! to be told.
//!
//! # Responsibility
//! With dirty pages in the kernel a write fails after the writer was told that it succeeded. The
//! table keeps such a failure until each handle that was open then has been told of it once. It
//! also counts how much dirty data the kernel may hold without a check of the space that is left
//! ([`OpenFiles::exposed`]), and which files are armed: the kernel asks for their attributes, with
//! the handle, before their next write.
//!
//! # Invariants
//! The totals are the sums over the files. A handle that was opened after a failure is not told of
//! it.
//!
//! # Locks
//! One mutex, a leaf.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::errno::Errno;

/// How often the kernel is asked to drop an unused inode of which it has something wrong. It cannot
/// while the file is in use.
const MAX_PRUNES: u32 = 100;

/// How often a file is armed again, tick after tick, after a reply whose attributes the kernel
/// takes whatever it was told meanwhile. So the caller may take a quarter of a second to look at
/// it.
const REARMS: u32 = 64;

/// Bytes that writers may have dirtied, and no drain has shown to be written back.
#[derive(Clone, Copy, Debug, Default)]
struct Exposure {
    /// Granted since the last drain began.
    current: u64,
    /// Granted between the last drain but one and the last. A writer may not have used a grant yet
    /// when a drain begins, so a grant counts until the end of the second drain after it.
    previous: u64,
    /// Granted before that: the drain that is under way is the second one.
    draining: u64,
}

impl Exposure {
    fn total(self) -> u64 {
        self.current + self.previous + self.draining
    }

    /// The exposure of a file that is no longer counted.
    fn subtract(&mut self, other: Exposure) {
        self.current -= other.current;
        self.previous -= other.previous;
        self.draining -= other.draining;
    }

    fn begin_drain(&mut self) {
        self.draining = self.previous;
        self.previous = std::mem::take(&mut self.current);
    }

    fn end_drain(&mut self, done: bool) {
        let draining = std::mem::take(&mut self.draining);
        if !done {
            self.current += std::mem::replace(&mut self.previous, draining);
        }
    }
}

/// The most writes of a handle that are refused for one that took space, as a power of two.
const MAX_REFUSALS_LOG2: u32 = 20;

/// Why a write is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Data that the kernel took before is lost.
    Lost(Errno),
    /// Nothing is lost, but the last blocks are being taken.
    Scarce,
}

/// What a handle knows, and what its writes did while space was scarce.
#[derive(Debug, Default)]
struct Handle {
    /// Failures that it was told of, or that are older.
    failures: u64,
    /// The same of marks of scarcity.
    marks: u64,
    /// It was admitted while space was scarce; the next mark is put down to it.
    probing: bool,
    /// Writes that took space while it was scarce.
    taken: u32,
    /// Writes that are still to be refused.
    refusals: u32,
}

/// One file.
#[derive(Debug, Default)]
struct OpenFile {
    /// Handles open for writing.
    handles: HashMap<u64, Handle>,
    /// Failures so far.
    failures: u64,
    /// Write-backs so far that took more of the last blocks than goes unreported.
    marks: u64,
    /// Bytes of the last blocks that it has taken unreported.
    unreported: u64,
    /// What the last one was.
    error: Option<Errno>,
    /// The kernel has something of the file wrong, such as a size that is too large, for as long as
    /// it has its inode.
    wrong: bool,
    /// Blocks that the kernel was told of, of a file with handles.
    blocks: u64,
    /// How often the kernel was asked to drop it since it was closed.
    prunes: u32,
    /// The kernel asks before the next write.
    armed: bool,
    /// How often it is still to be armed though it seems to be.
    rearms: u32,
    exposure: Exposure,
}

/// Bytes of the last blocks that go unreported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowance {
    /// Of one file, as long as a handle is open.
    pub(crate) by_file: u64,
    /// Of all files, until there is space again.
    pub(crate) in_all: u64,
}

#[derive(Debug, Default)]
struct Inner {
    files: HashMap<u64, OpenFile>,
    total: Exposure,
    /// Bytes of the last blocks that were taken unreported since space is scarce.
    unreported: u64,
}

impl Inner {
    fn exposures(&mut self) -> impl Iterator<Item = &mut Exposure> {
        let files = self.files.values_mut().map(|file| &mut file.exposure);
        files.chain([&mut self.total])
    }
}

/// See the module's header. Files are named by node number.
#[derive(Debug, Default)]
pub(crate) struct OpenFiles {
    last_handle: AtomicU64,
    /// Something failed once: until then a forgotten node needs no look at the table.
    failed: AtomicBool,
    /// Something was armed once: until then no reply needs a look at the table.
    armed: AtomicBool,
    inner: Mutex<Inner>,
}

impl OpenFiles {
    /// A new handle of `node`, which has `blocks` and whose writer may dirty `exposed` bytes before
    /// it is checked.
    pub(crate) fn open(&self, node: u64, blocks: u64, exposed: u64) -> u64 {
        let handle = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        let mut inner = self.inner.lock();
        let Inner { files, total, .. } = &mut *inner;
        let file = files.entry(node).or_default();
        if file.handles.is_empty() {
            file.blocks = blocks;
        }
        let knows = Handle {
            failures: file.failures,
            marks: file.marks,
            ..Handle::default()
        };
        file.handles.insert(handle, knows);
        file.exposure.current += exposed;
        total.current += exposed;
        handle
    }

    /// The handle is closed; the kernel has written back what was dirty. Returns whether it was the
    /// last one of a file of which the kernel has something wrong.
    pub(crate) fn close(&self, node: u64, handle: u64) -> bool {
        let mut inner = self.inner.lock();
        let Inner { files, total, .. } = &mut *inner;
        let Some(file) = files.get_mut(&node) else {
            return false;
        };
        if file.handles.remove(&handle).is_none() || !file.handles.is_empty() {
            return false;
        }
        total.subtract(std::mem::take(&mut file.exposure));
        file.prunes = 0;
        file.rearms = 0;
        let lingers = file.wrong;
        if !lingers {
            files.remove(&node);
        }
        lingers
    }

    /// Notes that data is lost, for each handle that is open. The kernel shows a size that includes
    /// it.
    pub(crate) fn fail(&self, node: u64, error: Errno) {
        self.failed.store(true, Ordering::Release);
        let mut inner = self.inner.lock();
        let file = inner.files.entry(node).or_default();
        file.failures += 1;
        file.error = Some(error);
        file.wrong = true;
    }

    /// Notes that the kernel has something of `node` wrong that it keeps with the inode. It is to
    /// drop that once the file is closed.
    pub(crate) fn note_wrong(&self, node: u64) {
        self.failed.store(true, Ordering::Release);
        self.inner.lock().files.entry(node).or_default().wrong = true;
    }

    /// Notes that the kernel is about to be told that `node` has `blocks`, if that is new to it;
    /// returns whether it is. Of files that are not open for writing it knows.
    pub(crate) fn shows_blocks(&self, node: u64, blocks: u64) -> bool {
        let mut inner = self.inner.lock();
        let file = inner.files.get_mut(&node);
        file.is_some_and(|file| std::mem::replace(&mut file.blocks, blocks) != blocks)
    }

    /// Notes that a write-back took `bytes` of the last blocks. Returns whether each handle that is
    /// open will be told, which is not done within `allowance`.
    pub(crate) fn take_last(&self, node: u64, bytes: u64, allowance: Allowance) -> bool {
        self.failed.store(true, Ordering::Release);
        let mut inner = self.inner.lock();
        let Inner {
            files, unreported, ..
        } = &mut *inner;
        let file = files.entry(node).or_default();
        let is_told =
            file.unreported + bytes > allowance.by_file || *unreported + bytes > allowance.in_all;
        if is_told {
            file.marks += 1;
        } else {
            file.unreported += bytes;
            *unreported += bytes;
        }
        is_told
    }

    /// A write of `handle` is admitted. While space is scarce it is a probe: only its write-back
    /// shows whether it takes space. With space again the handle starts afresh.
    pub(crate) fn admit(&self, node: u64, handle: u64, scarce: bool) {
        let mut inner = self.inner.lock();
        if !scarce {
            inner.unreported = 0;
        }
        let Some(file) = inner.files.get_mut(&node) else {
            return;
        };
        let marks = file.marks;
        let Some(handle) = file.handles.get_mut(&handle) else {
            return;
        };
        if scarce {
            handle.probing = true;
        } else {
            file.unreported = 0;
            *handle = Handle {
                failures: handle.failures,
                marks,
                ..Handle::default()
            };
        }
    }

    /// Why the next write of `handle` is to be refused. A failure is told once to each handle, as
    /// is scarcity to handles that did not cause it. A handle whose writes take the last blocks is
    /// refused once, twice, four times and so on, so that a writer that goes on regardless does not
    /// use them up.
    pub(crate) fn untold(&self, node: u64, handle: u64) -> Option<Refusal> {
        let mut inner = self.inner.lock();
        let file = inner.files.get_mut(&node)?;
        // Where opens send no message all writers of a file share one handle, 0, that knows of
        // nothing yet.
        let handle = file.handles.entry(handle).or_default();
        if std::mem::replace(&mut handle.marks, file.marks) != file.marks {
            let taken = u32::from(std::mem::take(&mut handle.probing));
            handle.refusals = handle.refusals.max(1 << handle.taken);
            handle.taken = (handle.taken + taken).min(MAX_REFUSALS_LOG2);
        }
        if std::mem::replace(&mut handle.failures, file.failures) != file.failures {
            // Stays zero for a handle that was never refused.
            handle.refusals = handle.refusals.saturating_sub(1);
            return file.error.map(Refusal::Lost);
        }
        handle.refusals = handle.refusals.checked_sub(1)?;
        Some(Refusal::Scarce)
    }

    /// The kernel has forgotten the node.
    pub(crate) fn forget(&self, node: u64) {
        if !self.failed.load(Ordering::Acquire) {
            return;
        }
        let mut inner = self.inner.lock();
        if let Some(file) = inner.files.remove(&node) {
            inner.total.subtract(file.exposure);
        }
    }

    /// Lets writers of `node` dirty `bytes` more.
    pub(crate) fn grant(&self, node: u64, bytes: u64) {
        let mut inner = self.inner.lock();
        let Inner { files, total, .. } = &mut *inner;
        if let Some(file) = files.get_mut(&node) {
            file.exposure.current += bytes;
            total.current += bytes;
        }
    }

    /// Bytes that may be dirty in the kernel and were not checked against the space that is left.
    pub(crate) fn exposed(&self) -> u64 {
        self.inner.lock().total.total()
    }

    /// The kernel is about to write back all that is dirty. [`OpenFiles::end_drain`] has to follow.
    pub(crate) fn begin_drain(&self) {
        self.inner
            .lock()
            .exposures()
            .for_each(Exposure::begin_drain);
    }

    /// The drain has ended. Unless it is `done`, everything counts as before.
    pub(crate) fn end_drain(&self, done: bool) {
        let mut inner = self.inner.lock();
        inner.exposures().for_each(|one| one.end_drain(done));
    }

    /// Notes whether the kernel will ask before the next write of `node`. Returns whether that
    /// changed.
    pub(crate) fn set_armed(&self, node: u64, armed: bool) -> bool {
        if armed {
            self.armed.store(true, Ordering::Release);
        } else if !self.armed.load(Ordering::Acquire) {
            return false;
        }
        let mut inner = self.inner.lock();
        let Some(file) = inner.files.get_mut(&node) else {
            return false;
        };
        std::mem::replace(&mut file.armed, armed) != armed
    }

    /// Whether the kernel will ask before the next write of `node`.
    pub(crate) fn is_armed(&self, node: u64) -> bool {
        self.armed.load(Ordering::Acquire)
            && self.inner.lock().files.get(&node).is_some_and(|f| f.armed)
    }

    /// A reply is under way whose attributes of `node` the kernel takes even if it is told before
    /// that they are old: the file is to be armed again for a while.
    pub(crate) fn doubt(&self, node: u64) {
        if let Some(file) = self.inner.lock().files.get_mut(&node) {
            file.rearms = REARMS;
        }
    }

    /// Arms all files; returns those that were not, or about which there is doubt, and whether
    /// doubt is left.
    pub(crate) fn arm_all(&self) -> (Vec<u64>, bool) {
        self.armed.store(true, Ordering::Release);
        let mut inner = self.inner.lock();
        let (mut nodes, mut is_doubt_left) = (Vec::new(), false);
        for (node, file) in &mut inner.files {
            if !file.handles.is_empty() && (!file.armed || file.rearms > 0) {
                file.armed = true;
                // Stays zero for a file that was not armed and has no doubt left.
                file.rearms = file.rearms.saturating_sub(1);
                is_doubt_left |= file.rearms > 0;
                nodes.push(*node);
            }
        }
        (nodes, is_doubt_left)
    }

    /// Files that are closed and of which the kernel has something wrong. Each is returned so often
    /// after a close, and no more.
    pub(crate) fn to_prune(&self) -> Vec<u64> {
        if !self.failed.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut inner = self.inner.lock();
        let files = inner.files.iter_mut();
        files
            .filter(|(_, file)| file.wrong && file.handles.is_empty() && file.prunes < MAX_PRUNES)
            .map(|(node, file)| {
                file.prunes += 1;
                *node
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Allowance = Allowance {
        by_file: 0,
        in_all: 0,
    };

    #[test]
    fn each_handle_gets_failures_after_its_open_once() {
        let open = OpenFiles::default();
        let (a, b) = (open.open(12, 0, 0), open.open(12, 0, 0));
        assert_eq!(open.untold(12, a), None);
        open.fail(12, Errno::NOSPC);
        let late = open.open(12, 0, 0);
        assert_eq!(open.untold(12, a), Some(Refusal::Lost(Errno::NOSPC)));
        assert_eq!(open.untold(12, a), None);
        assert_eq!(open.untold(12, late), None);
        open.fail(12, Errno::IO);
        assert_eq!(open.untold(12, b), Some(Refusal::Lost(Errno::IO)));
        assert_eq!(open.untold(12, late), Some(Refusal::Lost(Errno::IO)));
        for handle in [a, b, late] {
            open.close(12, handle);
        }
        open.forget(12);
        assert!(open.inner.lock().files.is_empty());
    }

    #[test]
    fn without_handles_a_failure_is_reported_once_and_ends_with_its_node() {
        let open = OpenFiles::default();
        open.fail(7, Errno::NOSPC);
        assert_eq!(open.untold(7, 0), Some(Refusal::Lost(Errno::NOSPC)));
        assert_eq!(open.untold(7, 0), None);
        open.forget(7);
        assert!(open.inner.lock().files.is_empty());
    }

    fn drain(open: &OpenFiles) {
        open.begin_drain();
        open.end_drain(true);
    }

    #[test]
    fn a_grant_counts_until_the_second_drain_or_the_last_close() {
        let open = OpenFiles::default();
        let (a, b) = (open.open(1, 0, 5), open.open(2, 0, 0));
        open.grant(2, 10);
        assert_eq!(open.exposed(), 15);
        drain(&open);
        open.grant(1, 1);
        assert_eq!(open.exposed(), 16);
        open.close(2, b);
        assert_eq!(open.exposed(), 6);
        drain(&open);
        assert_eq!(open.exposed(), 1);
        open.close(1, a);
        assert_eq!(open.exposed(), 0);
    }

    #[test]
    fn a_drain_that_does_not_end_in_time_takes_nothing_off() {
        let open = OpenFiles::default();
        let (a, b) = (open.open(1, 0, 100), open.open(2, 0, 0));
        drain(&open);
        open.grant(2, 10);
        for _ in 0..3 {
            open.begin_drain();
            open.grant(1, 1);
            open.end_drain(false);
        }
        assert_eq!(open.exposed(), 113);
        // The drain that is under way may be over before the pages are written.
        open.begin_drain();
        assert_eq!(open.exposed(), 113);
        open.end_drain(true);
        assert_eq!(open.exposed(), 13, "what was granted before the first one");
        open.begin_drain();
        open.close(2, b);
        assert_eq!(open.exposed(), 3);
        open.end_drain(true);
        assert_eq!(open.exposed(), 0);
        open.close(1, a);
    }

    #[test]
    fn a_file_in_doubt_is_armed_again_and_again() {
        let open = OpenFiles::default();
        open.doubt(3);
        let handle = open.open(3, 0, 0);
        assert_eq!(open.arm_all(), (vec![3], false));
        assert_eq!(open.arm_all(), (Vec::new(), false));
        open.doubt(3);
        for tick in 1..=REARMS {
            assert_eq!(open.arm_all(), (vec![3], tick < REARMS));
        }
        assert_eq!(open.arm_all(), (Vec::new(), false));
        open.doubt(3);
        open.close(3, handle);
        open.open(3, 0, 0);
        assert_eq!(open.arm_all(), (vec![3], false), "closed meanwhile");
    }

    #[test]
    fn a_closed_file_whose_size_is_wrong_stays_until_it_is_forgotten() {
        let open = OpenFiles::default();
        let handle = open.open(3, 0, 0);
        assert_eq!(open.arm_all(), (vec![3], false));
        assert!(open.arm_all().0.is_empty());
        assert!(open.set_armed(3, false) && !open.set_armed(3, false));
        open.fail(3, Errno::NOSPC);
        assert!(open.to_prune().is_empty(), "it is open");
        open.close(3, handle);
        assert_eq!(open.to_prune(), [3]);
        assert!(open.arm_all().0.is_empty());
        open.forget(3);
        assert!(open.to_prune().is_empty());
    }

    #[test]
    fn blocks_are_news_once() {
        let open = OpenFiles::default();
        assert!(!open.shows_blocks(5, 8), "it is not open");
        let handle = open.open(5, 8, 0);
        assert!(!open.shows_blocks(5, 8));
        open.open(5, 16, 0);
        assert!(open.shows_blocks(5, 16) && !open.shows_blocks(5, 16));
        open.close(5, handle);
        assert!(open.shows_blocks(5, 24));
    }

    #[test]
    fn a_closed_file_with_a_wrong_time_is_to_be_dropped() {
        let open = OpenFiles::default();
        open.note_wrong(6);
        assert_eq!(open.to_prune(), [6]);
        open.forget(6);
        assert!(open.to_prune().is_empty());
    }

    #[test]
    fn a_handle_that_takes_the_last_blocks_is_refused_ever_longer() {
        let open = OpenFiles::default();
        let (greedy, other) = (open.open(4, 0, 0), open.open(4, 0, 0));
        let refused = |handle: u64| (0..).find(|_| open.untold(4, handle).is_none());
        for expected in [1, 2, 4, 8] {
            open.admit(4, greedy, true);
            assert!(open.take_last(4, 1, NOTHING));
            assert_eq!(refused(greedy), Some(expected));
            assert_eq!(refused(other), Some(1));
            // An admitted write that takes no space costs nothing.
            open.admit(4, other, true);
            assert_eq!(refused(other), Some(0));
            open.admit(4, other, false);
        }
        open.admit(4, greedy, false);
        assert!(open.take_last(4, 1, NOTHING));
        assert_eq!(refused(greedy), Some(1));
    }

    #[test]
    fn a_little_of_the_last_blocks_is_taken_unreported() {
        let open = OpenFiles::default();
        let writer = open.open(4, 0, 0);
        open.admit(4, writer, true);
        let little = Allowance {
            by_file: 100,
            in_all: 150,
        };
        assert!(!open.take_last(4, 60, little) && !open.take_last(4, 40, little));
        assert_eq!(open.untold(4, writer), None);
        assert!(open.take_last(4, 1, little));
        assert_eq!(open.untold(4, writer), Some(Refusal::Scarce));
        assert!(!open.take_last(5, 50, little), "another file");
        assert!(open.take_last(6, 1, little), "many files together");
        // There is space again.
        open.admit(4, writer, false);
        assert!(!open.take_last(4, 100, little));
        assert_eq!(open.untold(4, writer), None);
    }
}
