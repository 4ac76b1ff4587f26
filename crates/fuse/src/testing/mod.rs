//! A mount without a kernel: requests of any bytes are served as if the kernel had sent them.
//!
//! What the server tells the kernel by itself goes to `/dev/null`. Nothing answers the writers that
//! wait for space.

mod wire;

pub use wire::{Ended, QUEUES, RingRequest, Wire, with_wire};

use std::io;
use std::sync::Arc;

use extant_engine::Volume;
use rustix::fs::{Mode, OFlags, open};

use crate::counters::Counters;
use crate::device::Device;
use crate::in_flight::InFlight;
use crate::init::{Agreed, REPLY_LEN};
use crate::mount::Connection;
use crate::node_table::NodeTable;
use crate::reply::ReplyMemory;
use crate::serve::{Completion, Serve};
use crate::server::{Server, Settings};
use crate::traffic::Traffic;
use crate::uring::serve_entry;

/// Bytes of payload that an entry of a ring takes.
const PAYLOAD_LEN: usize = 128 << 10;
/// How many entries a queue is said to have.
const ENTRIES: usize = 4;
/// Writers may hold so many dirty bytes: more than a small volume has.
const DIRTY_LIMIT: u64 = 1 << 30;

/// A server of requests that a test or a fuzzer sends.
pub struct FuzzServer<'a> {
    server: Server<'a>,
    space: ReplyMemory,
}

/// The parts of a request in an entry of a ring.
#[derive(Clone, Copy, Debug)]
pub struct InEntry<'a> {
    /// The request's header.
    pub header: &'a [u8],
    /// The fixed part of its operation.
    pub operation: &'a [u8],
    /// What follows: names, data.
    pub payload: &'a [u8],
    /// What the kernel says that the payload's length is.
    pub said: u32,
}

/// Calls `work` with a server of `volume`.
///
/// # Errors
/// The host has no `/dev/null`, or the root directory cannot be read.
pub fn with_server<T>(
    volume: &Volume,
    work: impl FnOnce(&mut FuzzServer<'_>) -> T,
) -> io::Result<T> {
    with_server_beside(volume, true, work)
}

/// As [`with_server`], of a mount whose kernel checks permissions or not.
pub(crate) fn with_server_beside<T>(
    volume: &Volume,
    kernel_checks: bool,
    work: impl FnOnce(&mut FuzzServer<'_>) -> T,
) -> io::Result<T> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let device = Device::new(open("/dev/null", flags, Mode::empty())?)?;
    let traffic = Traffic::new(1, 1)?;
    (0..ENTRIES).for_each(|_| traffic.added_entry(0));
    device.use_rings(Arc::new(traffic));
    let nodes = NodeTable::new(volume.root().map_err(io::Error::other)?);
    let (counters, in_flight) = (Counters::new(), InFlight::new(1));
    let null = open("/dev/null", flags, Mode::empty())?;
    let settings = Settings {
        agreed: Agreed {
            setxattr_ext: true,
            writeback: true,
            no_open: true,
            no_opendir: true,
            rings: true,
            checks_set_gid: true,
            kernel_checks,
        },
        strict_open: true,
        control: b"control".to_vec(),
        point: Connection::handed_over(null, "/nowhere".as_ref()).0.point,
        dirty_limit: DIRTY_LIMIT,
        facts: Vec::new(),
        volume_len: DIRTY_LIMIT,
    };
    let server = Server::new(volume, &device, &nodes, &counters, &in_flight, settings);
    Ok(work(&mut FuzzServer {
        server,
        space: ReplyMemory::new(REPLY_LEN),
    }))
}

impl FuzzServer<'_> {
    /// Returns whether another worker is woken before this request is served.
    #[cfg(test)]
    pub(crate) fn may_block(&self, request: &[u8]) -> bool {
        self.server.may_block(request)
    }

    /// Serves what a read of `/dev/fuse` brought. Returns the reply, if there is one now.
    pub fn by_device(&mut self, request: &[u8]) -> Option<Vec<u8>> {
        let mut reply = self.space.start();
        // Whether it may block is asked of requests of any bytes.
        let _ = self.server.may_block(request);
        match self.server.serve(request, &mut reply).ok()? {
            Completion::Deferred | Completion::Silent => None,
            _ => Some(reply.bytes().to_vec()),
        }
    }

    /// As [`FuzzServer::by_device`], for a sender that has zeros or not: also how many follow.
    #[cfg(test)]
    pub(crate) fn by_sender(
        &mut self,
        request: &[u8],
        sends_zeros: bool,
    ) -> Option<(Vec<u8>, usize)> {
        let mut reply = self.space.start();
        if sends_zeros {
            reply.let_zeros_follow();
        }
        match self.server.serve(request, &mut reply).ok()? {
            Completion::Deferred | Completion::Silent => None,
            _ => Some((reply.bytes().to_vec(), reply.zeros())),
        }
    }

    /// Serves what an entry of a ring holds. Returns the reply, if there is one now.
    pub fn by_ring(&mut self, entry: InEntry<'_>) -> Option<Vec<u8>> {
        let InEntry {
            header,
            operation,
            payload,
            said,
        } = entry;
        let (server, parts) = (&self.server, (header, operation, payload));
        serve_entry(
            parts,
            (said, PAYLOAD_LEN),
            &mut self.space,
            |bytes, reply| server.serve(bytes, reply),
        )
    }
}
