//! Space for what the kernel's cache takes: a writer is told in time that the volume is full.
//!
//! # Responsibility
//! With `writeback_cache` the kernel takes writes without asking. Before each it does ask for a
//! file's attributes, with the handle, if it was told that they are out of date; an error in the
//! answer becomes the error of the write. So a file is *armed* by telling the kernel so, and the
//! answer to that GETATTR is the *gate* of the write.
//!
//! As long as more space is left than the kernel can hold dirty pages, nothing is armed, unless a
//! write-back has failed; as much counts as dirty ([`Server::is_short`]). From there on a ticker
//! arms all files that are open for writing every [`TICK`], so that a writer passes a gate now and
//! then; below [`TIGHT`] the gate arms the file again, so that each write passes one. The gate
//! counts what writers may have dirtied since their last gates (`Exposure`); other
//! operations leave it free (`takers`). Where that may exceed the space that is left it has the
//! kernel write everything back first, by a [`Drainer`]. Write-backs of a file that took more than
//! a little of the last blocks are told to its writers as if they had failed: their data is there,
//! the next write is refused. Whether a later write takes space shows only once it is written back,
//! so the gate admits it; a handle whose writes do is refused ever longer (`OpenFiles::untold`).
//!
//! # Concurrency
//! A writer that has to wait for a drain keeps no worker: its request is answered later. One thread
//! drains and answers, so all workers are free for the WRITEs that the drain waits for.
//!
//! A writer that is interrupted leaves with EINTR, at once. A worker fills its slot of `InFlight`
//! (1), has the writer wait (2), and looks whether its slot was interrupted (3) before it empties
//! it. An INTERRUPT is noted in the slot (4) before it looks at those that wait (5). If (4) finds
//! the slot filled, either (5) comes after (2) and finds the writer, or (3) comes after (4) and
//! sees the note. If (4) comes before (1), (1) is told (`InFlight`), and (3) sees that. If (4)
//! comes after the slot was emptied, (5) comes after (2). Only one of (3), (5) and the thread that
//! answers takes a writer out.

use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use extant_engine::{Attr, Node};
use tracing::{debug, error};

use super::attrs::attr_out;
use super::{Done, Outcome, Server};
use crate::abi::{EntryOut, InHeader, OpenOut};
use crate::drainer::Drainer;
use crate::errno::Errno;
use crate::open_files::{GRACE, Refusal};
use crate::reply::{ReplyBuf, ReplySpace};
use crate::space::{A_WRITE, Ticker, Turn, Waiting, Wants};

/// How often files are armed while space is short.
const TICK: Duration = Duration::from_millis(4);
/// What a writer is assumed to dirty at most between two ticks.
const A_TICK: u64 = 32 << 20;
/// Below so much space each write passes a gate.
const TIGHT: u64 = 64 << 20;

/// The unit of [`Attr::blocks`] in bytes.
const BLOCK: u64 = 512;

/// How often a drain looks whether the WRITEs are answered.
const LOOK: Duration = Duration::from_micros(20);

/// How often a round looks whether writers that were let pass ask again.
const LOOK_AT_WRITERS: Duration = Duration::from_micros(200);

/// Drains for one answer: a grant counts until the second one after it.
const DRAINS: u32 = 2;

/// Bytes behind the header of a reply that is sent later: that to CREATE has most.
const LATE_REPLY_LEN: usize = size_of::<EntryOut>() + size_of::<OpenOut>();

