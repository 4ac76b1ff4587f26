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
use rustix::mm::{Advice, madvise};
use zerocopy::IntoBytes;

use super::entry::Entry;
use crate::abi::{RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand};
use crate::device::Device;

/// Room for commands beside those of entries: two bells.
const SPARE: usize = 2;
/// Pause before a call is repeated for which the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(1);
/// How often such a call is repeated at the start of a mount, where there is another way.
const TRIES: u32 = 1000;
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
        restrict(&io, &[opcode::UringCmd80::CODE, opcode::PollAdd::CODE])?;
        Ok(Blank { io, entries })
    }
}

/// Has the kernel refuse any operation but these, and registering anything, once `io` is enabled.
fn restrict<S, C>(io: &IoUring<S, C>, operations: &[u8]) -> io::Result<()>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    let operations = operations.iter().map(|&code| Restriction::sqe_op(code));
    let flags = Restriction::sqe_flags_allowed(squeue::Flags::FIXED_FILE.bits());
    let mut all: Vec<_> = operations.chain([flags]).collect();
    io.submitter().register_restrictions(&mut all)
}

/// A ring that finds out whether the kernel lets this process give commands to `/dev/fuse`.
pub(super) struct Probe(IoUring);

impl Probe {
    /// # Errors
    /// The kernel refuses rings.
    pub(super) fn make() -> io::Result<Probe> {
        Probe::of(&[opcode::UringCmd16::CODE])
    }

    fn of(operations: &[u8]) -> io::Result<Probe> {
        let io = IoUring::builder().dontfork().setup_r_disabled().build(1)?;
        restrict(&io, operations)?;
        Ok(Probe(io))
    }

