//! A thread that serves what comes through its ring.
//!
//! Each worker has one entry, but for one that stands in for processors that are off. So while it
//! serves a request, no other is given to it: the kernel picks the entry of a worker that waits,
//! the one that waits for the shortest time.
//!
//! A request that is answered later keeps its entry, and the worker rests until the reply was sent.
//! Fewer requests than a queue has workers may do so ([`Traffic::may_keep`]). A new entry in its
//! place would not do: the kernel gives what waits in a queue to an entry that commits, and not to
//! one that is registered.

use std::io;

use rustix::io::Errno;
use rustix::thread::{CpuSet, sched_setaffinity};
use tracing::debug;
use zerocopy::FromBytes;

use super::entry::{Opened, ReplyBody};
use super::ring::{Event, Ring};
use crate::abi::{OUT_HEADER, OutHeader};
use crate::errno;
use crate::in_flight::InFlight;
use crate::reply::ReplySpace;
use crate::request::Request;
use crate::serve::{Done, Serve, serve_one};
use crate::traffic::{Parked, Traffic};

/// Room for a reply to a request with a payload: the largest is the value of an extended attribute.
pub(super) const SPACE_LEN: usize = (64 << 10) + 4096;

/// What a worker owns before it runs.
pub(super) struct Worker {
    ring: Ring,
    space: ReplySpace,
    /// Its number among the workers of rings.
    number: usize,
    /// The processor that it stays on.
    processor: Option<usize>,
    has_registered: bool,
}

/// What a worker works for.
pub(super) struct Party<'a, S> {
    pub(super) server: &'a S,
    pub(super) traffic: &'a Traffic,
    pub(super) in_flight: &'a InFlight,
    /// The first slot of rings' workers.
    pub(super) first_slot: usize,
}

impl<S> Clone for Party<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Party<'_, S> {}

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

impl Worker {
    pub(super) fn new(ring: Ring, number: usize, processor: Option<usize>) -> io::Result<Self> {
        Ok(Self {
            ring,
            space: ReplySpace::try_new(SPACE_LEN)?,
            number,
            processor,
            has_registered: false,
        })
    }

    /// Serves until the mount is gone or the device is closed.
    ///
    /// # Errors
    /// The kernel refuses the ring, or sends what is no request.
    pub(super) fn run<S: Serve>(&mut self, party: Party<'_, S>) -> io::Result<()> {
        match self.serve_all(party) {
            End::Gone => Ok(()),
            End::Failed(error) => Err(error),
        }
    }

    fn serve_all<S: Serve>(&mut self, party: Party<'_, S>) -> End {
        self.stay();
        if let Err(error) = self.begin(party.traffic) {
            return End::Failed(error);
        }
        let mut events = Vec::new();
        loop {
            party.traffic.entered();
            if let Err(error) = self.ring.wait(&mut events) {
                return End::Failed(error);
            }
            if let Err(end) = self.handle_all(&mut events, party) {
                return end;
            }
        }
    }

    /// Whether its entries were given to the kernel.
    pub(super) fn has_registered(&self) -> bool {
        self.has_registered
    }

    fn begin(&mut self, traffic: &Traffic) -> io::Result<()> {
        self.ring.enable()?;
        self.ring.hear_close();
        self.ring.hear_bell(traffic.bell(self.number));
        self.has_registered = true;
        for number in 0..self.ring.len() {
            self.ring.register(number);
            traffic.added_entry();
        }
        Ok(())
    }

    /// Binds the thread to its processor: there the callers are whose requests it gets, so neither
    /// waits for another processor to wake up.
    fn stay(&self) {
        let Some(processor) = self.processor.filter(|&p| p < CpuSet::MAX_CPU) else {
            return;
        };
        let mut set = CpuSet::new();
        set.set(processor);
        if let Err(error) = sched_setaffinity(None, &set) {
            debug!("a worker is not bound to processor {processor}: {error}");
        }
    }

    fn handle_all<S: Serve>(
        &mut self,
        events: &mut Vec<Event>,
        party: Party<'_, S>,
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
            self.reassure(party)?;
        }
        Ok(())
    }

    fn handle<S: Serve>(&mut self, event: Event, party: Party<'_, S>) -> Result<(), End> {
        match event {
            Event::Closed => Err(End::Gone),
            Event::Bell => {
                self.look_into_mailbox(party.traffic);
                Ok(())
            }
            Event::Entry(number, Ok(())) => self.serve(number, party),
            // The kernel cancels what waits when it lets go of the mount.
            Event::Entry(_, Err(Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED)) => {
                Err(End::Gone)
            }
            Event::Entry(_, Err(error)) => Err(End::Failed(error.into())),
        }
    }

    /// Sends the replies that came for it, and listens to its bell again.
    fn look_into_mailbox(&mut self, traffic: &Traffic) {
        traffic.hear(self.number);
        self.ring.hear_bell(traffic.bell(self.number));
        for (entry, reply) in traffic.take_replies(self.number) {
            self.answer_late(entry, &reply, traffic);
        }
    }

    /// Answers whether it has served what the kernel had given to it: serves, and looks again,
    /// until there is nothing.
    fn reassure<S: Serve>(&mut self, party: Party<'_, S>) -> Result<(), End> {
        let question = party.traffic.question();
        let mut events = Vec::new();
        loop {
            self.ring.look(&mut events)?;
            if events.is_empty() {
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
    fn serve<S: Serve>(&mut self, number: usize, party: Party<'_, S>) -> Result<(), End> {
        let (traffic, slot) = (party.traffic, party.first_slot + self.number);
        let Some(entry) = self.ring.entry(number) else {
            return Ok(());
        };
        let queue = entry.queue;
        let no_request = || io::Error::other("the kernel sent a request that is none");
        let Opened {
            request,
            mut reply,
            in_place,
        } = entry.open(&mut self.space).ok_or_else(no_request)?;
        let unique = Request::new(request).ok_or_else(no_request)?.header.unique;
        traffic.received();
        reply.set_queue(queue);
        match serve_one(party.server, (party.in_flight, slot), request, &mut reply)? {
            Done::Reply | Done::Named(_) | Done::Opened { .. } => {}
            // Requests without a reply come by `/dev/fuse`.
            Done::Silent => {
                reply.finish(unique, Err(errno::Errno::INVAL));
            }
            Done::Later => {
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
        let entry = self.ring.entry(number).filter(|entry| !entry.is_lent());
        if let (Some(entry), Some((header, body))) = (entry, split(reply)) {
            entry.answer(&header, ReplyBody::Copy(body));
            traffic.let_go(entry.queue);
            self.ring.commit(number);
        }
    }
}

/// A reply's header and the bytes behind it.
pub(super) fn split(reply: &[u8]) -> Option<(OutHeader, &[u8])> {
    let (header, _) = OutHeader::read_from_prefix(reply).ok()?;
    Some((header, reply.get(OUT_HEADER..)?))
}
