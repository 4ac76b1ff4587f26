//! A ring of the kernel, and the entries whose requests come through it.
//!
//! # Invariants
//! Why the `unsafe` calls are sound: the kernel writes to an entry's memory from the command that
//! registers it, or commits it, until that command completes. It does so in a system call of the
//! thread that uses the ring, and at no other time (`IORING_SETUP_DEFER_TASKRUN`).
//!
//! 1. The ring owns its entries. An entry's memory does not move, and is freed after the ring was
//!    closed: `io` is dropped before `entries`.
//! 2. An entry is lent before its command is pushed ([`Ring::register`], [`Ring::commit`]) and
//!    given back when the command completes ([`Ring::wait`]). In between [`Entry`] refuses to be
//!    touched.
//! 3. After the ring was closed the kernel cancels what it has, and writes nothing.
//!
//! # Concurrency
//! The thread that calls [`Ring::enable`] is the only one that uses the ring from then on.

#![allow(unsafe_code, reason = "what a ring shares with the kernel")]

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::register::Restriction;
use io_uring::{IoUring, cqueue, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::entry::Entry;
use crate::abi::{RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand};
use crate::device::Device;

/// Room for commands beside those of entries: two bells.
const SPARE: usize = 2;
/// Pause before a call is repeated for which the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(1);
/// Completions of bells carry these numbers; those of entries the entry's.
const BELL: u64 = u64::MAX;
const CLOSED: u64 = u64::MAX - 1;
/// Vectors of a registered entry: header and payload.
const VECTORS: u32 = 2;

/// What a completion says.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// The entry holds a request, or the kernel refused its command.
    Entry(usize, Result<(), Errno>),
    /// The worker's bell rang.
    Bell,
    /// The device was closed.
    Closed,
}

/// A ring that has no entries and no thread yet. It can do what a [`Ring`] does, and nothing else:
/// the kernel refuses any other operation, whatever is written into the memory that it shares.
pub(super) struct Blank {
    io: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: usize,
}

impl Blank {
    /// A ring for so many entries.
    ///
    /// # Errors
    /// The kernel refused.
    pub(super) fn make(entries: usize) -> io::Result<Blank> {
        let depth = u32::try_from(entries + SPARE).map_err(io::Error::other)?;
        let io = IoUring::<squeue::Entry128, cqueue::Entry>::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_r_disabled()
            .build(depth)?;
        // In force once the ring is enabled, from when on nothing is registered with it.
        io.submitter().register_restrictions(&mut [
            Restriction::sqe_op(opcode::UringCmd80::CODE),
            Restriction::sqe_op(opcode::PollAdd::CODE),
            Restriction::sqe_flags_allowed(squeue::Flags::FIXED_FILE.bits()),
        ])?;
        Ok(Blank { io, entries })
    }
}

/// See the module's header.
pub(super) struct Ring {
    io: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    /// Before the ring is gone the device stays open.
    device: Arc<Device>,
    /// The device is registered, as file 0.
    device_registered: bool,
}

impl Ring {
    /// The ring of `device` with these entries, no more than it was made for.
    pub(super) fn new(device: &Arc<Device>, blank: Blank, entries: Vec<Entry>) -> Self {
        debug_assert!(entries.len() <= blank.entries, "room for what is in flight");
        Self {
            io: blank.io,
            entries,
            device: Arc::clone(device),
            device_registered: false,
        }
    }

