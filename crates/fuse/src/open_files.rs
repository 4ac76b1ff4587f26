//! The files that are open for writing through the kernel's cache, and what each handle has still
//! to be told.
//!
//! # Responsibility
//! With dirty pages in the kernel a write fails after the writer was told that it succeeded. The
//! table keeps such a failure until each handle that was open then has been told of it once. It
//! also counts how much dirty data the kernel may hold (`Exposure`), and which files
//! are armed: the kernel asks for their attributes, with the handle, before their next write.
//!
//! # Invariants
//! The total is the sum over the files, and of what writers dirtied while none was asked. The
//! engine's bound of dirty data is that and, while a file is open for writing, the last bytes of
//! the volume: writes of its handles are admitted there, since only their write-back shows whether
//! they take space. The bound is up to date whenever the lock is free. A handle that was opened
//! after a failure is not told of it.
//!
//! The engine's bound counts a grant until the end of the second late drain after it. When that one
//! begins, the writer has asked again through the only handle of its file, or has had [`GRACE`] to
//! dirty the pages: a drain is late if no grant is younger, or if the last late one is as old.
//!
//! # Locks
//! One mutex, a leaf.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use extant_engine::DirtyBound;
use parking_lot::{Mutex, MutexGuard};

use crate::errno::Errno;
use crate::exposure::Exposure;

/// How often the kernel is asked to drop an unused inode of which it has something wrong. It cannot
/// while the file is in use.
const MAX_PRUNES: u32 = 100;

/// How often a file is armed again, tick after tick, after a reply whose attributes the kernel
/// takes whatever it was told meanwhile. So the caller may take a quarter of a second to look at
/// it.
const REARMS: u32 = 64;

/// Time that a writer has, from the moment it may, to dirty its pages. It may have to wait for a
/// processor, memory, or the rest of a page that it writes in part; Linux has it pause so long at
/// most when much is dirty.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

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
    /// Time at which writers last were let write, unless they have done that since.
    granted: Option<Instant>,
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
    /// Data dirtied while no writer was asked.
    unasked: Exposure,
    total: Exposure,
    /// Bytes of the last blocks that were taken unreported since space is scarce.
    unreported: u64,
    /// Time at which the last late drain began.
    last_late: Option<Instant>,
    /// The drain that is under way is late.
    is_late: bool,
}

impl Inner {
    /// Nothing where `node` is not in the table: opens that send no message are not counted.
    fn grant(&mut self, node: u64, bytes: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            file.exposure.add(bytes);
            file.granted = Some(Instant::now());
            self.total.add(bytes);
        }
    }

    /// Time until a drain is late.
    fn until_late(&self, grace: Duration) -> Duration {
        let now = Instant::now();
        let left = |since| grace.saturating_sub(now.saturating_duration_since(since));
        let granted = self.files.values().filter_map(|file| file.granted);
        let writers = granted.map(left).max();
        let last = self.last_late.map_or(Duration::ZERO, left);
        writers.unwrap_or_default().min(last)
    }

    fn exposures(&mut self) -> impl Iterator<Item = &mut Exposure> {
        let files = self.files.values_mut().map(|file| &mut file.exposure);
        files.chain([&mut self.unasked, &mut self.total])
    }
}

/// The table, which sets the engine's bound when this is dropped.
struct Exposing<'a> {
    inner: MutexGuard<'a, Inner>,
    open: &'a OpenFiles,
}

impl Exposing<'_> {
    fn publish(&self) {
        let is_open = |file: &OpenFile| !file.handles.is_empty();
        let last = match self.inner.files.values().any(is_open) {
            true => self.open.last,
            false => 0,
        };
        self.open.bound.set(self.inner.total.bound() + last);
    }
}

impl Drop for Exposing<'_> {
    fn drop(&mut self) {
        self.publish();
    }
}

impl Deref for Exposing<'_> {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.inner
    }
}

impl DerefMut for Exposing<'_> {
    fn deref_mut(&mut self) -> &mut Inner {
        &mut self.inner
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
    /// Bytes that writers are said to have dirtied unasked: equal to `unasked.current`.
    unasked: AtomicU64,
    bound: DirtyBound,
    /// The last bytes of the volume, which writes are admitted to.
    last: u64,
    /// See [`GRACE`].
    grace: Duration,
    inner: Mutex<Inner>,
}

impl OpenFiles {
    /// An empty table that keeps this bound, for a volume with so many `last` bytes.
    pub(crate) fn new(bound: DirtyBound, last: u64) -> Self {
        Self {
            bound,
            last,
            grace: GRACE,
            ..Self::default()
        }
    }

