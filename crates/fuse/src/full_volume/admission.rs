//! The decision whether a write may pass, for all files of a mount that are open for writing.
//!
//! # Responsibility
//! Each change goes through [`Admission::step`]. There is no clock, lock or device here: the caller
//! has these ([`Host`]).
//!
//! A write that has passed is *granted*: its thread may not have copied the data yet. It is *dirty*
//! once the thread asks again, its handle is closed, or it has had [`GRACE`]. A drain takes off the
//! bytes that were dirty when it began. Writes that were not asked for count as the whole bound,
//! until [`Admission::all_ask`].
//!
//! If less than `last` is left and nothing is dirty, only the write-back shows whether a write
//! takes space, as overwriting does not. So one write passes at a time. A handle whose file has
//! grown by more than a little is refused once, then twice, four times and so on: a writer that
//! ignores ENOSPC does not use the last blocks up, and a database can still be opened.
//!
//! # Invariants
//! The bytes that may be dirty fit into the room, but for a single write where less than `last` is
//! left. A question that is asked for the last time is not told to wait.

use std::collections::BTreeMap;
use std::time::Duration;

use super::shown_blocks::{BlocksNote, ShownBlocks};
use crate::errno::Errno;

/// Bytes that one write is assumed to dirty at most.
pub(crate) const A_WRITE: u64 = 1 << 20;

/// Time that a thread has, from its answer on, to dirty its pages. It may have to wait for a
/// processor, memory, or the rest of a page that it writes in part; Linux has it pause so long at
/// most when much is dirty.
pub(crate) const GRACE: Duration = Duration::from_millis(200);

/// The most writes of a handle that are refused for one that took space, as a power of two.
const MAX_REFUSALS_LOG2: u32 = 20;

/// How often the kernel is asked to drop an unused inode of which it has something wrong. It cannot
/// while the file is in use.
const MAX_PRUNES: u32 = 1000;

/// Time on the clock of the mount.
pub(crate) type Moment = Duration;

/// Facts of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Limits {
    /// Bytes that the kernel holds dirty at most.
    pub(crate) bound: u64,
    /// Distance of the thresholds from the bound, and from each other.
    pub(crate) margin: u64,
    /// The last bytes of the volume.
    pub(crate) last: u64,
    /// The kernel can be made to write back.
    pub(crate) can_drain: bool,
}

/// Surroundings of the decision.
pub(crate) trait Host {
    /// Bytes that root's files, or others, may still take.
    fn room(&self, privileged: bool) -> u64;
    /// Operations that take space by name leave so much free from now on.
    fn leave_free(&self, bytes: u64);
    /// Returns whether such operations are parked.
    fn has_takers(&self) -> bool;
}

/// The source of a write. A thread that is not known has the number zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Writer {
    pub(crate) node: u64,
    pub(crate) handle: u64,
    pub(crate) thread: u32,
}

/// A write that asks to pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question {
    pub(crate) writer: Writer,
    /// Bytes that the file has on the volume.
    pub(crate) taken: u64,
    /// The file is root's.
    pub(crate) privileged: bool,
    pub(crate) occasion: Occasion,
}

/// The occasion of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Occasion {
    /// The request may be parked, and may stay so.
    Early,
    /// It cannot be parked.
    Unparked,
    /// It was parked: this is the end of its wait.
    Last,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Pass,
    /// The write waits for drains.
    Wait,
    Refuse(Errno),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Ample,
    /// Some write may still come that was not asked about, if not `all_ask`.
    Short {
        all_ask: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Handle {
    /// Failures that it was told of, or that are older.
    told: u64,
    /// Bytes that the file had when this was last looked at.
    seen: u64,
    /// Bytes of the last ones that it took without being refused.
    little: u64,
    /// Times that it took more.
    greed: u32,
    /// Writes that are still to be refused.
    refusals: u32,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct OpenFile {
    handles: BTreeMap<u64, Handle>,
    failures: u64,
    /// Error of the last one.
    error: Option<Errno>,
    /// The kernel has something of the file wrong, such as a size that is too large, for as long as
    /// it has its inode.
    wrong: bool,
    /// How often the kernel was asked to drop it since it was closed.
    prunes: u32,
    blocks: ShownBlocks,
}

/// A write that was let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Grant {
    since: Moment,
    /// The file and its handle, 0 where writers share one.
    by: (u64, u64),
}

/// See the module's header. Files are named by node number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Admission {
    limits: Limits,
    state: State,
    /// Times that space has become short.
    shortages: u64,
    files: BTreeMap<u64, OpenFile>,
    /// Writes that were let pass, by thread.
    grants: BTreeMap<u64, Grant>,
    /// Grants to threads that are not known, so far.
    strangers: u64,
    dirty: u64,
    draining: u64,
    /// Bytes of the last ones that handles took without being refused.
    little: u64,
}

