//! A thread that serves what comes through its ring.
//!
//! Each worker has one entry, but for those that stand in for many processors that are off. So
//! while it serves a request, no other is given to it: the kernel picks the entry of a worker that
//! waits, the one that waits for the shortest time.
//!
//! A request that is answered later keeps its entry, and the worker rests until the reply was sent.
//! Fewer requests than a queue has workers may do so ([`Traffic::may_keep`]). A new entry in its
//! place would not do: the kernel gives what waits in a queue to an entry that commits, and not to
//! one that is registered.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use tracing::warn;
use zerocopy::FromBytes;

use super::affinity::Affinity;
use super::entry::{EntryRequest, ReplyBody};
use super::ring::Ring;
use super::start::WorkerStart;
use super::transport::{EntryRing, Event};
use crate::abi::{OUT_HEADER, OutHeader};
use crate::device::Device;
use crate::errno;
use crate::in_flight::InFlight;
use crate::reply::ReplyMemory;
use crate::request::Request;
use crate::serve::{Completion, Serve, serve_one};
use crate::traffic::{Parked, Traffic};

/// Pause before a reply is given again to a kernel whose rings were switched off.
const SWITCHED_OFF: Duration = Duration::from_millis(20);
/// Room for a reply to a request with a payload: the largest is the value of an extended attribute.
pub(super) const SPACE_LEN: usize = (64 << 10) + 4096;

/// What a worker owns before it runs.
pub(super) struct Worker<R = Ring> {
    ring: R,
    space: ReplyMemory,
    /// Its number among the workers of rings.
    number: usize,
    affinity: Affinity,
    /// The kernel has refused a reply because rings were switched off.
    was_switched_off: bool,
}

/// What a worker works for.
pub(super) struct Party<'a, S> {
    pub(super) server: &'a S,
    pub(super) device: &'a Device,
    pub(super) traffic: Arc<Traffic>,
    pub(super) in_flight: &'a InFlight,
    /// The first slot of rings' workers.
    pub(super) first_slot: usize,
}

impl<S> Clone for Party<'_, S> {
    fn clone(&self) -> Self {
        Self {
            traffic: Arc::clone(&self.traffic),
            ..*self
        }
    }
}

/// Why a worker stops.
enum End {
    /// The mount is gone, or the device was closed.
    Gone,
    Failed(io::Error),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Failed(error)
    }
}

impl<R: EntryRing> Worker<R> {
    pub(super) fn new(ring: R, number: usize, processor: Option<usize>) -> io::Result<Self> {
        Ok(Self {
            ring,
            space: ReplyMemory::try_new(SPACE_LEN)?,
            number,
            affinity: Affinity::of(processor),
            was_switched_off: false,
        })
    }

    /// The queue of each of its entries.
    pub(super) fn queues(&self) -> &[u16] {
        self.ring.queues()
    }

    /// Takes the steps of `start`, unless one fails, and serves until the mount is gone or the
    /// device is closed.
    ///
    /// # Errors
    /// The kernel fails the ring, or sends what is no request.
    pub(super) fn run<S: Serve>(
        &mut self,
        start: &WorkerStart,
        party: &Party<'_, S>,
    ) -> io::Result<()> {
        let mut events = Vec::new();
        if !start.next_after(self.ring.enable()) {
            return Ok(());
        }
        let registered = self.register(&party.traffic, &mut events);
        let refused = registered.is_err();
        if !start.next_after(registered) || refused {
            return Ok(());
        }
        match self.serve_all(party, &mut events) {
            End::Gone => Ok(()),
            End::Failed(error) => Err(error),
        }
    }

    /// Gives its entries to the kernel.
    fn register(&mut self, traffic: &Traffic, events: &mut Vec<Event>) -> io::Result<()> {
        self.ring.hear_close();
        self.ring.hear_bell(traffic.bell(self.number));
        self.ring.register_all(events)?;
        let queues = self.ring.queues().iter();
        queues.for_each(|&queue| traffic.added_entry(queue));
        Ok(())
    }

    /// Serves, first what has happened already.
    fn serve_all<S: Serve>(&mut self, party: &Party<'_, S>, events: &mut Vec<Event>) -> End {
        self.affinity.begin();
        loop {
            party.traffic.entered(self.number);
            if let Err(error) = self.ring.wait(events) {
                return End::Failed(error);
            }
            if let Err(end) = self.handle_all(events, party) {
                return end;
            }
        }
    }

    fn handle_all<S: Serve>(
        &mut self,
        events: &mut Vec<Event>,
        party: &Party<'_, S>,
    ) -> Result<(), End> {
        let last = events.len() - 1;
        let mut rang = false;
        for (i, event) in events.drain(..).enumerate() {
            rang |= matches!(event, Event::Bell);
            self.handle(event, party)?;
            // The reply does not wait for the requests behind it.
            if i < last {
                self.ring.submit();
            }
        }
        // After the requests that came with it.
        if rang {
            self.confirm_idle(party)?;
        }
        Ok(())
    }

