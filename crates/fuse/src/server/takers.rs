//! Requests that allocate space themselves, unlike the kernel's writeback: they leave free what
//! accepted writes may need.
//!
//! # Responsibility
//! The engine refuses them the space that the kernel's dirty pages may need ([`DirtyBound`]). An
//! operation that fails for that alone is not told yet: it waits until the kernel has written back
//! what is dirty, and is served again (`gate`). What is refused then is told. So it holds for any
//! operation that fails for want of space, whichever blocks it takes. Operations that must not
//! wait, and take a few blocks at most (SETATTR, REMOVEXATTR, ioctls), leave nothing free. A seal
//! leaves that space and never waits: the thread that would serve it has the kernel drop its pages.
//!
//! # Concurrency
//! The write-back must not need what waits for it. WRITEs from the kernel's cache, SETATTR and READ
//! never wait; for the others the kernel holds locks of inodes, which write-back does not take, and
//! no page. One exception is the rest of a direct write that was cut short: the kernel copies it
//! into its cache, and keeps those pages locked until the WRITE is answered. Where write-back needs
//! one of them, the drain ends no sooner; so a WRITE is refused after `patience_of_writes`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use extant_engine::DirtyBound;

use super::{Outcome, Server};
use crate::abi::{self, op};
use crate::errno::Errno;
use crate::full_volume::parking::{Waiting, Wants};
use crate::reply::{ReplyBuf, ReplyMemory};
use crate::request::{Op, Request};
use crate::sealing;
use crate::serve::Serve;

/// Bytes that an operation on names leaves free after it has waited.
const LEAST: u64 = 256 << 10;

/// Returns whether a request takes space by name, and may wait.
fn takes_space(request: &Request<'_>) -> bool {
    match request.header.opcode {
        op::FALLOCATE
        | op::COPY_FILE_RANGE
        | op::MKNOD
        | op::MKDIR
        | op::SYMLINK
        | op::CREATE
        | op::TMPFILE
        | op::LINK
        | op::RENAME
        | op::RENAME2
        | op::SETXATTR => true,
        op::WRITE => match request.op(false) {
            Ok(Op::Write { flags, direct, .. }) => direct && flags & abi::WRITE_CACHE == 0,
            _ => false,
        },
        _ => false,
    }
}

/// Returns whether a request takes a few blocks at most: an operation on names.
fn takes_little(request: &Request<'_>) -> bool {
    let may_take_much = matches!(
        request.header.opcode,
        op::FALLOCATE | op::COPY_FILE_RANGE | op::WRITE
    );
    takes_space(request) && !may_take_much
}

/// Returns whether a request may take much space: it leaves what is dirty as much as that may need.
/// A WRITE finds out itself.
fn leaves_space(request: &Request<'_>) -> bool {
    request.header.opcode == op::WRITE || takes_space(request) || sealing::is_asked(request)
}

impl Server<'_> {
    /// Serves a request. Returns also whether it found no space for the sake of what is dirty.
    pub(super) fn handle_within_bound(
        &self,
        request: &Request<'_>,
        reply: &mut ReplyBuf,
    ) -> (Outcome, bool) {
        let spent = if leaves_space(request) { 0 } else { u64::MAX };
        let (outcome, is_refused) =
            DirtyBound::refuses(|| self.dirty.spending(spent, || self.handle(request, reply)));
        let wants_space = is_refused && matches!(outcome, Err(Errno::NOSPC));
        (outcome, wants_space)
    }

    /// Has a request wait that found no space for the sake of what is dirty. Returns whether it
    /// does: its reply is sent later.
    pub(super) fn try_park_for_space(
        &self,
        request: &Request<'_>,
        bytes: &[u8],
        queue: Option<u16>,
    ) -> bool {
        if !takes_space(request) {
            return false;
        }
        let Some(taker) = self.full.parking.taker(bytes) else {
            return false;
        };
        if !self.device.try_defer_reply(queue) {
            return false;
        }
        self.step(|admission| admission.arrive(request.header.pid));
        self.wait(Waiting {
            unique: request.header.unique,
            queue,
            wants: Wants::Space(taker),
        });
        true
    }

    /// Serves a request again that found no space for the sake of what is dirty. Once all of that
    /// is `drained`, an operation on names leaves no more than [`LEAST`]: what may be dirty is
    /// counted for the worst case, and a volume on which files are made all the time would never
    /// have room for it.
    pub(super) fn handle_again(
        &self,
        request: &Request<'_>,
        drained: bool,
        reply: &mut ReplyBuf,
    ) -> Outcome {
        if drained && takes_little(request) {
            let least = LEAST.min(self.full.last);
            return (self.dirty).leaving_at_most(least, || self.handle(request, reply));
        }
        self.handle(request, reply)
    }

    /// Serves a request again that has waited for space until what was dirty was `drained`, and
    /// answers it.
    pub(super) fn serve_again(&self, one: &Waiting, drained: bool, space: &mut ReplyMemory) {
        let Wants::Space(taker) = &one.wants else {
            return;
        };
        let Some(request) = Request::new(&taker.request) else {
            return;
        };
        let mut reply = space.start();
        let served = catch_unwind(AssertUnwindSafe(|| {
            self.handle_again(&request, drained, &mut reply)
        }));
        let done = match served {
            Ok(outcome) => self.finish(request.header, outcome, &mut reply),
            Err(_) => self.fail_after_panic(&taker.request, &mut reply),
        };
        if !self.send(one, reply.bytes()) {
            self.undo_undelivered(done);
        }
    }

    /// Refuses the WRITEs that have waited long.
    pub(super) fn refuse_late(&self) {
        let is_write =
            |bytes: &[u8]| Request::new(bytes).is_some_and(|r| r.header.opcode == op::WRITE);
        for one in self
            .full
            .parking
            .take_late(self.full.patience_of_writes, is_write)
        {
            let mut space = ReplyMemory::new(0);
            self.send(&one, space.start().finish(one.unique, Err(Errno::NOSPC)));
        }
    }
}
