//! The kernel's end: `/dev/fuse` as a queue of requests, and as the way to the kernel for what is
//! no reply. Where rings carry the requests (`traffic`), the device knows of that.
//!
//! The descriptor is non-blocking. Any number of threads may read, write and wait at once; the
//! kernel hands each request to one reader. Once [`Device::close`] was called, every reader finds
//! the device gone.
//!
//! # Concurrency
//! [`Device::has_no_writes`] argues so. A reader counts itself before it reads, until it has served
//! a WRITE or knows that the request is none (`maybe_writes`). If (1) the queue is empty and (2),
//! looked at after that, the count is 0, then each WRITE that was in the queue before (1) was taken
//! by a reader that had counted itself before, and has been answered. The kernel holds back
//! background requests only while more of them are in the queue or being served than there are
//! workers.
//!
//! # Errors
//! A system call that fails is repeated, ends the session, or means that the mount is gone
//! ([`Reaction`]). A lack of memory in the kernel is no reason to end: the call is repeated after a
//! pause. A repeated reply is never lost: either the kernel has not matched the first one to its
//! request and takes the second, or it has answered the request with EIO and says ENOENT.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno as Sys;
use zerocopy::IntoBytes;

use crate::abi::{
    InvalInodeOut, NOTIFY_INVAL_INODE, NOTIFY_PRUNE, OUT_HEADER, OutHeader, PruneOut,
};
use crate::traffic::Traffic;

/// A simulated kernel's end of the device.
#[cfg(test)]
pub(crate) trait KernelEnd: Send + Sync {
    /// Takes the next request, or fails as a read of `/dev/fuse` does.
    fn read(&self, buf: &mut [u8]) -> rustix::io::Result<usize>;
    /// Takes a reply or a notification, or fails as a write to `/dev/fuse` does. The kernel has
    /// acted on it when this returns.
    fn write(&self, message: &[u8]) -> rustix::io::Result<usize>;
    /// Returns whether the mount is disconnected.
    fn is_gone(&self) -> bool;
}

/// Outcome of a read.
pub(crate) enum Received<'a> {
    /// A request of so many bytes, which counts as a WRITE until the guard is dropped.
    Request(usize, MaybeWrite<'a>),
    /// Nothing is waiting.
    Nothing,
    /// The file system is unmounted, or the connection was aborted.
    Gone,
}

/// A request that may be a WRITE and is not answered yet. Drop it once the request is answered, or
/// is known to be no WRITE.
#[must_use]
pub(crate) struct MaybeWrite<'a>(&'a AtomicU64);

impl<'a> MaybeWrite<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for MaybeWrite<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The zeros of every hole that is sent: few enough to stay in a processor's cache.
static ZEROS: [u8; ZEROS_LEN] = [0; ZEROS_LEN];
const ZEROS_LEN: usize = 16 << 10;
/// The most zeros that are sent: those of the largest READ.
pub(crate) const MAX_ZEROS: usize = 1 << 20;
/// Pieces of a reply that ends with zeros: the first is what comes before them.
const PIECES: usize = 1 + MAX_ZEROS.div_ceil(ZEROS_LEN);

/// Pause before a call is repeated for which the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(5);

/// Reaction to a failed read or write of `/dev/fuse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Reaction {
    /// Repeat it.
    Again,
    /// Repeat it after [`PAUSE`].
    Later,
    /// There is nothing to receive.
    WouldBlock,
    /// No request waits for this reply.
    RequestGone,
    /// The mount is gone.
    Gone,
    /// The session ends.
    Fail,
}

/// After a failed read.
fn after_read(error: Sys) -> Reaction {
    match error {
        Sys::AGAIN => Reaction::WouldBlock,
        // NOENT: the request was interrupted between being chosen and being read.
        Sys::INTR | Sys::NOENT => Reaction::Again,
        Sys::NOMEM => Reaction::Later,
        Sys::NODEV | Sys::CONNABORTED => Reaction::Gone,
        _ => Reaction::Fail,
    }
}