    /// From now on the ring is this thread's.
    pub(super) fn enable(&mut self) -> io::Result<()> {
        let submitter = self.io.submitter();
        // Saves the kernel a look at the table of descriptors; it works without.
        let fd = self.device.as_fd().as_raw_fd();
        self.device_registered = submitter.register_files(&[fd]).is_ok();
        submitter.register_enable_rings()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// An entry. It may be touched if the kernel does not have it.
    pub(super) fn entry(&mut self, number: usize) -> Option<&mut Entry> {
        self.entries.get_mut(number)
    }

    /// Makes an entry known to the kernel, which gives it back with a request.
    pub(super) fn register(&mut self, number: usize) {
        let vectors = self.entries[number].vectors();
        let mut command = self.command(number, RING_REGISTER, 0, Some(vectors));
        set_len(&mut command, VECTORS);
        self.entries[number].lend();
        // SAFETY: the command names the entry's memory, and vectors that are in it. The entry is
        // lent, so nothing touches it until the command completes.
        unsafe { self.push(&command) }
    }

    /// Gives the reply in an entry to the kernel, which gives the entry back with the next request.
    pub(super) fn commit(&mut self, number: usize) {
        let commit_id = self.entries[number].commit_id();
        let command = self.command(number, RING_COMMIT_AND_FETCH, commit_id, None);
        self.entries[number].lend();
        // SAFETY: the kernel reads and writes the memory that the entry was registered with, which
        // the ring still has. The entry is lent, so nothing touches it until the command completes.
        unsafe { self.push(&command) }
    }

    fn command(
        &self,
        number: usize,
        code: u32,
        commit_id: u64,
        address: Option<*const u8>,
    ) -> squeue::Entry128 {
        let fields = RingCommand {
            commit_id,
            queue: self.entries[number].queue,
            ..RingCommand::default()
        };
        let mut bytes = [0; 80];
        bytes[..size_of::<RingCommand>()].copy_from_slice(fields.as_bytes());
        let address = address.map(|address| address.expose_provenance() as u64);
        macro_rules! to {
            ($file:expr) => {
                opcode::UringCmd80::new($file, code)
                    .cmd(bytes)
                    .addr(address)
                    .build()
                    .user_data(number as u64)
            };
        }
        if self.device_registered {
            to!(types::Fixed(0))
        } else {
            to!(types::Fd(self.device.as_fd().as_raw_fd()))
        }
    }

    /// Has the ring hear of the worker's bell, once.
    pub(super) fn hear_bell(&mut self, bell: BorrowedFd<'_>) {
        self.hear(bell.as_raw_fd(), BELL);
    }

    /// Has the ring hear when the device is closed.
    pub(super) fn hear_close(&mut self) {
        let bell = self.device.bell().as_raw_fd();
        self.hear(bell, CLOSED);
    }

    fn hear(&mut self, fd: i32, number: u64) {
        let poll = opcode::PollAdd::new(types::Fd(fd), u32::from(PollFlags::IN.bits()));
        let command = squeue::Entry128::from(poll.build().user_data(number));
        // SAFETY: the command names no memory.
        unsafe { self.push(&command) }
    }

    /// Adds a command, which the next [`Ring::submit`] or [`Ring::wait`] hands over.
    ///
    /// # Safety
    /// Memory that the command names belongs to the kernel until the command completes.
    unsafe fn push(&mut self, command: &squeue::Entry128) {
        loop {
            // SAFETY: the caller's.
            if unsafe { self.io.submission().push(command) }.is_ok() {
                return;
            }
            // The ring of submissions is full: the kernel takes what is there.
            self.submit();
        }
    }

    /// Hands over what was pushed. What the kernel does not take now goes with the next call.
    pub(super) fn submit(&mut self) {
        if self.io.submit().is_err() {
            thread::sleep(PAUSE);
        }
    }

    /// Hands over what was pushed, and waits until something happens.
    ///
    /// # Errors
    /// The kernel refuses to be entered.
    pub(super) fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        while events.is_empty() {
            let entered = self.io.submit_and_wait(1);
            self.after(entered)?;
            self.collect(events);
        }
        Ok(())
    }

    /// Hands over what was pushed, and finds out what has happened: all that the kernel had begun
    /// for this ring before.
    ///
    /// # Errors
    /// The kernel refuses to be entered.
    pub(super) fn look(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let now = types::Timespec::new();
        let at_once = types::SubmitArgs::new().timespec(&now);
        let entered = self.io.submitter().submit_with_args(1, &at_once);
        self.after(entered)?;
        self.collect(events);
        Ok(())
    }

    fn after(&self, entered: io::Result<usize>) -> io::Result<()> {
        let Err(error) = entered else {
            return Ok(());
        };
        match Errno::from_io_error(&error) {
            Some(Errno::INTR | Errno::TIME) => {}
            Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => thread::sleep(PAUSE),
            _ => return Err(error),
        }
        Ok(())
    }

    /// Takes what has completed.
    fn collect(&mut self, events: &mut Vec<Event>) {
        for completion in self.io.completion() {
            let event = match completion.user_data() {
                BELL => Event::Bell,
                CLOSED => Event::Closed,
                number => {
                    let Some((number, entry)) = usize::try_from(number)
                        .ok()
                        .and_then(|number| Some((number, self.entries.get_mut(number)?)))
                    else {
                        debug_assert!(false, "completion {number} belongs to no entry");
                        continue;
                    };
                    entry.give_back();
                    let result = match completion.result() {
                        error @ ..0 => Err(Errno::from_raw_os_error(-error)),
                        _ => Ok(()),
                    };
                    Event::Entry(number, result)
                }
            };
            events.push(event);
        }
    }
}

/// Sets the field `len` of a command, which the crate leaves 0 for commands to files.
fn set_len(command: &mut squeue::Entry128, len: u32) {
    /// Where the kernel's `struct io_uring_sqe` has it.
    const OFFSET: usize = 24;
    const { assert!(size_of::<squeue::Entry128>() == 128 && align_of::<squeue::Entry128>() >= 4) };
    // SAFETY: the type is `repr(C)` over the kernel's structure, whose layout is fixed: the field
    // is within it, aligned, and any number is valid there.
    unsafe {
        ptr::from_mut(command)
            .cast::<u8>()
            .add(OFFSET)
            .cast::<u32>()
            .write(len);
    }
}
