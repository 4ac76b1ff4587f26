//! The questions of writes and their answers, and the thread that drains: see
//! [`crate::full_volume`].
//!
//! # Concurrency
//! A writer that is interrupted leaves with EINTR, at once. A worker fills its slot of `InFlight`
//! (1), parks the request (2), and looks whether its slot was interrupted (3) before it empties
//! it. An INTERRUPT is noted in the slot (4) before it looks at those that are parked (5). If (4)
//! finds the slot filled, either (5) comes after (2) and finds the request, or (3) comes after (4)
//! and sees the note. If (4) comes before (1), (1) is told (`InFlight`), and (3) sees that. If (4)
//! comes after the slot was emptied, (5) comes after (2). Only one of (3), (5) and the thread that
//! answers takes a request out.
//!
//! # Locks
//! `admission` is held while the room is read and the engine's bound is set, both by atomics: a
//! leaf, as the lock of `parking` is.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use extant_engine::{Attr, FileKind, Node};
use tracing::{debug, error};

use super::planted::Mistake;
use super::{Completion, FOREVER, Outcome, Server};
use crate::abi::{EntryOut, InHeader, OpenOut};
use crate::errno::Errno;
use crate::full_volume::admission::{Admission, GRACE, Host, Occasion, Question, Verdict, Writer};
use crate::full_volume::drainer::Drainer;
use crate::full_volume::parking::{Turn, Waiting, Wants};
use crate::full_volume::shown_blocks::BlocksNote;
use crate::reply::{ReplyBuf, ReplyMemory};

/// The unit of [`Attr::blocks`] in bytes.
const BLOCK: u64 = 512;

/// The set-id bits of a mode.
const SET_ID: u16 = 0o6000;

/// How often a drain looks whether the WRITEs are answered.
const LOOK: Duration = Duration::from_micros(20);
/// How often a round looks whether writers that were let pass ask again.
const LOOK_AT_WRITERS: Duration = Duration::from_micros(200);
/// Time between two attempts to have the kernel drop an inode.
const PRUNE: Duration = Duration::from_millis(4);
/// Times that open files are armed when space becomes short: at once, after a millisecond, and
/// then after the double time each. The kernel takes the attributes in some replies (to SETATTR,
/// CREATE and LINK) whatever it was told meanwhile, and the callers of those that were sent while
/// there was space may look at them late.
const ARMS: u32 = 9;

/// Bytes behind the header of a reply that is sent later: that to CREATE has most.
const LATE_REPLY_LEN: usize = size_of::<EntryOut>() + size_of::<OpenOut>();

impl Host for Server<'_> {
    fn room(&self, privileged: bool) -> u64 {
        self.volume.room(privileged)
    }

    fn leave_free(&self, bytes: u64) {
        self.full.bound.set(bytes);
    }

    fn has_takers(&self) -> bool {
        self.full.parking.has_takers()
    }
}