impl Server<'_> {
    /// Bytes that a write-back of `attr`'s file may still take.
    fn room(&self, attr: &Attr) -> u64 {
        self.volume.room(attr.uid == 0)
    }

    /// Whether writers can dirty more than there is room for, or operations wait for space. Where
    /// it is not so writers are not asked, and may dirty as much as the kernel holds: until they
    /// are asked, and what they have dirtied is written back, that counts as dirty.
    pub(super) fn is_short(&self) -> bool {
        let limit = self.space.dirty_limit;
        if !self.settings.agreed.writeback {
            return false;
        }
        let is_short = || self.volume.room(false) < limit || self.space.has_takers();
        if is_short() {
            return true;
        }
        // What was taken before this counted may be what there was room for.
        self.open.leave_unasked(limit) && is_short()
    }

    /// A file is opened for writing: its handle, and whether it is to be armed before its first
    /// write. Otherwise its writers have until the next tick.
    pub(super) fn opened_for_writing(&self, node: u64, attr: &Attr) -> (u64, bool) {
        if !self.settings.agreed.writeback {
            return (0, false);
        }
        let handle = self.open.open(node, attr.blocks);
        let short = self.is_short();
        let arm = short && !(self.open).grant_within(node, A_TICK, || self.room(attr));
        if arm {
            self.open.set_armed(node, true);
        } else if short {
            self.space.wake();
        }
        (handle, arm)
    }

    /// A handle that was opened for writing is closed. A size that the kernel has wrong may be
    /// forgotten now.
    pub(super) fn closed_for_writing(&self, node: u64, handle: u64) {
        if self.open.close(node, handle) {
            self.space.wake();
        }
    }

    /// A reply is to carry the attributes of `node`, after which the kernel does not ask for them
    /// before the next write. Where that is needed the file is armed again, which makes the kernel
    /// keep nothing of the reply; the writers have until the next tick otherwise.
    ///
    /// A reply that does not last would arm the file as well. But then the kernel asks before reads
    /// at the end of the file, too, which must not be refused for space.
    pub(super) fn shows_attributes(&self, node: u64) {
        if !self.open.is_armed(node) {
            return;
        }
        let room = || self.volume.room(false);
        if self.is_short() && !self.open.grant_within(node, A_TICK, room) {
            self.arm(node);
        } else if self.open.set_armed(node, false) {
            self.space.wake();
        }
    }

    /// The same for the reply to CREATE, LINK or a change of attributes. The kernel takes their
    /// attributes even if it was told after they were made that they are old, and its caller may
    /// look at them late: so arming the file once may be in vain.
    pub(super) fn shows_attributes_for_good(&self, node: u64) {
        self.disarm(node);
        self.open.doubt(node);
    }

    /// The kernel does not ask before the next write of `node`.
    fn disarm(&self, node: u64) {
        if self.open.set_armed(node, false) {
            self.open.grant(node, A_TICK);
            self.space.wake();
        }
    }

    /// Pages of `node` that the kernel wrote back are lost: the writers will be told.
    pub(super) fn write_back_failed(&self, node: u64, errno: Errno) {
        self.open.fail(node, errno);
        self.arm(node);
    }

    /// Pages of a file that was as `before` were written back.
    pub(super) fn wrote_back(&self, id: u64, node: &Node, before: &Attr) {
        if !self.is_short() {
            return;
        }
        self.space.wake();
        if self.room(before) >= self.space.last {
            return;
        }
        let after = self.volume.getattr(node).ok();
        // None of a file that was cut meanwhile.
        let taken = after.and_then(|after| after.blocks.checked_sub(before.blocks));
        let Some(blocks @ 1..) = taken else {
            return;
        };
        // Space of deleted files comes back by this.
        let _ = self.volume.statfs();
        if self.room(before) < self.space.last
            && (self.open).take_last(id, blocks * BLOCK, self.space.unreported)
        {
            self.arm(id);
        }
    }

    /// Has the kernel ask before the next write of `node`. An answer that is under way counts as
    /// older.
    pub(super) fn arm(&self, node: u64) {
        self.open.set_armed(node, true);
        self.forget_attributes(node);
    }

    /// Tells the kernel that what it has of the attributes of `node` is old.
    pub(super) fn forget_attributes(&self, node: u64) {
        if let Err(error) = self.device.invalidate(node, -1) {
            error!("the kernel cannot be told of old attributes: {error}");
        }
    }

    /// Whether a handle may be a writer's. Readers have handle 0, as all have that were not opened
    /// here.
    pub(super) fn may_write(&self, handle: u64) -> bool {
        handle != 0 || !self.sends_open()
    }

    /// The gate: answers the GETATTR that comes before a write.
    pub(super) fn gate(&self, header: &InHeader, handle: u64, reply: &mut ReplyBuf) -> Outcome {
        let node = self.nodes.get(header.nodeid)?;
        self.open.ask(header.nodeid, handle);
        self.check_reported(header.nodeid, handle, &node)?;
        let writer = (header.nodeid, handle);
        let attr = self.volume.getattr(&node)?;
        // Operations that wait for space come first: what is granted now they would find taken.
        if !self.space.has_takers()
            && let Some(asked) = self.grant(header.nodeid, &attr, false)
        {
            return self.pass(writer, &node, asked, reply);
        }
        // A ring's entry is kept for each: there are not as many as there may be writers. Where
        // little is left they are refused, so that nothing is lost.
        if !self.device.try_defer_reply(reply.queue()) {
            if self.room(&attr) < TIGHT {
                return Err(Errno::NOSPC);
            }
            self.open.grant(header.nodeid, A_WRITE);
            return self.pass(writer, &node, Asked::AtEachWrite, reply);
        }
        self.wait(Waiting {
            unique: header.unique,
            queue: reply.queue(),
            node: header.nodeid,
            wants: Wants::ToPass { handle },
        });
        Ok(Done::Later)
    }

    /// Has a request wait, unless it was interrupted.
    pub(super) fn wait(&self, one: Waiting) {
        let unique = one.unique;
        self.space.wait(one);
        if self.in_flight.is_interrupted(unique) {
            self.interrupt_waiting(unique);
        }
    }

    /// The caller of a request was interrupted. What waits for space ends with EINTR now, and what
    /// is served ends early where it has changed nothing.
    pub(super) fn interrupt(&self, unique: u64) {
        self.in_flight.interrupt(unique);
        if self.interrupt_waiting(unique) {
            self.in_flight.forget_interruption(unique);
        }
    }

    /// Answers a request with EINTR if it waits.
    fn interrupt_waiting(&self, unique: u64) -> bool {
        let left = self.space.leave(unique);
        if let Some(one) = &left {
            let mut space = ReplySpace::new(0);
            self.send(one, space.start().finish(unique, Err(Errno::INTR)));
        }
        left.is_some()
    }

    /// Sends the reply to a request that has waited. Returns whether it arrived.
    pub(super) fn send(&self, one: &Waiting, reply: &[u8]) -> bool {
        let sent = self
            .device
            .send_deferred_reply(one.queue, one.unique, reply);
        sent.unwrap_or_else(|error| {
            error!("a request that has waited is not answered: {error}");
            false
        })
    }

    /// Lets writers of `id` dirty what one that passes now may, if there is room for it or it
    /// `must` pass. Returns when they are asked again.
    fn grant(&self, id: u64, attr: &Attr, must: bool) -> Option<Asked> {
        if !self.is_short() {
            return Some(Asked::AtTheNextTick);
        }
        let (asked, bytes) = match self.room(attr) < TIGHT || self.space.has_takers() {
            true => (Asked::AtEachWrite, A_WRITE),
            false => (Asked::AtTheNextTick, A_TICK),
        };
        if self.open.grant_within(id, bytes, || self.room(attr)) {
            return Some(asked);
        }
        if must {
            self.open.grant(id, bytes);
        }
        must.then_some(asked)
    }

    /// Refuses the write if its handle has to be told something. Scarcity that is over is not told.
    fn check_reported(&self, id: u64, handle: u64, node: &Node) -> Result<(), Errno> {
        match self.open.untold(id, handle) {
            None => Ok(()),
            Some(Refusal::Lost(errno)) => Err(errno),
            Some(Refusal::Scarce) => {
                // Space of deleted files comes back by this.
                let _ = self.volume.statfs();
                if self.room(&self.volume.getattr(node)?) < self.space.last {
                    return Err(Errno::NOSPC);
                }
                self.open.admit(id, handle, false);
                Ok(())
            }
        }
    }

    /// Lets the writer of a node and a handle pass. It was granted what it may dirty.
    fn pass(
        &self,
        (id, handle): (u64, u64),
        node: &Node,
        asked: Asked,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        let attr = self.volume.getattr(node)?;
        (self.open).admit(id, handle, self.room(&attr) < self.space.last);
        reply.put(&attr_out(&attr))?;
        if asked == Asked::AtEachWrite {
            self.arm(id);
        } else if self.open.set_armed(id, false) {
            self.space.wake();
        }
        Ok(Done::Reply)
    }

    /// The thread of the gates: drains, serves the operations again that wait for space, and
    /// answers the writers that wait. Returns after [`Server::stop`].
    pub(crate) fn answer_writers(&self) {
        let mut space = ReplySpace::new(LATE_REPLY_LEN);
        while let Some(round) = self.space.next_round() {
            if round.iter().any(|turn| turn.takes) {
                // Writers that were not asked so far are from now on.
                self.arm_open_files();
            }
            let takes_much = round.iter().any(|turn| turn.takes_much);
            let _ = (0..DRAINS).all(|_| {
                if takes_much {
                    self.wait_for_writers();
                }
                self.drain()
            });
            let (takers, writers): (Vec<Turn>, Vec<Turn>) =
                round.into_iter().partition(|turn| turn.takes);
            for turn in takers {
                if let Some(one) = self.space.leave(turn.unique) {
                    self.serve_again(&one, &mut space);
                }
            }
            self.let_pass(&writers, &mut space);
        }
    }

    /// Answers those of the writers that there is room for. The first is let pass however the drain
    /// ended: none waits for ever, and no read at the end of a file, which may ask as well, fails
    /// for want of time.
    fn let_pass(&self, writers: &[Turn], space: &mut ReplySpace) {
        let mut is_first = true;
        for turn in writers {
            // One that was interrupted has left.
            if !self.space.is_waiting(turn.unique) {
                continue;
            }
            let granted = self.nodes.get(turn.node).and_then(|node| {
                let attr = self.volume.getattr(&node)?;
                Ok((self.grant(turn.node, &attr, is_first), node))
            });
            let granted = match granted {
                // What those before it were granted may be all that there is.
                Ok((None, _)) => return,
                Ok((Some(asked), node)) => Ok((asked, node)),
                Err(errno) => Err(errno),
            };
            // Had it left just now, what it was granted would count until it is drained.
            if let Some(one) = self.space.leave(turn.unique) {
                self.answer(&one, granted, space);
                is_first = false;
            }
        }
    }

    /// Lets a writer pass that has waited, unless it has to be told something.
    fn answer(&self, one: &Waiting, granted: Result<(Asked, Node), Errno>, space: &mut ReplySpace) {
        let Wants::ToPass { handle } = one.wants else {
            return;
        };
        let mut reply = space.start();
        let outcome = granted.and_then(|(asked, node)| {
            self.check_reported(one.node, handle, &node)?;
            self.pass((one.node, handle), &node, asked, &mut reply)
        });
        self.send(one, reply.finish(one.unique, outcome.map(|_| ())));
    }

    /// Has the kernel write back what is dirty. Returns whether it did and the WRITEs were answered
    /// in time: otherwise what writers may have dirtied still counts.
    fn drain(&self) -> bool {
        self.space.drains.fetch_add(1, Ordering::Relaxed);
        self.open.begin_drain();
        let start = || Drainer::start(&self.space.point);
        let drained = match self.space.drainer_or(start) {
            Ok(drainer) => drainer.drain(self.device, || self.refuse_late()),
            Err(error) => {
                debug!("no thread to drain dirty pages now: {error}");
                false
            }
        };
        let done = drained && self.wait_for_writes();
        self.open.end_drain(done);
        done
    }

    /// Waits until writers that were let pass have dirtied their pages, so that a drain takes their
    /// grants off. Those that are let pass meanwhile are waited for no longer.
    fn wait_for_writers(&self) {
        let begun = Instant::now();
        loop {
            self.open.rest(&self.space.files_at_rest());
            let left = self.open.until_late();
            if left.is_zero() || begun.elapsed() > GRACE || self.device.is_gone() {
                return;
            }
            thread::sleep(left.min(LOOK_AT_WRITERS));
            self.refuse_late();
        }
    }

    /// Waits until the WRITEs that the kernel has sent are answered: starting to write back all
    /// files, which is what the drainer asks for, does not wait for that.
    fn wait_for_writes(&self) -> bool {
        let begun = Instant::now();
        while !self.device.has_no_writes() {
            if self.device.is_gone() || begun.elapsed() > self.space.patience {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    /// The ticker: arms the files that are open for writing while space is short, and has the
    /// kernel forget sizes that are wrong. Returns after [`Server::stop`].
    pub(crate) fn tick(&self) {
        let (ticker, changed) = &self.space.ticker;
        loop {
            {
                let mut ticker = ticker.lock();
                while !ticker.wanted && !ticker.stopped {
                    changed.wait(&mut ticker);
                }
                // The time that files which were opened just now have until they are armed.
                let stop = |ticker: &mut Ticker| !ticker.stopped;
                changed.wait_while_for(&mut ticker, stop, TICK);
                if ticker.stopped {
                    return;
                }
                ticker.wanted = false;
            }
            if self.is_short() {
                self.arm_open_files();
            }
            let wrong = self.open.to_prune();
            if !wrong.is_empty() {
                // Kernels that do not know the message keep the size until they drop the inode by
                // themselves.
                match self.device.prune(&wrong) {
                    Ok(()) => self.space.wake(),
                    Err(error) => debug!("sizes stay as they are: {error}"),
                }
            }
        }
    }

    /// Arms the files that are open for writing.
    fn arm_open_files(&self) {
        let (nodes, is_doubt_left) = self.open.arm_all();
        for node in nodes {
            self.arm(node);
        }
        if is_doubt_left {
            self.space.wake();
        }
    }

    /// Ends the ticker and the thread of the gates.
    pub(crate) fn stop(&self) {
        self.space.stop();
    }
}

/// When a writer that passes is asked again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Asked {
    AtEachWrite,
    AtTheNextTick,
}

#[cfg(test)]
mod tests;
