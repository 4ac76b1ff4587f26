//! The kernel's end: `/dev/fuse` as a queue of requests.
//!
//! The descriptor is non-blocking. Any number of threads may read, write and wait at once; the kernel hands each
//! request to one reader. Once [`Device::close`] was called, every reader finds the device gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno as Sys;
use zerocopy::IntoBytes;

use crate::abi::{InvalInodeOut, NOTIFY_INVAL_INODE, OUT_HEADER, OutHeader};

/// What a read brought.
pub(crate) enum Received {
    /// A request of so many bytes.
    Request(usize),
    /// Nothing is waiting.
    Nothing,
    /// The file system is unmounted, or the connection was aborted.
    Gone,
}

/// An open `/dev/fuse` that belongs to one mount.
pub(crate) struct Device {
    fd: OwnedFd,
    closed: AtomicBool,
    /// Readable once closed, so that sleepers wake up.
    bell: OwnedFd,
}

impl Device {
    /// Takes over a descriptor that was given to a mount.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        fcntl_setfl(&fd, fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        let bell = eventfd(0, EventfdFlags::CLOEXEC)?;
        Ok(Self {
            fd,
            closed: AtomicBool::new(false),
            bell,
        })
    }

    /// Makes all readers, now and later, find the device gone. The kernel aborts the mount when the last reader has
    /// let go of it.
    pub(crate) fn close(&self) -> io::Result<()> {
        self.closed.store(true, Ordering::Release);
        rustix::io::write(&self.bell, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Takes the next request, if there is one.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        loop {
            if self.closed.load(Ordering::Acquire) {
                return Ok(Received::Gone);
            }
            match rustix::io::read(&self.fd, &mut *buf) {
                Ok(0) | Err(Sys::NODEV | Sys::CONNABORTED) => return Ok(Received::Gone),
                Ok(len) => return Ok(Received::Request(len)),
                Err(Sys::AGAIN) => return Ok(Received::Nothing),
                // NOENT: the request was interrupted between being chosen and being read.
                Err(Sys::INTR | Sys::NOENT) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sleeps until there is something to receive, or until `patience` is over if there is one; returns whether
    /// there is something.
    pub(crate) fn wait(&self, patience: Option<Duration>) -> io::Result<bool> {
        let patience = patience.and_then(|left| Timespec::try_from(left).ok());
        let mut fds = [
            PollFd::new(&self.fd, PollFlags::IN),
            PollFd::new(&self.bell, PollFlags::IN),
        ];
        match poll(&mut fds, patience.as_ref()) {
            Ok(ready) => Ok(ready > 0),
            Err(Sys::INTR) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends a reply and returns whether it arrived: the kernel may have given up on the request meanwhile, or be
    /// gone altogether.
    pub(crate) fn send(&self, reply: &[u8]) -> io::Result<bool> {
        loop {
            match rustix::io::write(&self.fd, reply) {
                Ok(_) => return Ok(true),
                Err(Sys::NOENT | Sys::NODEV | Sys::CONNABORTED) => return Ok(false),
                Err(Sys::INTR | Sys::AGAIN) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tells the kernel that what it knows of a node's attributes is old, and, from `offset` on, its pages too
    /// (a negative offset: attributes only). Dirty pages are written back first: see the callers.
    pub(crate) fn invalidate(&self, nodeid: u64, offset: i64) -> io::Result<bool> {
        let body = InvalInodeOut {
            nodeid,
            offset,
            len: 0,
        };
        let mut message = [0; OUT_HEADER + size_of::<InvalInodeOut>()];
        let len = u32::try_from(message.len()).unwrap_or(0);
        let header = OutHeader {
            len,
            error: NOTIFY_INVAL_INODE,
            unique: 0,
        };
        message[..OUT_HEADER].copy_from_slice(header.as_bytes());
        message[OUT_HEADER..].copy_from_slice(body.as_bytes());
        self.send(&message)
    }
}