/// After a failed write.
fn after_write(error: Sys) -> Reaction {
    match error {
        // The caller was killed, or the request was answered already.
        Sys::NOENT => Reaction::RequestGone,
        Sys::INTR => Reaction::Again,
        Sys::NOMEM | Sys::AGAIN => Reaction::Later,
        Sys::NODEV | Sys::CONNABORTED => Reaction::Gone,
        _ => Reaction::Fail,
    }
}

/// Makes `call` until it succeeds or `after` finds no reason to repeat it, or `closed` is set: then
/// the mount is gone.
fn retry_syscall<T>(
    closed: &AtomicBool,
    after: impl Fn(Sys) -> Reaction,
    mut call: impl FnMut() -> rustix::io::Result<T>,
) -> io::Result<Result<T, Reaction>> {
    loop {
        let error = match call() {
            Ok(value) => return Ok(Ok(value)),
            Err(error) => error,
        };
        match after(error) {
            Reaction::Again => {}
            Reaction::Later => thread::sleep(PAUSE),
            Reaction::Fail => return Err(error.into()),
            reaction => return Ok(Err(reaction)),
        }
        if closed.load(Ordering::Acquire) {
            return Ok(Err(Reaction::Gone));
        }
    }
}

/// An open `/dev/fuse` that belongs to one mount.
pub(crate) struct Device {
    fd: OwnedFd,
    closed: AtomicBool,
    /// Readers that are reading, or serve a request that may be a WRITE.
    maybe_writes: AtomicU64,
    /// Readable once closed, so that sleepers wake up.
    bell: OwnedFd,
    /// Of the rings, if there are any.
    traffic: OnceLock<Arc<Traffic>>,
    /// The kernel is a guest's: nothing but replies reaches it, each by its request's queue.
    is_guest: bool,
    /// Reads and writes go there; `fd` says when there is something to read.
    #[cfg(test)]
    kernel: Option<Box<dyn KernelEnd>>,
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Device {
    /// Takes over a descriptor that was given to a mount.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            fd,
            closed: AtomicBool::new(false),
            maybe_writes: AtomicU64::new(0),
            bell,
            traffic: OnceLock::new(),
            is_guest: false,
            #[cfg(test)]
            kernel: None,
        })
    }

    /// The place of a device where requests come from a guest: nothing is ever received there, and
    /// it is not gone before it is closed.
    pub(crate) fn of_guest() -> io::Result<Self> {
        Ok(Self {
            is_guest: true,
            ..Self::new(eventfd(0, EventfdFlags::CLOEXEC)?)?
        })
    }

    /// Returns whether the kernel is a guest's, which takes no notifications.
    pub(crate) fn is_guest(&self) -> bool {
        self.is_guest
    }

    /// A device of a simulated kernel. `fd` can be read while there is something to receive.
    #[cfg(test)]
    pub(crate) fn simulated(fd: OwnedFd, kernel: Box<dyn KernelEnd>) -> io::Result<Self> {
        let kernel = Some(kernel);
        Ok(Self {
            kernel,
            ..Self::new(fd)?
        })
    }

    fn read(&self, buf: &mut [u8]) -> rustix::io::Result<usize> {
        #[cfg(test)]
        if let Some(kernel) = &self.kernel {
            return kernel.read(buf);
        }
        rustix::io::read(&self.fd, buf)
    }

    fn write(&self, message: &[u8]) -> rustix::io::Result<usize> {
        #[cfg(test)]
        if let Some(kernel) = &self.kernel {
            return kernel.write(message);
        }
        rustix::io::write(&self.fd, message)
    }

    fn write_pieces(&self, pieces: &[IoSlice<'_>]) -> rustix::io::Result<usize> {
        #[cfg(test)]
        if let Some(kernel) = &self.kernel {
            let message: Vec<u8> = pieces.iter().flat_map(|piece| piece.to_vec()).collect();
            return kernel.write(&message);
        }
        rustix::io::writev(&self.fd, pieces)
    }

    /// Rings are to carry the requests.
    pub(crate) fn use_rings(&self, traffic: Arc<Traffic>) {
        // There is one set of rings for each mount.
        let _ = self.traffic.set(traffic);
    }

    /// What the rings do, if there are any.
    pub(crate) fn traffic(&self) -> Option<&Traffic> {
        self.traffic.get().map(Arc::as_ref)
    }

    /// The same, if they carry the requests.
    fn carrier(&self) -> Option<&Traffic> {
        self.traffic().filter(|traffic| traffic.carries())
    }

    /// Readable once the device was closed.
    pub(crate) fn bell(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Tries to defer the reply to a request; returns whether it may be sent later, which then has
    /// to follow. Always so for one that came by the device. One that came by the `queue` of a ring
    /// takes one of the entries that the queue can do without, so each call is for one request.
    pub(crate) fn try_defer_reply(&self, queue: Option<u16>) -> bool {
        if self.is_guest {
            return false;
        }
        match (self.traffic(), queue) {
            (Some(traffic), Some(queue)) => traffic.may_keep(queue),
            _ => true,
        }
    }

    /// Makes all readers, now and later, find the device gone. The kernel aborts the mount when the
    /// last reader has let go of it.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.closed.store(true, Ordering::Release);
        rustix::io::write(&self.bell, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Takes the next request, if there is one.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> io::Result<Received<'_>> {
        // Counted before the read.
        let maybe_write = MaybeWrite::new(&self.maybe_writes);
        if self.closed.load(Ordering::Acquire) {
            return Ok(Received::Gone);
        }
        let read = || self.read(&mut *buf);
        match retry_syscall(&self.closed, after_read, read)? {
            Ok(0) => Ok(Received::Gone),
            Ok(len) => Ok(Received::Request(len, maybe_write)),
            Err(Reaction::WouldBlock) => Ok(Received::Nothing),
            Err(_) => Ok(Received::Gone),
        }
    }

    /// Returns whether there was a moment during the call when each WRITE that the kernel had sent
    /// before was answered.
    pub(crate) fn has_no_writes(&self) -> bool {
        match self.carrier() {
            // By the device come only those that are no WRITEs.
            Some(traffic) => traffic.is_idle(),
            None => !self.may_have_unserved() && self.maybe_writes.load(Ordering::SeqCst) == 0,
        }
    }

    /// Returns whether the mount is disconnected, or [`Device::close`] was called: no request is to
    /// come.
    pub(crate) fn is_gone(&self) -> bool {
        self.closed.load(Ordering::Acquire) || self.is_disconnected()
    }

    /// Returns whether the kernel has disconnected the mount. From then on its directory and device
    /// number may be another mount's.
    pub(crate) fn is_disconnected(&self) -> bool {
        self.polled().intersects(PollFlags::ERR)
    }

    /// Returns whether a request waits for a reader or, over rings, may wait or be served.
    pub(crate) fn may_have_unserved(&self) -> bool {
        self.polled().intersects(PollFlags::IN)
            || self.carrier().is_some_and(|traffic| !traffic.is_idle())
    }

    fn polled(&self) -> PollFlags {
        #[cfg(test)]
        if self.kernel.as_ref().is_some_and(|kernel| kernel.is_gone()) {
            return PollFlags::ERR;
        }
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        match poll(&mut fds, Some(&Timespec::default())) {
            Ok(_) => fds[0].revents(),
            // A caller that needs the answer asks again.
            Err(_) => PollFlags::empty(),
        }
    }

    /// Sleeps until there is something to receive, or until `patience` is over if there is one;
    /// returns whether there is something.
    pub(crate) fn wait(&self, patience: Option<Duration>) -> io::Result<bool> {
        let patience = patience.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [
            PollFd::new(&self.fd, PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        match poll(&mut fds, patience.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Sys::INTR) => Ok(true),
            Err(Sys::NOMEM | Sys::AGAIN) => {
                thread::sleep(PAUSE);
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a reply and returns whether it arrived: the kernel may have given up on the request
    /// meanwhile, or be gone altogether.
    pub(crate) fn send(&self, reply: &[u8]) -> io::Result<bool> {
        let write = || self.write(reply);
        Ok(retry_syscall(&self.closed, after_write, write)?.is_ok())
    }

    /// Sends a reply that ends with so many zeros behind `reply`, as [`Device::send`].
    pub(crate) fn send_with_zeros(&self, reply: &[u8], zeros: usize) -> io::Result<bool> {
        if zeros == 0 {
            return self.send(reply);
        }
        let mut pieces = [IoSlice::new(&ZEROS); PIECES];
        let last = zeros.div_ceil(ZEROS_LEN);
        let pieces = pieces.get_mut(..=last);
        // Not reached: no reply outgrows the largest READ.
        let pieces = pieces.ok_or(io::ErrorKind::InvalidInput)?;
        pieces[0] = IoSlice::new(reply);
        pieces[last] = IoSlice::new(&ZEROS[..zeros - (last - 1) * ZEROS_LEN]);
        let write = || self.write_pieces(pieces);
        Ok(retry_syscall(&self.closed, after_write, write)?.is_ok())
    }

    /// Sends the deferred reply to a request whose server said `Completion::Deferred`, the way that
    /// the request came: by the `queue` of a ring or by the device, whichever carries requests by
    /// now. Returns whether it arrived, as far as that is known.
    pub(crate) fn send_deferred_reply(
        &self,
        queue: Option<u16>,
        unique: u64,
        reply: &[u8],
    ) -> io::Result<bool> {
        match (self.traffic(), queue) {
            (Some(traffic), Some(_)) => traffic.send_deferred_reply(unique, reply).map(|()| true),
            _ => self.send(reply),
        }
    }

    /// Tells the kernel that what it knows of a node's attributes is old, and, from `offset` on,
    /// its pages too (a negative offset: attributes only). Dirty pages are written back first: see
    /// the callers.
    pub(crate) fn invalidate(&self, nodeid: u64, offset: i64) -> io::Result<bool> {
        if self.is_guest {
            return Ok(false);
        }
        let body = InvalInodeOut {
            nodeid,
            offset,
            len: 0,
        };
        let mut message = [0; OUT_HEADER + size_of::<InvalInodeOut>()];
        let len = message_len(message.len());
        let header = OutHeader {
            len,
            error: NOTIFY_INVAL_INODE,
            unique: 0,
        };
        message[..OUT_HEADER].copy_from_slice(header.as_bytes());
        message[OUT_HEADER..].copy_from_slice(body.as_bytes());
        self.send(&message)
    }

    /// Has the kernel forget those of `nodes` that are not in use: it will look them up again.
    ///
    /// # Errors
    /// `EINVAL` from kernels before Linux 6.18, which do not know the message.
    pub(crate) fn prune(&self, nodes: &[u64]) -> io::Result<()> {
        if self.is_guest {
            return Ok(());
        }
        let body = PruneOut {
            count: message_len(nodes.len()),
            ..PruneOut::default()
        };
        let len = OUT_HEADER + size_of::<PruneOut>() + size_of_val(nodes);
        let header = OutHeader {
            len: message_len(len),
            error: NOTIFY_PRUNE,
            unique: 0,
        };
        let message = [header.as_bytes(), body.as_bytes(), nodes.as_bytes()].concat();
        self.send(&message).map(drop)
    }
}

/// A length or count of a message, which is far below 2^32. The kernel refuses one that is wrong.
fn message_len(len: usize) -> u32 {
    debug_assert!(u32::try_from(len).is_ok(), "a message of {len} bytes");
    u32::try_from(len).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::traffic::Parked;

    /// A kernel that fails as listed before it takes what is written.
    fn writes(errors: &[Sys], closed: &AtomicBool) -> (io::Result<Result<(), Reaction>>, usize) {
        let (mut left, mut calls) = (errors.iter(), 0);
        let outcome = retry_syscall(closed, after_write, || {
            calls += 1;
            left.next().map_or(Ok(()), |&error| Err(error))
        });
        (outcome, calls)
    }

    #[test]
    fn a_reply_survives_a_kernel_without_memory() {
        let open = AtomicBool::new(false);
        let errors = [Sys::NOMEM, Sys::INTR, Sys::AGAIN, Sys::NOMEM];
        let (outcome, calls) = writes(&errors, &open);
        assert_eq!((outcome.unwrap(), calls), (Ok(()), 5));
        let (outcome, calls) = writes(&[Sys::NOMEM, Sys::NOENT], &open);
        assert_eq!((outcome.unwrap(), calls), (Err(Reaction::RequestGone), 2));
        let (outcome, calls) = writes(&[Sys::NOMEM, Sys::NODEV], &open);
        assert_eq!((outcome.unwrap(), calls), (Err(Reaction::Gone), 2));
        let (outcome, _) = writes(&[Sys::INVAL], &open);
        assert_eq!(outcome.unwrap_err().raw_os_error(), Some(22));
        // A mount that ends does not wait for the kernel's memory.
        let (outcome, calls) = writes(&[Sys::NOMEM; 100], &AtomicBool::new(true));
        assert_eq!((outcome.unwrap(), calls), (Err(Reaction::Gone), 1));
    }

    #[test]
    fn what_a_failed_read_asks_for() {
        let closed = AtomicBool::new(false);
        let errors = [Sys::NOMEM, Sys::INTR, Sys::NOENT, Sys::NOMEM];
        let mut left = errors.into_iter();
        let read = || left.next().map_or(Ok(80_usize), Err);
        assert_eq!(retry_syscall(&closed, after_read, read).unwrap(), Ok(80));
        assert_eq!(after_read(Sys::AGAIN), Reaction::WouldBlock);
        assert_eq!(after_read(Sys::NODEV), Reaction::Gone);
        assert_eq!(after_read(Sys::IO), Reaction::Fail);
    }

    #[test]
    fn a_late_reply_goes_the_way_that_its_request_came() {
        let kind = rustix::net::SocketType::SEQPACKET;
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let family = rustix::net::AddressFamily::UNIX;
        let (ours, kernel) = rustix::net::socketpair(family, kind, flags, None).unwrap();
        let device = Device::new(ours).unwrap();
        assert!(device.try_defer_reply(None));
        // Rings take over while the request waits.
        let traffic = Arc::new(Traffic::new(1, 1).unwrap());
        (0..2).for_each(|_| traffic.added_entry(0));
        device.use_rings(Arc::clone(&traffic));
        traffic.received(0, crate::abi::op::GETATTR);
        device
            .send_deferred_reply(None, 7, b"by the device")
            .unwrap();
        let mut reply = [0; 32];
        let len = rustix::io::read(&kernel, &mut reply).unwrap();
        assert_eq!(&reply[..len], b"by the device");
        // One that came by a ring waits there.
        assert!(device.try_defer_reply(Some(0)) && !device.try_defer_reply(Some(0)));
        let parked = Parked {
            worker: 0,
            entry: 0,
        };
        assert_eq!(traffic.park(8, parked), None);
        device
            .send_deferred_reply(Some(0), 8, b"by the ring")
            .unwrap();
        assert_eq!(traffic.take_replies(0), [(0, b"by the ring".to_vec())]);
        assert_eq!(rustix::io::read(&kernel, &mut reply), Err(Sys::AGAIN));
    }

    #[test]
    fn a_reply_ends_with_as_many_zeros_as_it_says() {
        let kind = rustix::net::SocketType::SEQPACKET;
        let flags = rustix::net::SocketFlags::NONBLOCK;
        let family = rustix::net::AddressFamily::UNIX;
        let (ours, kernel) = rustix::net::socketpair(family, kind, flags, None).unwrap();
        let device = Device::new(ours).unwrap();
        let mut message = vec![9; 128 << 10];
        for zeros in [0, 1, ZEROS_LEN, ZEROS_LEN + 1, 5 * ZEROS_LEN - 1] {
            assert!(device.send_with_zeros(b"header", zeros).unwrap());
            let len = rustix::io::read(&kernel, &mut message[..]).unwrap();
            assert_eq!((len, &message[..6]), (6 + zeros, &b"header"[..]));
            assert!(message[6..len].iter().all(|&byte| byte == 0), "{zeros}");
            message.fill(9);
        }
        let too_many = MAX_ZEROS + ZEROS_LEN;
        assert!(device.send_with_zeros(b"header", too_many).is_err());
    }

    #[test]
    fn a_closed_device_is_gone() {
        let (ours, theirs) = rustix::pipe::pipe().unwrap();
        let device = Device::new(ours).unwrap();
        assert!(!device.is_gone() && !device.may_have_unserved());
        rustix::io::write(&theirs, b"x").unwrap();
        assert!(device.may_have_unserved());
        device.close().unwrap();
        assert!(device.is_gone());
        assert!(matches!(device.receive(&mut [0; 8]), Ok(Received::Gone)));
    }
}
