//! A mount over a kernel that a test plays: requests go by a socket that stands for `/dev/fuse` and
//! by entries of rings, and the replies come back from all of them.
//!
//! The server, its workers and the thread of the gates are the product's. A ring's worker is not,
//! as its ring would be io_uring's: [`RingWorker`] does with an entry what `uring` does, down to
//! the replies that come later.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use extant_engine::Volume;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use super::{DIRTY_LIMIT, ENTRIES};
use crate::counters::Counters;
use crate::device::Device;
use crate::full_volume::drainer::Drainer;
use crate::in_flight::InFlight;
use crate::init::Agreed;
use crate::mount::Connection;
use crate::node_table::NodeTable;
use crate::pool::{IdlePolicy, Pool};
use crate::reply::ReplyBuf;
use crate::serve::serve_one;
use crate::server::{Server, Settings};
use crate::traffic::Traffic;
use crate::uring::UntrustedRing;

/// The queues of rings, each with a worker of its own.
pub const QUEUES: usize = 2;
/// Workers at the socket.
const WORKERS: usize = 3;
/// Bytes of a request and of a reply: a message of the socket has no more.
const MESSAGE: usize = 64 << 10;
/// Time between two looks of a ring's worker whether a reply has come.
const LOOK: Duration = Duration::from_micros(500);

/// A request in an entry of a ring.
#[derive(Clone, Debug, Default)]
pub struct RingRequest {
    /// The request's header.
    pub header: Vec<u8>,
    /// The fixed part of its operation.
    pub operation: Vec<u8>,
    /// Names and data.
    pub payload: Vec<u8>,
}

/// The kernel's side.
pub struct Wire {
    socket: OwnedFd,
    queues: Vec<Sender<RingRequest>>,
    replies: Receiver<Vec<u8>>,
}

/// Outcome of a mount.
#[derive(Debug)]
pub struct Ended<T> {
    /// Result of the kernel's side.
    pub value: T,
    /// Outcome of the workers.
    pub served: io::Result<()>,
    /// The nodes that the server takes for known, and how many replies have named each.
    pub lookups: Vec<(u64, u64)>,
}

impl Wire {
    /// Sends a request by the socket.
    ///
    /// # Errors
    /// The server has ended.
    pub fn by_device(&self, request: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.socket, request)?;
        Ok(())
    }

    /// Sends a request by a queue; it waits there while all entries of the queue are taken.
    pub fn by_ring(&self, queue: usize, request: RingRequest) {
        if let Some(queue) = self.queues.get(queue % QUEUES) {
            // The worker ends after the kernel's side does.
            let _ = queue.send(request);
        }
    }

    /// The next reply or notification, if one comes within `patience`.
    pub fn reply(&self, patience: Duration) -> Option<Vec<u8>> {
        self.replies.recv_timeout(patience).ok()
    }
}

fn settings(writeback: bool) -> io::Result<Settings> {
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    Ok(Settings {
        agreed: Agreed {
            setxattr_ext: true,
            writeback,
            no_open: true,
            no_opendir: true,
            rings: true,
            checks_set_gid: true,
            kernel_checks: true,
        },
        strict_open: true,
        control: b"control".to_vec(),
        point: Connection::handed_over(null, "/nowhere".as_ref()).0.point,
        dirty_limit: DIRTY_LIMIT,
        facts: Vec::new(),
        volume_len: DIRTY_LIMIT,
    })
}

