//! What a worker does with a request, whichever way the request came.
//!
//! A worker at `/dev/fuse` (`pool`) and one of a ring (`uring`) differ in how a request arrives and
//! how its reply leaves. Between the two both call [`serve_one`].

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::in_flight::InFlight;
use crate::reply::ReplyBuf;
use crate::request::Request;

/// The reply to a request, and what it has to undo if that does not arrive.
pub(crate) enum Completion {
    /// What is in the buffer is the reply.
    Reply,
    /// The reply names these nodes: should it not arrive, they are forgotten again.
    Entries(Vec<u64>),
    /// The reply gives a handle of this node, and names it if so: should it not arrive, both are
    /// taken back.
    Open { node: u64, handle: u64, named: bool },
    /// The reply is sent later, by another thread (`Device::send_deferred_reply`).
    Deferred,
    /// This kind of request has no reply.
    Silent,
}

/// Serves requests. Called from many threads at once.
pub(crate) trait Serve: Sync {
    /// Returns whether the request may take long.
    fn may_block(&self, request: &[u8]) -> bool;
    /// Serves one request. The reply, if there is one now, is complete in `reply`.
    fn serve(&self, request: &[u8], reply: &mut ReplyBuf<'_>) -> io::Result<Completion>;
    /// A bug surfaced in [`Serve::serve`]; the request is answered, but nothing may be changed any
    /// more.
    fn fail_after_panic(&self, request: &[u8], reply: &mut ReplyBuf<'_>) -> Completion;
    /// A reply did not arrive: what it named or opened is taken back.
    fn undo_undelivered(&self, done: Completion);
}

/// Has `server` serve a request on behalf of worker `slot` of those in flight.
pub(crate) fn serve_one<S: Serve>(
    server: &S,
    (in_flight, slot): (&InFlight, usize),
    request: &[u8],
    reply: &mut ReplyBuf<'_>,
) -> io::Result<Completion> {
    let unique = Request::new(request).map_or(0, |request| request.header.unique);
    let served = in_flight.begin(slot, unique);
    let serve = || server.serve(request, reply);
    catch_unwind(AssertUnwindSafe(|| served.interrupt.during(serve)))
        .unwrap_or_else(|_| Ok(server.fail_after_panic(request, reply)))
}