    fn handle<S: Serve>(&mut self, event: Event, party: &Party<'_, S>) -> Result<(), End> {
        match event {
            Event::Closed => Err(End::Gone),
            Event::Bell => {
                self.send_deferred_replies(&party.traffic);
                Ok(())
            }
            Event::Entry(number, Ok(())) => self.serve(number, party),
            // The kernel cancels what waits when it lets go of the mount.
            Event::Entry(_, Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)) => {
                Err(End::Gone)
            }
            Event::Entry(number, Err(Errno::OPNOTSUPP)) => {
                self.give_again(number);
                Ok(())
            }
            Event::Entry(_, Err(error)) => Err(End::Failed(error.into())),
        }
    }

    /// Commits a reply again that the kernel has refused because rings were switched off. It does
    /// so only where it had refused an entry at the start. The requests have no other way: they
    /// wait until rings are switched on again, or the mount ends.
    fn give_again(&mut self, number: usize) {
        if !self.was_switched_off {
            self.was_switched_off = true;
            warn!(
                "the kernel takes no replies: the mount waits for enable_uring of the module fuse"
            );
        }
        thread::sleep(SWITCHED_OFF);
        self.ring.commit(number);
    }

    /// Sends the replies that came for it, and listens to its bell again.
    fn send_deferred_replies(&mut self, traffic: &Traffic) {
        traffic.hear(self.number);
        self.ring.hear_bell(traffic.bell(self.number));
        for (entry, reply) in traffic.take_replies(self.number) {
            self.answer_late(entry, &reply, traffic);
        }
    }

    /// Confirms that the ring is idle: serves what the kernel has given to it, and looks again,
    /// until there is nothing.
    fn confirm_idle<S: Serve>(&mut self, party: &Party<'_, S>) -> Result<(), End> {
        let question = party.traffic.question();
        let mut events = Vec::new();
        loop {
            let all = self.ring.look(&mut events)?;
            if all && events.is_empty() {
                break;
            }
            for event in events.drain(..) {
                self.handle(event, party)?;
                self.ring.submit();
            }
        }
        party.traffic.answer(self.number, question);
        Ok(())
    }

    /// Serves the request in an entry.
    fn serve<S: Serve>(&mut self, number: usize, party: &Party<'_, S>) -> Result<(), End> {
        let (traffic, slot) = (&*party.traffic, party.first_slot + self.number);
        let queue = self.ring.queues().get(number).copied();
        let (Some(queue), Some(entry)) = (queue, self.ring.entry(number)) else {
            return Ok(());
        };
        let no_request = || io::Error::other("the kernel sent a request that is none");
        let EntryRequest {
            request,
            mut reply,
            in_place,
        } = entry.open(&mut self.space).ok_or_else(no_request)?;
        let header = Request::new(request).ok_or_else(no_request)?.header;
        let unique = header.unique;
        traffic.received(self.number, header.opcode);
        reply.set_queue(queue);
        match serve_one(party.server, (party.in_flight, slot), request, &mut reply)? {
            Completion::Reply | Completion::Entries(_) | Completion::Open { .. } => {}
            // Requests without a reply come by `/dev/fuse`.
            Completion::Silent => {
                reply.finish(unique, Err(errno::Errno::INVAL));
            }
            Completion::Deferred => {
                let worker = self.number;
                let parked = Parked {
                    worker,
                    entry: number,
                };
                if let Some(reply) = traffic.park(unique, parked) {
                    self.answer_late(number, &reply, traffic);
                }
                return Ok(());
            }
        }
        let len = reply.bytes().len();
        self.affinity.served(len.max(request.len()));
        let (header, _) = split(reply.bytes()).ok_or_else(no_request)?;
        let body = if in_place {
            ReplyBody::InPlace(len - OUT_HEADER)
        } else {
            ReplyBody::Copy(&self.space.bytes()[OUT_HEADER..len])
        };
        entry.answer(&header, body);
        self.ring.commit(number);
        Ok(())
    }

    /// Sends a reply that another thread has made.
    fn answer_late(&mut self, number: usize, reply: &[u8], traffic: &Traffic) {
        let queue = self.ring.queues().get(number).copied();
        let entry = self.ring.entry(number);
        if let (Some(queue), Some(entry), Some((header, body))) = (queue, entry, split(reply)) {
            entry.answer(&header, ReplyBody::Copy(body));
            traffic.let_go(queue);
            traffic.got_late_reply(self.number);
            self.ring.commit(number);
        }
    }
}

#[cfg(test)]
impl Worker {
    /// Makes an entry too small for the kernel.
    pub(super) fn shrink_entry(&mut self) {
        let small = super::entry::Entry::new(super::entry::PAGE).unwrap();
        *self.ring.entry(0).unwrap() = small;
    }

    /// Has the kernel lack memory, so many times that it is looked whether it has refused an entry.
    pub(super) fn lack_memory(&mut self, looks: u32) {
        self.ring.looks_without_memory = looks;
    }

    /// Takes its ring into use, which cannot be done again.
    pub(super) fn take_into_use(&mut self) {
        self.ring.enable().unwrap();
    }
}

/// A reply's header and the bytes behind it.
pub(super) fn split(reply: &[u8]) -> Option<(OutHeader, &[u8])> {
    let (header, _) = OutHeader::read_from_prefix(reply).ok()?;
    Some((header, reply.get(OUT_HEADER..)?))
}