impl Admission {
    /// The decision for a volume with so much room, of which no file is open yet.
    pub(crate) fn new(limits: Limits, room: u64) -> Self {
        Self {
            limits,
            state: match room < limits.bound + limits.margin {
                true => State::Short { all_ask: true },
                false => State::Ample,
            },
            shortages: 0,
            files: BTreeMap::new(),
            grants: BTreeMap::new(),
            strangers: 0,
            dirty: 0,
            draining: 0,
            little: 0,
        }
    }

    /// Makes a change, and sees what follows from it and from the room that there is.
    pub(crate) fn step<R>(&mut self, host: &impl Host, change: impl FnOnce(&mut Self) -> R) -> R {
        let result = change(self);
        let (room, short) = (host.room(false), self.limits.bound + self.limits.margin);
        let is_wanted = host.has_takers();
        if self.state == State::Ample && (room < short || is_wanted) {
            self.state = State::Short { all_ask: false };
            self.shortages += 1;
        } else if room >= short + self.limits.margin && !is_wanted {
            self.state = State::Ample;
            self.grants.clear();
            (self.dirty, self.draining, self.little) = (0, 0, 0);
        }
        host.leave_free(self.left_free());
        result
    }

    pub(crate) fn is_short(&self) -> bool {
        self.state != State::Ample
    }

    /// Bytes that may be dirty, or will be when the writers that were let pass have written. The
    /// kernel keeps its bound, and has those wait meanwhile.
    pub(crate) fn may_be_dirty(&self) -> u64 {
        let dirty = match self.state {
            State::Short { all_ask: true } => self.limits.bound.min(self.dirty + self.draining),
            _ => self.limits.bound,
        };
        dirty + self.grants.len() as u64 * A_WRITE
    }

    /// Bytes that operations leave free which take space by name.
    fn left_free(&self) -> u64 {
        let last = self.limits.last - self.last_for(0);
        self.may_be_dirty() + last
    }

    /// Bytes of the last ones that an operation on `node` need not leave: all, if no other file is
    /// open for writing.
    pub(crate) fn last_for(&self, node: u64) -> u64 {
        let mut others = self.files.iter().filter(|&(&of, _)| of != node);
        let is_shared = others.any(|(_, file)| !file.handles.is_empty());
        if is_shared { 0 } else { self.limits.last }
    }

    /// The number of the shortage, if there are files that do not ask yet, maybe: what the kernel
    /// knows of them is from times of plenty.
    pub(crate) fn unasked_since(&self) -> Option<u64> {
        (self.state == State::Short { all_ask: false }).then_some(self.shortages)
    }

    /// All files ask since this shortage, and what was written unasked is written back.
    pub(crate) fn all_ask(&mut self, shortage: u64) {
        if self.unasked_since() == Some(shortage) {
            self.state = State::Short { all_ask: true };
        }
    }

    pub(crate) fn open(&mut self, node: u64, handle: u64, taken: u64) {
        let file = self.files.entry(node).or_default();
        if file.handles.is_empty() {
            file.blocks = ShownBlocks::known(taken);
        }
        let fresh = Handle {
            told: file.failures,
            seen: taken,
            ..Handle::default()
        };
        file.handles.insert(handle, fresh);
    }

    /// Returns whether the kernel has something wrong of a file that is not open any more.
    pub(crate) fn close(&mut self, node: u64, handle: u64) -> bool {
        let Some(file) = self.files.get_mut(&node) else {
            return false;
        };
        file.handles.remove(&handle);
        file.prunes = 0;
        let is_over = file.handles.is_empty();
        let is_left = is_over && file.wrong;
        if is_over && !is_left {
            self.files.remove(&node);
        }
        if handle != 0 {
            // A write holds its handle: those by this one have reached the cache.
            let granted = self.grants.len();
            self.grants.retain(|_, grant| grant.by != (node, handle));
            self.dirty += (granted - self.grants.len()) as u64 * A_WRITE;
        }
        if self.last_for(0) > 0 {
            // No file is open: the kernel has written all back.
            self.grants.clear();
            (self.dirty, self.draining) = (0, 0);
        }
        is_left
    }

    /// The kernel has dropped the inode. It may have opened the file again since: only where opens
    /// send no message is this the end of the handle, 0, that writers share.
    pub(crate) fn forget(&mut self, node: u64) {
        let is_open = |file: &OpenFile| file.handles.keys().any(|&handle| handle != 0);
        if !self.files.get(&node).is_some_and(is_open) {
            self.files.remove(&node);
        }
    }

