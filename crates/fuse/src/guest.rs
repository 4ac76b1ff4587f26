//! A volume for the kernel of a guest: requests arrive by queues of virtio, each with room for its
//! reply, instead of by `/dev/fuse`.
//!
//! # Responsibility
//! [`GuestVolume`] is the volume from the first monitor to the last, [`GuestSession`] one mount of
//! it by the guest, from its INIT on. Bytes go in and out here; rings and memory are the caller's.
//!
//! # Invariants
//! A guest hears nothing but replies, so nothing depends on more:
//! - It keeps no dirty pages (no writeback cache). A write has its space, or its error, when it is
//!   answered; no request waits for a drain, so none is answered later.
//! - What the server changes by itself it does not let the guest keep: attributes of files with
//!   set-id bits, which a write clears, and pages of a file whose time of access an open has
//!   updated (the first read then has the guest ask for the time).
//! - Callers are the guest's. Nothing is looked up of their processes on this host, and being user
//!   N there is not being user N here.

use std::io;
use std::thread;

use extant_engine::Volume;
use tracing::info;

use crate::abi::{OUT_HEADER, op};
use crate::counters::Counters;
use crate::device::Device;
use crate::errno::Errno;
use crate::in_flight::InFlight;
use crate::init::{self, Agreed, REPLY_LEN, REQUEST_LEN, RequestedFeatures};
use crate::mount::{MountOptions, MountPoint};
use crate::node_table::NodeTable;
use crate::reply::{ReplyBuf, ReplyMemory};
use crate::request::Request;
use crate::serve::{Completion, Serve, serve_one};
use crate::server::{Server, Settings};

/// A volume that is served to a guest. See the module's header.
pub struct GuestVolume {
    volume: Volume,
    device: Device,
    counters: Counters,
    in_flight: InFlight,
    strict_open: bool,
}

/// One mount of the volume by the guest's kernel.
pub struct GuestSession<'a> {
    server: Server<'a>,
    volume: &'a Volume,
    in_flight: &'a InFlight,
}

impl GuestVolume {
    /// The most bytes of a request.
    pub const REQUEST_LEN: usize = REQUEST_LEN;
    /// The most bytes of a reply.
    pub const REPLY_LEN: usize = OUT_HEADER + REPLY_LEN;
    /// The least bytes of a reply: the room that [`GuestSession::serve`] needs.
    pub const LEAST_REPLY: usize = OUT_HEADER;

    /// Takes over `volume`, to be served by `workers` threads.
    ///
    /// # Errors
    /// The host has no eventfd.
    pub fn new(volume: Volume, workers: usize, options: &MountOptions) -> io::Result<Self> {
        Ok(Self {
            device: Device::of_guest()?,
            counters: Counters::new(),
            in_flight: InFlight::new(workers),
            // Where nothing can be written there is nothing to refuse.
            strict_open: options.strict_open() && !volume.read_only(),
            volume,
        })
    }

    /// Returns whether a request begins a session: the guest mounts.
    #[must_use]
    pub fn is_init(request: &[u8]) -> bool {
        Request::new(request).is_some_and(|request| request.header.opcode == op::INIT)
    }

    /// The reply to a request outside of a session; none to one that has none.
    #[must_use]
    pub fn refusal(request: &[u8]) -> Vec<u8> {
        let request = Request::new(request).filter(|request| has_reply(request.header.opcode));
        request.map_or_else(Vec::new, |request| {
            let mut space = ReplyMemory::new(0);
            let mut reply = space.start();
            let unique = request.header.unique;
            reply.finish(unique, Err(Errno::IO)).to_vec()
        })
    }