    /// The table, to change what may be dirty.
    fn expose(&self) -> Exposing<'_> {
        Exposing {
            inner: self.inner.lock(),
            open: self,
        }
    }

    /// A new handle of `node`, which has `blocks`.
    pub(crate) fn open(&self, node: u64, blocks: u64) -> u64 {
        let handle = self.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        let mut inner = self.expose();
        let file = inner.files.entry(node).or_default();
        if file.handles.is_empty() {
            file.blocks = blocks;
        }
        let knows = Handle {
            failures: file.failures,
            marks: file.marks,
            ..Handle::default()
        };
        file.handles.insert(handle, knows);
        handle
    }

    /// The handle is closed; the kernel has written back what was dirty. Returns whether it was the
    /// last one of a file of which the kernel has something wrong.
    pub(crate) fn close(&self, node: u64, handle: u64) -> bool {
        let mut inner = self.expose();
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
        // What found no space took the last of it: a writer that goes on is refused ever longer.
        file.marks += u64::from(error == Errno::NOSPC);
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

    /// A write of `handle` asks to pass. If that is the only handle of the file, what it was let
    /// write before is written.
    pub(crate) fn ask(&self, node: u64, handle: u64) {
        let mut inner = self.inner.lock();
        if let Some(file) = inner.files.get_mut(&node)
            && file.handles.len() == 1
            && file.handles.contains_key(&handle)
        {
            file.granted = None;
        }
    }

    /// No writer has these `files`: what the only handle of one was let write before is written.
    pub(crate) fn rest(&self, files: &[u64]) {
        let mut inner = self.inner.lock();
        for node in files {
            if let Some(file) = inner.files.get_mut(node)
                && file.handles.len() == 1
            {
                file.granted = None;
            }
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
        let mut inner = self.expose();
        if let Some(file) = inner.files.remove(&node) {
            inner.total.subtract(file.exposure);
        }
    }

    /// Lets writers of `node` dirty `bytes` more.
    pub(crate) fn grant(&self, node: u64, bytes: u64) {
        self.expose().grant(node, bytes);
    }

    /// Lets writers of `node` dirty `bytes` more, if what may be dirty fits into `room` then.
    /// Returns whether it does. The bound is raised before `room` is asked: see [`DirtyBound`].
    pub(crate) fn grant_within(&self, node: u64, bytes: u64, room: impl FnOnce() -> u64) -> bool {
        let mut inner = self.expose();
        let of_file = |file: &OpenFile| (file.exposure, file.granted);
        let before = (inner.total, inner.files.get(&node).map(of_file));
        inner.grant(node, bytes);
        inner.publish();
        let fits = inner.total.total() <= room();
        if !fits {
            inner.total = before.0;
            if let (Some(file), Some(before)) = (inner.files.get_mut(&node), before.1) {
                (file.exposure, file.granted) = before;
            }
        }
        fits
    }

    /// Notes that writers are not asked, and may have dirtied `bytes` until they are, and until the
    /// second drain after that. Returns whether that is new.
    pub(crate) fn leave_unasked(&self, bytes: u64) -> bool {
        if self.unasked.load(Ordering::SeqCst) == bytes {
            return false;
        }
        let mut inner = self.expose();
        let Inner { unasked, total, .. } = &mut *inner;
        total.subtract(std::mem::take(unasked));
        unasked.add(bytes);
        total.add(bytes);
        self.unasked.store(bytes, Ordering::SeqCst);
        true
    }

    /// Bytes of the engine's bound that were granted.
    #[cfg(test)]
    pub(crate) fn bounded(&self) -> u64 {
        self.inner.lock().total.bound()
    }

    /// Bytes that may be dirty in the kernel.
    #[cfg(test)]
    pub(crate) fn exposed(&self) -> u64 {
        self.inner.lock().total.total()
    }

    /// Bytes of the bound that an operation on `node` need not leave free: the last ones, if no
    /// other file is open for writing.
    pub(crate) fn last_for(&self, node: u64) -> u64 {
        let inner = self.inner.lock();
        let mut others = inner.files.iter().filter(|&(&of, _)| of != node);
        let is_shared = others.any(|(_, file)| !file.handles.is_empty());
        if is_shared { 0 } else { self.last }
    }

    /// The same for a write that does not come from the kernel's cache: also its file's own, which
    /// it was granted. Those that no file is known to have may be other files'.
    pub(crate) fn spendable(&self, node: u64) -> u64 {
        let last = self.last_for(node);
        let inner = self.inner.lock();
        let own = inner
            .files
            .get(&node)
            .map_or(0, |file| file.exposure.total());
        own + last
    }

    /// Time until a drain is late, if nothing is granted meanwhile.
    pub(crate) fn until_late(&self) -> Duration {
        self.inner.lock().until_late(self.grace)
    }

    /// The kernel is about to write back all that is dirty. [`OpenFiles::end_drain`] has to follow.
    pub(crate) fn begin_drain(&self) {
        let mut inner = self.expose();
        let late = inner.until_late(self.grace).is_zero();
        inner.is_late = late;
        if late {
            let now = Instant::now();
            inner.last_late = Some(now);
            if inner.unasked.recent() > 0 {
                let open = |file: &&mut OpenFile| !file.handles.is_empty();
                for file in inner.files.values_mut().filter(open) {
                    file.granted = Some(now);
                }
            }
        }
        inner.exposures().for_each(|one| one.begin_drain(late));
        self.unasked.store(0, Ordering::SeqCst);
    }

    /// The drain has ended. Unless it is `done`, everything counts as before.
    pub(crate) fn end_drain(&self, done: bool) {
        let mut inner = self.expose();
        let late = inner.is_late;
        inner.exposures().for_each(|one| one.end_drain(late, done));
        let unasked = inner.unasked.current();
        self.unasked.store(unasked, Ordering::SeqCst);
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
mod tests;