    /// Pages of the file that the kernel wrote back are lost.
    pub(crate) fn lose(&mut self, node: u64, error: Errno) {
        let file = self.files.entry(node).or_default();
        file.failures += 1;
        file.error = Some(error);
        file.wrong = true;
    }

    pub(crate) fn ask(&mut self, of: &Question, now: Moment, host: &impl Host) -> Verdict {
        self.arrive(of.writer.thread);
        if let Some(error) = self.untold(of) {
            return Verdict::Refuse(error);
        }
        if !self.is_short() {
            return Verdict::Pass;
        }
        let (before, Limits { last, .. }) = (self.may_be_dirty(), self.limits);
        let key = self.grant(of.writer, now);
        // Operations that take space leave it before the room is looked at.
        host.leave_free(self.left_free());
        let room = host.room(of.privileged);
        let is_early = of.occasion == Occasion::Early;
        let verdict = if is_early && host.has_takers() {
            Verdict::Wait
        } else if before + A_WRITE.max(last) <= room {
            self.start_afresh(of);
            Verdict::Pass
        } else if is_early {
            Verdict::Wait
        } else if of.occasion == Occasion::Unparked || before > 0 && self.limits.can_drain {
            // It cannot be written back.
            Verdict::Refuse(Errno::NOSPC)
        } else if room < last && self.is_refused(of) {
            Verdict::Refuse(Errno::NOSPC)
        } else {
            Verdict::Pass
        };
        if verdict != Verdict::Pass {
            self.grants.remove(&key);
        }
        verdict
    }

    /// The error of data that is lost, if the handle is still to be told of some. Each is told
    /// once.
    fn untold(&mut self, of: &Question) -> Option<Errno> {
        let file = self.files.get_mut(&of.writer.node)?;
        // Where opens send no message all writers of a file share one handle, 0, that knows of
        // nothing yet. Any other number is of a handle that is closed.
        let handle = match of.writer.handle {
            0 => file.handles.entry(0).or_default(),
            number => file.handles.get_mut(&number)?,
        };
        if std::mem::replace(&mut handle.told, file.failures) == file.failures {
            return None;
        }
        handle.seen = of.taken;
        if file.error == Some(Errno::NOSPC) {
            // It took the last of the space. This is the first refusal for that.
            handle.took_space();
            handle.refusals -= 1;
        }
        file.error
    }

    /// Failures that the handle of a writer was told of.
    pub(crate) fn told(&self, of: Writer) -> u64 {
        let file = self.files.get(&of.node);
        let handle = file.and_then(|file| file.handles.get(&of.handle));
        handle.map_or(0, |handle| handle.told)
    }

    /// An answer did not reach its writer, whose handle was `told` of so many failures before.
    pub(crate) fn untell(&mut self, of: Writer, told: u64) {
        let file = self.files.get_mut(&of.node);
        if let Some(handle) = file.and_then(|file| file.handles.get_mut(&of.handle)) {
            handle.told = handle.told.min(told);
        }
    }

    fn handle(&mut self, of: &Question) -> Option<&mut Handle> {
        let file = self.files.get_mut(&of.writer.node)?;
        file.handles.get_mut(&of.writer.handle)
    }

    /// Returns whether a write is refused where little is left and nothing is dirty: its handle
    /// took some of that.
    fn is_refused(&mut self, of: &Question) -> bool {
        // Of all, and of one handle.
        let (in_all, by_one) = (self.limits.last / 3, self.limits.last / 24);
        let mut little = self.little;
        let Some(handle) = self.handle(of) else {
            return false;
        };
        let grown = of.taken.saturating_sub(handle.seen);
        handle.seen = of.taken;
        if little + grown <= in_all && handle.little + grown <= by_one {
            little += grown;
            handle.little += grown;
        } else if grown > 0 {
            handle.took_space();
        }
        let is_refused = handle.refusals > 0;
        handle.refusals = handle.refusals.saturating_sub(1);
        self.little = little;
        is_refused
    }

    /// There is space: what a handle took of the last does not count any more.
    fn start_afresh(&mut self, of: &Question) {
        self.little = 0;
        if let Some(handle) = self.handle(of) {
            *handle = Handle {
                told: handle.told,
                seen: of.taken,
                ..Handle::default()
            };
        }
    }

    fn grant(&mut self, writer: Writer, now: Moment) -> u64 {
        // A thread that is not known has a new number each time.
        self.strangers += u64::from(writer.thread == 0);
        let key = match writer.thread {
            0 => self.strangers << 32,
            known => known.into(),
        };
        let grant = Grant {
            since: now,
            by: (writer.node, writer.handle),
        };
        self.grants.insert(key, grant);
        key
    }