impl Server<'_> {
    /// Makes a change of the admission.
    pub(super) fn step<R>(&self, change: impl FnOnce(&mut Admission) -> R) -> R {
        let full = &self.full;
        let mut admission = full.admission.lock();
        let result = admission.step(self, change);
        let is_short = admission.is_short();
        let was_short = full.is_short.swap(is_short, Ordering::SeqCst);
        drop(admission);
        if is_short && !was_short {
            full.parking.wake();
        }
        result
    }

    /// Looks whether space has become short, or is no longer.
    pub(super) fn look_at_room(&self) {
        self.step(|_| ());
    }

    /// Returns whether each write asks.
    pub(super) fn is_short(&self) -> bool {
        self.settings.agreed.writeback && self.full.is_short.load(Ordering::SeqCst)
    }

    /// Seconds that the kernel may keep these attributes. Where it may not it asks before a write,
    /// and before a read at the end of a file.
    pub(super) fn attr_valid(&self, attr: &Attr) -> u64 {
        // A guest is not told that a write has cleared them.
        let may_change = self.device.is_guest() && attr.perm & SET_ID != 0;
        match attr.kind == FileKind::Regular && (self.is_short() || may_change) {
            true => 0,
            false => FOREVER,
        }
    }

    /// A file is opened for writing; returns its handle.
    ///
    /// # Errors
    /// The file is sealed, or about to be.
    pub(super) fn register_writer(&self, id: u64, node: &Node, attr: &Attr) -> Result<u64, Errno> {
        let access = self.volume.open_for_writing(node)?;
        let handle = self.full.last_handle.fetch_add(1, Ordering::Relaxed) + 1;
        self.writers.enter(handle, access);
        if self.settings.agreed.writeback {
            self.admit_writer(id, handle, attr);
        }
        Ok(handle)
    }

    fn admit_writer(&self, node: u64, handle: u64, attr: &Attr) {
        self.step(|admission| admission.open(node, handle, attr.blocks * BLOCK));
        if self.is_short() {
            // What the kernel knows of the file may be from times of plenty.
            self.notify_inval_attributes(node);
        }
    }

    /// A handle that was opened for writing is closed. A size that the kernel has wrong may be
    /// forgotten now.
    pub(super) fn closed_for_writing(&self, node: u64, handle: u64) {
        if handle == 0 {
            return;
        }
        self.writers.leave(handle);
        let is_counted = self.settings.agreed.writeback;
        if is_counted && self.step(|admission| admission.close(node, handle)) {
            self.full.parking.wake();
        }
    }

    /// Pages of `node` that the kernel wrote back are lost: the writers will be told.
    pub(super) fn write_back_failed(&self, node: u64, error: Errno) {
        if !self.planted.is(Mistake::LossNotTold) {
            self.step(|admission| admission.lose(node, error));
        }
        self.notify_inval_attributes(node);
    }

    /// Notes that the kernel has something of `node` wrong that it keeps with the inode.
    pub(super) fn note_wrong(&self, node: u64) {
        self.step(|admission| admission.note_wrong(node));
        self.full.parking.wake();
    }

    /// Tells the kernel that what it has of the attributes of `node` is old. An answer that is
    /// under way counts as older.
    pub(super) fn notify_inval_attributes(&self, node: u64) {
        if let Err(error) = self.device.invalidate(node, -1) {
            error!("the kernel cannot be told of old attributes: {error}");
        }
    }

    /// Tells the kernel to ask for the attributes of `node` if their number of blocks is news: now,
    /// or in a while if it was told just now and has not looked since.
    pub(super) fn show_blocks(&self, id: u64, node: &Node) -> Result<(), Errno> {
        let taken = self.volume.getattr(node)?.blocks * BLOCK;
        let now = self.time_of_notes();
        match self.step(|admission| admission.show(id, taken, now)) {
            BlocksNote::None => {}
            BlocksNote::Now => self.notify_inval_attributes(id),
            BlocksNote::Later => self.full.parking.wake(),
        }
        Ok(())
    }

    fn time_of_notes(&self) -> Duration {
        match self.planted.is(Mistake::DueBlocksForgotten) {
            true => Duration::ZERO,
            false => self.full.begun.elapsed(),
        }
    }

    /// Tells the kernel of blocks that it was not told of at once. Returns the time until there are
    /// others to tell of.
    fn show_due_blocks(&self) -> Option<Duration> {
        let now = self.time_of_notes();
        let (due, next) = self.full.admission.lock().due_blocks(now);
        for node in due {
            self.notify_inval_attributes(node);
        }
        next
    }

    /// Notes that a caller looks at the attributes of a file.
    pub(super) fn note_look(&self, node: u64) {
        if self.settings.agreed.writeback {
            self.full.admission.lock().looked_at(node);
        }
    }

    /// Bytes that are left free, and that an operation on `node` may take.
    pub(super) fn last_for(&self, node: u64) -> u64 {
        self.full.admission.lock().last_for(node)
    }

    /// Returns whether a handle may be a writer's. Readers have handle 0, as all have that were not
    /// opened here.
    pub(super) fn may_write(&self, handle: u64) -> bool {
        handle != 0 || !self.kernel_sends_open()
    }

    /// Answers the GETATTR that comes before a write.
    pub(super) fn gate(&self, header: &InHeader, handle: u64, reply: &mut ReplyBuf) -> Outcome {
        if !self.settings.agreed.writeback {
            return self.getattr(header.nodeid, reply);
        }
        let writer = Writer {
            node: header.nodeid,
            handle,
            thread: header.pid,
        };
        let mut outcome = self.ask(writer, Occasion::Early)?;
        if outcome.is_none() {
            // A ring's entry is kept for each: there are not as many as there may be writers.
            if self.device.try_defer_reply(reply.queue()) {
                self.wait(Waiting {
                    unique: header.unique,
                    queue: reply.queue(),
                    wants: Wants::ToPass(writer),
                });
                return Ok(Completion::Deferred);
            }
            outcome = self.ask(writer, Occasion::Unparked)?;
        }
        reply.put(&self.attr_out(&outcome.ok_or(Errno::NOSPC)?))?;
        Ok(Completion::Reply)
    }

    /// Asks for a write. Returns the attributes of its file if it passes, `None` if it waits.
    fn ask(&self, of: Writer, occasion: Occasion) -> Result<Option<Attr>, Errno> {
        let attr = self.volume.getattr(&self.nodes.get(of.node)?)?;
        let question = Question {
            writer: of,
            taken: attr.blocks * BLOCK,
            privileged: attr.uid == 0,
            occasion,
        };
        let now = self.full.begun.elapsed();
        match self.step(|admission| admission.ask(&question, now, self)) {
            Verdict::Wait => Ok(None),
            Verdict::Refuse(errno) => Err(errno),
            Verdict::Pass => Ok(Some(attr)),
        }
    }

    /// Parks a request, unless it was interrupted.
    pub(super) fn wait(&self, one: Waiting) {
        let unique = one.unique;
        self.full.parking.park(one);
        if self.in_flight.is_interrupted(unique) {
            self.interrupt_parked(unique);
        }
    }

    /// The caller of a request was interrupted. A parked one ends with EINTR now, and what is
    /// served ends early where it has changed nothing.
    pub(super) fn interrupt(&self, unique: u64) {
        self.in_flight.interrupt(unique);
        if self.interrupt_parked(unique) {
            self.in_flight.forget_interruption(unique);
        }
    }

    /// Answers a request with EINTR if it is parked.
    fn interrupt_parked(&self, unique: u64) -> bool {
        let left = self.full.parking.leave(unique);
        if let Some(one) = &left
            && !self.planted.is(Mistake::InterruptedWriterUnanswered)
        {
            let mut space = ReplyMemory::new(0);
            self.send(one, space.start().finish(unique, Err(Errno::INTR)));
        }
        left.is_some()
    }

    /// Sends the reply to a request that was parked. Returns whether it arrived.
    pub(super) fn send(&self, one: &Waiting, reply: &[u8]) -> bool {
        let sent = self
            .device
            .send_deferred_reply(one.queue, one.unique, reply);
        sent.unwrap_or_else(|error| {
            error!("a request that has waited is not answered: {error}");
            false
        })
    }

    /// Has drains done by `drainer` instead of by a thread for the mount.
    pub(crate) fn use_drainer(&self, drainer: Drainer) {
        *self.full.drainer.lock() = Some(drainer);
    }

    /// The thread of the gates: drains, serves the operations again that wait for space, answers
    /// the writers that wait, and has the kernel forget what it has wrong or old. Returns after
    /// [`Server::stop`].
    pub(crate) fn answer_writers(&self) {
        let mut space = ReplyMemory::new(LATE_REPLY_LEN);
        let mut pause = None;
        while let Some(round) = self.full.parking.next_round(pause) {
            let tell_again = self.drop_stale_pages();
            let prune = self.prune().then_some(PRUNE);
            let pauses = [tell_again, prune, self.show_due_blocks()];
            pause = pauses.into_iter().flatten().min();
            let serve = || {
                self.have_all_ask();
                if !round.is_empty() {
                    self.serve_round(&round, &mut space);
                }
            };
            if catch_unwind(AssertUnwindSafe(serve)).is_err() {
                self.refuse_after_panic(&round);
            }
        }
    }

    /// A bug surfaced in a round: nothing may be changed any more, and none of the round waits.
    fn refuse_after_panic(&self, round: &[Turn]) {
        error!("an answer to a parked request ended in a bug; the file system is shut down");
        if let Err(error) = self.volume.shutdown(false) {
            error!("shutting down: {error}");
        }
        for turn in round {
            if let Some(one) = self.full.parking.leave(turn.unique) {
                let mut space = ReplyMemory::new(0);
                self.send(&one, space.start().finish(one.unique, Err(Errno::IO)));
            }
        }
    }

    /// Has the kernel ask before each write from now on, if space has become short.
    fn have_all_ask(&self) {
        let unasked_since = || self.full.admission.lock().unasked_since();
        let Some(shortage) = unasked_since() else {
            return;
        };
        for arm in 0..ARMS {
            if arm > 0 && self.planted.is(Mistake::ArmedOnce) {
                break;
            }
            if arm > 0 {
                thread::sleep(Duration::from_millis(1 << (arm - 1)));
            }
            if self.full.parking.is_stopped() || unasked_since() != Some(shortage) {
                return;
            }
            let files = self.full.admission.lock().open_files();
            for node in files {
                self.notify_inval_attributes(node);
            }
        }
        thread::sleep(GRACE);
        if self.drain(&[]) || !self.settings.point.can_write_back() {
            self.step(|admission| admission.all_ask(shortage));
        }
    }

    /// Drains, and answers those of the requests that can be.
    fn serve_round(&self, round: &[Turn], space: &mut ReplyMemory) {
        // No writer passes while such operations are parked. Those that passed before are waited
        // for, so that the drain covers them.
        if round.iter().any(|turn| turn.writer.is_none()) {
            self.wait_for_writers();
        }
        let drained = self.drain(round);
        for turn in round.iter().filter(|turn| turn.writer.is_none()) {
            if let Some(one) = self.full.parking.leave(turn.unique) {
                self.serve_again(&one, drained, space);
            }
        }
        if self.let_pass(round, Occasion::Early, space) {
            return;
        }
        if self.full.admission.lock().may_be_dirty() > 0 {
            self.wait_for_writers();
            self.drain(round);
        }
        self.let_pass(round, Occasion::Last, space);
    }

    /// Answers those of the writers that need not wait any longer, on the last occasion all up to
    /// one that passes. Returns whether it has answered one, or none waits.
    fn let_pass(&self, round: &[Turn], mut occasion: Occasion, space: &mut ReplyMemory) -> bool {
        let (mut answered, mut is_one_left) = (0, false);
        for turn in round {
            // One that was interrupted has left.
            let Some(writer) = turn.writer else {
                continue;
            };
            if !self.full.parking.is_parked(turn.unique) {
                continue;
            }
            let mut reply = space.start();
            let told = self.full.admission.lock().told(writer);
            let outcome = match self.ask(writer, occasion) {
                // Those before it may have what there is.
                Ok(None) => {
                    is_one_left = true;
                    break;
                }
                Ok(Some(attr)) => {
                    occasion = Occasion::Early;
                    reply.put(&self.attr_out(&attr))
                }
                Err(errno) => Err(errno),
            };
            let reply = reply.finish(turn.unique, outcome);
            answered += u32::from(self.answer(turn.unique, (writer, told), reply));
        }
        answered > 0 || !is_one_left
    }

    /// Sends the reply to the question of a writer, whose handle was `told` of so many failures
    /// before. Returns whether it still waited: what one that has left just now was granted counts
    /// until it is drained, and a loss is still to be told.
    fn answer(&self, unique: u64, (writer, told): (Writer, u64), reply: &[u8]) -> bool {
        let left = self.full.parking.leave(unique);
        match &left {
            Some(one) => {
                self.send(one, reply);
            }
            None => self.full.admission.lock().untell(writer, told),
        }
        left.is_some()
    }

    /// Waits until writers that were let pass have dirtied their pages, so that a drain takes off
    /// what they were granted. Those that are let pass meanwhile are waited for no longer.
    fn wait_for_writers(&self) {
        let begun = Instant::now();
        loop {
            let now = self.full.begun.elapsed();
            let left = self.full.admission.lock().until_arrived(now);
            if left.is_zero() || begun.elapsed() > GRACE || self.device.is_gone() {
                return;
            }
            thread::sleep(left.min(LOOK_AT_WRITERS));
            self.refuse_late();
        }
    }

    /// Has the kernel write back what is dirty. Returns whether it did and the WRITEs were answered
    /// in time: otherwise what writers may have dirtied still counts. The requests of `round` wait
    /// for it.
    fn drain(&self, round: &[Turn]) -> bool {
        self.full.drains.fetch_add(1, Ordering::Relaxed);
        let now = self.full.begun.elapsed();
        self.step(|admission| admission.begin_drain(now));
        let has_left = |turn: &Turn| !self.full.parking.is_parked(turn.unique);
        let done = self.write_back()
            && self.wait_for_writes()
            && !(self.planted.is(Mistake::SignalEndsDrain) && round.iter().any(has_left));
        let failures = &self.full.failed_drains;
        failures.fetch_add(u64::from(!done), Ordering::Relaxed);
        // Space of deleted files comes back by this.
        let _ = self.volume.statfs();
        self.step(|admission| admission.end_drain(done));
        done
    }

    fn write_back(&self) -> bool {
        let mut drainer = self.full.drainer.lock();
        if drainer.is_none() {
            match Drainer::start(&self.settings.point) {
                Ok(started) => *drainer = Some(started),
                Err(error) => debug!("no thread to drain dirty pages now: {error}"),
            }
        }
        let drain = |drainer: &Drainer| drainer.drain(self.device, || self.refuse_late());
        drainer.as_ref().is_some_and(drain)
    }

    /// Waits until the WRITEs that the kernel has sent are answered: starting to write back all
    /// files, which is what the drainer asks for, does not wait for that.
    fn wait_for_writes(&self) -> bool {
        if self.planted.is(Mistake::DrainDoesNotWait) {
            return true;
        }
        let begun = Instant::now();
        while !self.device.has_no_writes() {
            if self.device.is_gone() || begun.elapsed() > self.full.patience {
                return false;
            }
            thread::sleep(LOOK);
            self.refuse_late();
        }
        true
    }

    /// Has the kernel forget what it has wrong of closed files. Returns whether some is left.
    fn prune(&self) -> bool {
        let wrong = self.full.admission.lock().next_to_prune();
        if wrong.is_empty() {
            return false;
        }
        // Kernels that do not know the message keep the size until they drop the inode by
        // themselves.
        let pruned = self.device.prune(&wrong);
        if let Err(error) = &pruned {
            debug!("sizes stay as they are: {error}");
        }
        pruned.is_ok()
    }

    /// Ends the thread of the gates.
    pub(crate) fn stop(&self) {
        self.full.parking.stop();
    }
}

#[cfg(test)]
mod tests;
