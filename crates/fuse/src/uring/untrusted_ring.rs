//! A queue of a ring without io_uring: its entries, and what a worker does with them.

use std::io;

use super::entry::{Entry, EntryRequest, ReplyBody};
use super::worker::split;
use crate::abi::{OUT_HEADER, RingInOut};
use crate::errno::Errno;
use crate::reply::{ReplyBuf, ReplyMemory};
use crate::request::Request;
use crate::serve::Completion;
use crate::traffic::{Parked, Traffic};

/// The entries of a queue that one worker serves.
pub(crate) struct UntrustedRing {
    worker: usize,
    queue: u16,
    entries: Vec<Entry>,
    /// For each entry, whether its request waits for a reply that comes later.
    parked: Vec<bool>,
    space: ReplyMemory,
}

impl UntrustedRing {
    /// So many entries of `queue`, with payloads of up to so many bytes.
    ///
    /// # Errors
    /// There is no memory.
    pub(crate) fn new(
        worker: usize,
        queue: u16,
        (entries, payload_len): (usize, usize),
    ) -> io::Result<Self> {
        let made: io::Result<Vec<Entry>> = (0..entries).map(|_| Entry::new(payload_len)).collect();
        Ok(Self {
            worker,
            queue,
            entries: made?,
            parked: vec![false; entries],
            space: ReplyMemory::try_new(payload_len)?,
        })
    }

    /// Returns whether an entry can take a request.
    pub(crate) fn has_free(&self) -> bool {
        self.parked.contains(&false)
    }

    /// Has `serve` answer a request whose parts are put into a free entry. Returns the reply;
    /// `None` if it comes later, or this is no request.
    pub(crate) fn serve(
        &mut self,
        (header, operation, payload): (&[u8], &[u8], &[u8]),
        traffic: &Traffic,
        serve: impl FnOnce(&[u8], &mut ReplyBuf<'_>) -> io::Result<Completion>,
    ) -> Option<Vec<u8>> {
        let number = self.parked.iter().position(|parked| !parked)?;
        let entry = self.entries.get_mut(number)?;
        let in_out = RingInOut {
            payload_len: u32::try_from(payload.len()).ok()?,
            ..RingInOut::default()
        };
        entry.fill(header, operation, payload, &in_out);
        let EntryRequest {
            request,
            mut reply,
            in_place,
        } = entry.open(&mut self.space)?;
        let header = Request::new(request)?.header;
        let unique = header.unique;
        traffic.received(self.worker, header.opcode);
        reply.set_queue(self.queue);
        match serve(request, &mut reply).ok()? {
            Completion::Deferred => {
                self.parked[number] = true;
                let parked = Parked {
                    worker: self.worker,
                    entry: number,
                };
                let reply = traffic.park(unique, parked)?;
                return self.answer_late(number, &reply, traffic);
            }
            Completion::Silent => {
                reply.finish(unique, Err(Errno::INVAL));
            }
            _ => {}
        }
        let len = reply.bytes().len();
        let (header, _) = split(reply.bytes())?;
        let body = match in_place {
            true => ReplyBody::InPlace(len - OUT_HEADER),
            false => ReplyBody::Copy(&self.space.bytes()[OUT_HEADER..len]),
        };
        entry.answer(&header, body);
        Some(entry.answered())
    }

    /// The replies that have come for entries of it.
    pub(crate) fn take_late(&mut self, traffic: &Traffic) -> Vec<Vec<u8>> {
        traffic.hear(self.worker);
        let late = traffic.take_replies(self.worker).into_iter();
        late.filter_map(|(entry, reply)| self.answer_late(entry, &reply, traffic))
            .collect()
    }

    fn answer_late(&mut self, number: usize, reply: &[u8], traffic: &Traffic) -> Option<Vec<u8>> {
        let (header, body) = split(reply)?;
        let entry = self.entries.get_mut(number)?;
        entry.answer(&header, ReplyBody::Copy(body));
        traffic.let_go(self.queue);
        traffic.got_late_reply(self.worker);
        *self.parked.get_mut(number)? = false;
        Some(entry.answered())
    }
}