    /// Gives a command to `device`, which refuses it, for it is none. A security module refuses
    /// before the device hears of it.
    ///
    /// # Errors
    /// `PermissionDenied`: entries could be neither registered nor declined. Or the kernel refuses
    /// to be entered.
    pub(super) fn may_command(mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        self.0.submitter().register_enable_rings()?;
        let command = opcode::UringCmd16::new(types::Fd(device.as_raw_fd()), 0).build();
        // SAFETY: the command names no memory.
        unsafe { self.0.submission().push(&command) }.map_err(io::Error::other)?;
        match outcome(&mut self.0)? {
            Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Has the kernel send requests by `/dev/fuse`, by a command that it has to refuse: an entry for a
/// queue that there is none of. Not to be called once the rings carry requests.
///
/// # Errors
/// The kernel did not refuse it as expected, or refuses to be entered.
pub(super) fn decline(device: &Arc<Device>, blank: Blank) -> io::Result<()> {
    let mut ring = Ring::new(device, blank, Vec::new());
    ring.enable()?;
    for _ in 0..TRIES {
        let command = ring.command((u16::MAX, 0), RING_REGISTER, 0, None);
        // SAFETY: the command names no memory.
        unsafe { ring.push(&command) }
        match outcome(&mut ring.io)? {
            // OPNOTSUPP: rings were switched off, and it has refused an entry before.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(()),
            // The device may not have heard of it.
            Err(Errno::NOMEM | Errno::AGAIN) => thread::sleep(PAUSE),
            Err(error) => return Err(error.into()),
            Ok(()) => {
                let what = "the kernel took an entry that it had to refuse";
                return Err(io::Error::other(what));
            }
        }
    }
    Err(Errno::NOMEM.into())
}

/// Hands over the only command of a ring, and waits for its result.
fn outcome<S, C>(io: &mut IoUring<S, C>) -> io::Result<Result<(), Errno>>
where
    S: squeue::EntryMarker,
    C: cqueue::EntryMarker,
{
    for _ in 0..TRIES {
        after(io.submit_and_wait(1))?;
        if let Some(completion) = io.completion().next() {
            let completion: cqueue::Entry = completion.into();
            return Ok(result_of(&completion));
        }
    }
    Err(Errno::NOMEM.into())
}

/// After entering the kernel.
///
/// # Errors
/// It refuses to be entered, not for now only.
fn after(entered: io::Result<usize>) -> io::Result<()> {
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

/// See the module's header.
pub(super) struct Ring {
    io: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    /// Before the ring is gone the device stays open.
    device: Arc<Device>,
    /// The device is registered, as file 0.
    device_registered: bool,
    /// So many calls of [`Ring::look`] find the kernel without memory.
    #[cfg(test)]
    pub(super) looks_without_memory: u32,
}

impl Ring {
    /// The ring of `device` with these entries, no more than it was made for.
    pub(super) fn new(device: &Arc<Device>, blank: Blank, mut entries: Vec<Entry>) -> Self {
        debug_assert!(entries.len() <= blank.entries, "room for what is in flight");
        entries
            .iter_mut()
            .for_each(|entry| keep_small(entry.bytes()));
        Self {
            io: blank.io,
            entries,
            device: Arc::clone(device),
            device_registered: false,
            #[cfg(test)]
            looks_without_memory: 0,
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

    /// The queue of each entry.
    pub(super) fn queues(&self) -> impl Iterator<Item = u16> {
        self.entries.iter().map(|entry| entry.queue)
    }

    #[cfg(test)]
    pub(super) fn shrink_entry(&mut self) {
        let queue = self.entries[0].queue;
        self.entries[0] = Entry::new(queue, super::entry::PAGE).unwrap();
    }

    /// An entry. It may be touched if the kernel does not have it.
    pub(super) fn entry(&mut self, number: usize) -> Option<&mut Entry> {
        self.entries.get_mut(number)
    }

    /// Makes an entry known to the kernel, which gives it back with a request.
    fn register(&mut self, number: usize) {
        let vectors = self.entries[number].vectors();
        let target = (self.entries[number].queue, number as u64);
        let mut command = self.command(target, RING_REGISTER, 0, Some(vectors));
        set_len(&mut command, VECTORS);
        self.entries[number].lend();
        // SAFETY: the command names the entry's memory, and vectors that are in it. The entry is
        // lent, so nothing touches it until the command completes.
        unsafe { self.push(&command) }
    }

    /// Gives the reply in an entry to the kernel, which gives the entry back with the next request.
    pub(super) fn commit(&mut self, number: usize) {
        let commit_id = self.entries[number].commit_id();
        let target = (self.entries[number].queue, number as u64);
        let command = self.command(target, RING_COMMIT_AND_FETCH, commit_id, None);
        self.entries[number].lend();
        // SAFETY: the kernel reads and writes the memory that the entry was registered with, which
        // the ring still has. The entry is lent, so nothing touches it until the command completes.
        unsafe { self.push(&command) }
    }

    /// A command to a queue, whose completion has `number`.
    fn command(
        &self,
        (queue, number): (u16, u64),
        code: u32,
        commit_id: u64,
        address: Option<*const u8>,
    ) -> squeue::Entry128 {
        let fields = RingCommand {
            commit_id,
            queue,
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
                    .user_data(number)
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

    /// Registers all entries. What has happened meanwhile goes to `events`.
    ///
    /// # Errors
    /// The kernel refuses to be entered, refuses an entry, or lacks memory for a second.
    pub(super) fn register_all(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        for number in 0..self.entries.len() {
            self.register(number);
        }
        // The kernel refuses as it is handed over.
        for _ in 0..TRIES {
            if self.look(events)? {
                let refusal = events.iter().find_map(|event| match event {
                    Event::Entry(_, Err(error)) => Some(*error),
                    _ => None,
                });
                return refusal.map_or(Ok(()), |error| Err(error.into()));
            }
        }
        Err(Errno::NOMEM.into())
    }

    /// Hands over what was pushed, and waits until something happens.
    ///
    /// # Errors
    /// The kernel refuses to be entered.
    pub(super) fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        while events.is_empty() {
            let entered = self.io.submit_and_wait(1);
            after(entered)?;
            self.collect(events);
        }
        Ok(())
    }

    /// Hands over what was pushed, and finds out what has happened: all that the kernel had begun
    /// for this ring before. Returns false if it lacked memory: then it has not taken all that was
    /// pushed, and more may have happened.
    ///
    /// # Errors
    /// The kernel refuses to be entered.
    pub(super) fn look(&mut self, events: &mut Vec<Event>) -> io::Result<bool> {
        #[cfg(test)]
        if self.looks_without_memory > 0 {
            self.looks_without_memory -= 1;
            return after(Err(Errno::AGAIN.into())).map(|()| false);
        }
        let now = types::Timespec::new();
        let at_once = types::SubmitArgs::new().timespec(&now);
        let entered = self.io.submitter().submit_with_args(1, &at_once);
        after(entered)?;
        self.collect(events);
        Ok(self.io.submission().is_empty())
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
                    Event::Entry(number, result_of(&completion))
                }
            };
            events.push(event);
        }
    }
}

fn result_of(completion: &cqueue::Entry) -> Result<(), Errno> {
    match completion.result() {
        error @ ..0 => Err(Errno::from_raw_os_error(-error)),
        _ => Ok(()),
    }
}

/// Has a touched page take no more memory than itself.
fn keep_small(memory: &mut [u8]) {
    // SAFETY: the advice changes no byte. Without it the entry only takes more memory.
    let _ = unsafe {
        madvise(
            memory.as_mut_ptr().cast(),
            memory.len(),
            Advice::LinuxNoHugepage,
        )
    };
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use extant_testkit::{Need, need};

    use super::*;

    #[test]
    fn a_look_that_the_kernel_had_no_memory_for_is_no_look() {
        if !need(&[Need::IoUring]) {
            return;
        }
        let device = Device::new(File::open("/dev/null").unwrap().into()).unwrap();
        let device = Arc::new(device);
        let mut ring = Ring::new(&device, Blank::make(0).unwrap(), Vec::new());
        ring.enable().unwrap();
        ring.hear_close();
        device.close().unwrap();
        ring.looks_without_memory = 1;
        let mut events = Vec::new();
        assert!(!ring.look(&mut events).unwrap() && events.is_empty());
        assert!(ring.look(&mut events).unwrap());
        assert!(matches!(events[..], [Event::Closed]), "{events:?}");
    }

    #[test]
    fn a_refusal_before_the_device_hears_of_it_is_told_apart() {
        // Not `/dev/fuse`: the command is unknown there, too.
        let device = File::open("/dev/null").unwrap();
        if !need(&[Need::IoUring]) {
            return;
        }
        let probe = Probe::make().unwrap();
        probe.may_command(device.as_fd()).unwrap();
        // As a security module would.
        let refused = Probe::of(&[opcode::PollAdd::CODE]).unwrap();
        let error = refused.may_command(device.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