    /// Begins a session by `init`, the guest's request for it, and calls `work` with the session
    /// and the reply. Without a session, if guest and server do not agree. When `work` returns,
    /// what the guest knew of the volume is forgotten: no request of the session may be under way.
    ///
    /// # Errors
    /// The root directory cannot be read, or there is no thread.
    pub fn session<T>(
        &self,
        init: &[u8],
        work: impl FnOnce(Option<&GuestSession<'_>>, &[u8]) -> T,
    ) -> io::Result<T> {
        let nodes = NodeTable::new(self.volume.root().map_err(io::Error::other)?);
        let mut space = ReplyMemory::new(size_of::<crate::abi::InitOut>());
        let mut reply = space.start();
        let requested = RequestedFeatures {
            writeback: false,
            rings: false,
            kernel_checks: true,
            time_gran: self.volume.time_granularity(),
        };
        let agreed = Request::new(init).and_then(|r| init::answer(&r, requested, &mut reply));
        let Some(agreed) = agreed else {
            return Ok(work(None, reply.bytes()));
        };
        let session = GuestSession {
            server: Server::new(
                &self.volume,
                &self.device,
                &nodes,
                &self.counters,
                &self.in_flight,
                self.settings(agreed),
            ),
            volume: &self.volume,
            in_flight: &self.in_flight,
        };
        thread::scope(|scope| {
            let gates = thread::Builder::new().name("fuse-gates".into());
            gates.spawn_scoped(scope, || session.server.answer_writers())?;
            let ends = GatesGuard(&session.server);
            let worked = work(Some(&session), reply.bytes());
            drop(ends);
            Ok(worked)
        })
    }

    fn settings(&self, agreed: Agreed) -> Settings {
        Settings {
            agreed,
            strict_open: self.strict_open,
            control: Vec::new(),
            point: MountPoint::of_guest(),
            // Nothing is.
            dirty_limit: 0,
            facts: Vec::new(),
            volume_len: 0,
        }
    }

    /// Makes all changes durable.
    ///
    /// # Errors
    /// They are not.
    pub fn sync(&self) -> Result<(), extant_engine::Error> {
        self.volume.sync()
    }

    /// Unmounts the volume: its journal is empty then. One that was shut down by request ends as it
    /// was left, which is no failure.
    ///
    /// # Errors
    /// Those of closing the file system.
    pub fn close(self) -> Result<(), extant_engine::Error> {
        let by_request = self.volume.is_shut_down_by_request();
        match self.volume.unmount() {
            Err(error) if by_request => {
                info!("{error}; the next mount replays the journal");
                Ok(())
            }
            closed => closed,
        }
    }
}

/// Ends the thread of the gates, also where a worker panics.
struct GatesGuard<'a, 'b>(&'a Server<'b>);

impl Drop for GatesGuard<'_, '_> {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Returns whether requests of a kind have replies.
fn has_reply(opcode: u32) -> bool {
    !matches!(opcode, op::FORGET | op::BATCH_FORGET | op::INTERRUPT)
}

impl GuestSession<'_> {
    /// Serves a request as worker `worker` of those that the volume was made for, with `room` for
    /// its reply, at least [`GuestVolume::LEAST_REPLY`] bytes. `deliver` brings the reply to the
    /// guest, and returns whether it arrived. Returns whether the guest has unmounted: everything
    /// is durable then.
    pub fn serve(
        &self,
        worker: usize,
        request: &[u8],
        room: &mut [u8],
        deliver: impl FnOnce(&[u8]) -> bool,
    ) -> bool {
        let Some(opcode) = Request::new(request).map(|request| request.header.opcode) else {
            // Nothing says what it asks, nor its number.
            deliver(&[]);
            return false;
        };
        let mut reply = ReplyBuf::over(room);
        let slot = (self.in_flight, worker);
        let ends = opcode == op::DESTROY;
        let served = match serve_one(&self.server, slot, request, &mut reply) {
            Ok(done) if ends => self.end(done, request, &mut reply),
            Ok(done) => done,
            // Not reached: the request is one.
            Err(_) => Completion::Silent,
        };
        let arrived = match served {
            // A guest's request is never answered later.
            Completion::Silent | Completion::Deferred => deliver(&[]),
            _ => deliver(reply.bytes()),
        };
        if !arrived {
            self.server.undo_undelivered(served);
        }
        ends
    }

    /// The guest has unmounted, which on its own disk would leave everything written.
    fn end(&self, done: Completion, request: &[u8], reply: &mut ReplyBuf<'_>) -> Completion {
        let unique = Request::new(request).map_or(0, |request| request.header.unique);
        if let Err(error) = self.volume.sync() {
            reply.finish(unique, Err(Errno::from(error)));
        }
        done
    }
}

#[cfg(test)]
mod tests;