    /// Counts a thread's earlier grant as dirty: it does something else now.
    pub(crate) fn arrive(&mut self, thread: u32) {
        let grant = self.grants.remove(&thread.into());
        self.dirty += grant.map_or(0, |_| A_WRITE);
    }

    /// Time until a drain takes off all that was granted by now.
    pub(crate) fn until_arrived(&self, now: Moment) -> Duration {
        let left = |grant: &Grant| (grant.since + GRACE).saturating_sub(now);
        self.grants.values().map(left).max().unwrap_or_default()
    }

    /// The kernel is about to write back all that is dirty.
    pub(crate) fn begin_drain(&mut self, now: Moment) {
        let granted = self.grants.len();
        self.grants.retain(|_, grant| now < grant.since + GRACE);
        let arrived = (granted - self.grants.len()) as u64 * A_WRITE;
        self.draining += arrived + std::mem::take(&mut self.dirty);
    }

    /// It has, if `done`.
    pub(crate) fn end_drain(&mut self, done: bool) {
        let drained = std::mem::take(&mut self.draining);
        self.dirty += if done { 0 } else { drained };
    }

    /// Files that are open for writing.
    pub(crate) fn open_files(&self) -> Vec<u64> {
        let open = |file: &OpenFile| !file.handles.is_empty();
        let files = self.files.iter().filter(|(_, file)| open(file));
        files.map(|(&node, _)| node).collect()
    }

    /// Notes that `node` has `taken` bytes after an fsync, and returns when the kernel is to be
    /// told. Of files that are not open for writing it knows.
    pub(crate) fn show(&mut self, node: u64, taken: u64, now: Moment) -> BlocksNote {
        let file = self.files.get_mut(&node);
        file.map_or(BlocksNote::None, |file| file.blocks.show(taken, now))
    }

    /// Notes that a caller looks at the attributes of `node`.
    pub(crate) fn looked_at(&mut self, node: u64) {
        if let Some(file) = self.files.get_mut(&node) {
            file.blocks.looked_at();
        }
    }

    /// Files whose blocks the kernel is to be told of now, and the time until others are due.
    pub(crate) fn due_blocks(&mut self, now: Moment) -> (Vec<u64>, Option<Duration>) {
        let (mut due, mut next) = (Vec::new(), None);
        for (&node, file) in &mut self.files {
            match file.blocks.until_due(now) {
                None => {}
                Some(left) if left.is_zero() => {
                    file.blocks.sent(now);
                    due.push(node);
                }
                Some(left) => next = Some(next.map_or(left, |next: Duration| next.min(left))),
            }
        }
        (due, next)
    }

    /// Notes that the kernel has something of `node` wrong that it keeps with the inode. It is to
    /// drop that once the file is closed.
    pub(crate) fn note_wrong(&mut self, node: u64) {
        self.files.entry(node).or_default().wrong = true;
    }

    /// Files that are closed and of which the kernel has something wrong. Each is returned so often
    /// after a close, and no more.
    pub(crate) fn next_to_prune(&mut self) -> Vec<u64> {
        let due = self.files.iter_mut().filter_map(|(&node, file)| {
            let is_due = file.wrong && file.handles.is_empty() && file.prunes < MAX_PRUNES;
            file.prunes += u32::from(is_due);
            is_due.then_some(node)
        });
        due.collect()
    }
}

impl Handle {
    /// A write took space of which little is left.
    fn took_space(&mut self) {
        self.refusals = self.refusals.max(1 << self.greed);
        self.greed = MAX_REFUSALS_LOG2.min(self.greed + 1);
    }
}

#[cfg(test)]
impl Admission {
    /// The number of the shortage since whose beginning all files ask, if there is one.
    pub(crate) fn asked_since(&self) -> Option<u64> {
        (self.state == State::Short { all_ask: true }).then_some(self.shortages)
    }

    /// The moment at which the last write of a thread was let pass, if it is not known to be dirty.
    pub(crate) fn granted_since(&self, thread: u32) -> Option<Moment> {
        let grant = self.grants.get(&thread.into());
        grant.map(|grant| grant.since)
    }

    /// Failures of the write-back of `node`.
    pub(crate) fn failures(&self, node: u64) -> u64 {
        self.files.get(&node).map_or(0, |file| file.failures)
    }

    /// So much more is dirty.
    pub(crate) fn dirty(&mut self, bytes: u64) {
        self.dirty += bytes;
    }
}