/// Mounts `volume`, calls `work` with the kernel's side, and ends the mount. With `writeback` the
/// kernel says that it caches what is written, so writers ask for space first.
///
/// # Errors
/// The host has no sockets, or the root directory cannot be read.
pub fn with_wire<T>(
    volume: &Volume,
    writeback: bool,
    work: impl FnOnce(&Wire) -> T,
) -> io::Result<Ended<T>> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let (ours, socket) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
    let device = Device::new(ours)?;
    let again = || fcntl_dupfd_cloexec(&socket, 0);
    let (heard, sent) = (again()?, again()?);
    let traffic = Arc::new(Traffic::new(QUEUES, QUEUES)?);
    for queue in 0..QUEUES {
        (0..ENTRIES).for_each(|_| traffic.added_entry(queue_number(queue)));
    }
    device.use_rings(Arc::clone(&traffic));
    let nodes = NodeTable::new(volume.root().map_err(io::Error::other)?);
    let (counters, in_flight) = (Counters::new(), InFlight::new(WORKERS + QUEUES));
    let parts = (&device, &nodes, &counters, &in_flight);
    let server = Server::new(
        volume,
        parts.0,
        parts.1,
        parts.2,
        parts.3,
        settings(writeback)?,
    );
    // The kernel of a test holds nothing dirty.
    server.use_drainer(Drainer::of(|| Ok(()), || Ok(()))?);
    let (value, served) = thread::scope(|scope| {
        let (tell, replies) = channel();
        scope.spawn(|| server.answer_writers());
        let pool = Pool::new(&device, &server, &in_flight, (WORKERS, IdlePolicy::Sleep));
        let served = scope.spawn(move || pool.run((MESSAGE, MESSAGE), || Ok(())));
        let mut queues = Vec::new();
        for queue in 0..QUEUES {
            let (send, requests) = channel();
            queues.push(send);
            let worker = RingWorker {
                queue,
                traffic: &traffic,
                server: &server,
                in_flight: &in_flight,
            };
            let tell = tell.clone();
            scope.spawn(move || worker.run(&requests, &tell));
        }
        scope.spawn(move || listen(&heard, &tell));
        let wire = Wire {
            socket: sent,
            queues,
            replies,
        };
        let end = EndGuard {
            socket: &socket,
            server: &server,
        };
        let value = work(&wire);
        drop(end);
        drop(wire);
        let served = served.join();
        let died = |_| Err(io::Error::other("a worker has died"));
        (value, served.unwrap_or_else(died))
    });
    drop(server);
    Ok(Ended {
        value,
        served,
        lookups: nodes.lookups(),
    })
}

fn queue_number(queue: usize) -> u16 {
    u16::try_from(queue).unwrap_or(0)
}

/// Ends the mount, also where the kernel's side panics: no thread waits for ever then.
struct EndGuard<'a, 'b> {
    socket: &'a OwnedFd,
    server: &'a Server<'b>,
}

impl Drop for EndGuard<'_, '_> {
    fn drop(&mut self) {
        // It fails where the other side has gone, which is as good.
        let _ = shutdown(self.socket, Shutdown::Both);
        self.server.stop();
    }
}

/// Passes on what the server writes to the socket.
fn listen(socket: &OwnedFd, tell: &Sender<Vec<u8>>) {
    let mut message = vec![0; 2 * MESSAGE];
    while let Ok(len) = rustix::io::read(socket, &mut message[..]) {
        if len == 0 || tell.send(message[..len].to_vec()).is_err() {
            return;
        }
    }
}

/// The worker of a queue.
struct RingWorker<'a, 'b> {
    queue: usize,
    traffic: &'a Traffic,
    server: &'a Server<'b>,
    in_flight: &'a InFlight,
}

impl RingWorker<'_, '_> {
    /// Serves `requests` until there will be no more.
    fn run(&self, requests: &Receiver<RingRequest>, tell: &Sender<Vec<u8>>) {
        let &Self { queue, traffic, .. } = self;
        let number = queue_number(queue);
        let Ok(mut ring) = UntrustedRing::new(queue, number, (ENTRIES, MESSAGE)) else {
            return;
        };
        loop {
            let question = traffic.question();
            for reply in ring.take_late(traffic) {
                // It fails once the kernel's side has gone.
                let _ = tell.send(reply);
            }
            let request = match ring.has_free() {
                true => requests.recv_timeout(LOOK),
                false => {
                    thread::sleep(LOOK);
                    Err(RecvTimeoutError::Timeout)
                }
            };
            let request = match request {
                Ok(request) => request,
                Err(RecvTimeoutError::Timeout) => {
                    traffic.answer(queue, question);
                    continue;
                }
                // The kernel's side has had all replies.
                Err(RecvTimeoutError::Disconnected) => break,
            };
            let RingRequest {
                header,
                operation,
                payload,
            } = &request;
            let slot = (self.in_flight, WORKERS + queue);
            let serve =
                |bytes: &[u8], reply: &mut ReplyBuf<'_>| serve_one(self.server, slot, bytes, reply);
            if let Some(reply) = ring.serve((header, operation, payload), traffic, serve) {
                let _ = tell.send(reply);
            }
        }
        traffic.retire(queue);
    }
}
