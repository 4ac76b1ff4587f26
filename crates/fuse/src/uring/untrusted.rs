//! An entry without a ring: what a kernel could have put there, served as a worker does.

use std::io;

use super::entry::{Entry, EntryRequest, ReplyBody};
use super::worker::split;
use crate::abi::{OUT_HEADER, RingInOut};
use crate::reply::{ReplyBuf, ReplyMemory};
use crate::request::Request;
use crate::serve::Completion;

/// Has `serve` answer the request that is in an entry once the parts of it are there: the header,
/// the fixed part of the operation, and a payload that is said to have `said` bytes, of at most
/// `payload_len`. Returns the reply; `None` if this is no request, or is answered later.
pub(crate) fn serve_entry(
    (header, operation, payload): (&[u8], &[u8], &[u8]),
    (said, payload_len): (u32, usize),
    space: &mut ReplyMemory,
    serve: impl FnOnce(&[u8], &mut ReplyBuf<'_>) -> io::Result<Completion>,
) -> Option<Vec<u8>> {
    let mut entry = Entry::new(payload_len).ok()?;
    let in_out = RingInOut {
        payload_len: said,
        ..RingInOut::default()
    };
    entry.fill(header, operation, payload, &in_out);
    let EntryRequest {
        request,
        mut reply,
        in_place,
    } = entry.open(space)?;
    Request::new(request)?;
    reply.set_queue(0);
    if let Completion::Deferred | Completion::Silent = serve(request, &mut reply).ok()? {
        return None;
    }
    let len = reply.bytes().len();
    let (header, _) = split(reply.bytes())?;
    let body = if in_place {
        ReplyBody::InPlace(len - OUT_HEADER)
    } else {
        ReplyBody::Copy(&space.bytes()[OUT_HEADER..len])
    };
    entry.answer(&header, body);
    Some(entry.answered())
}
