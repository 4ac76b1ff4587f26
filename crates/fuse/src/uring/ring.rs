//! The ring of a worker, and the entries whose requests come through it.
//!
//! # Invariants
//! Why the `unsafe` calls are sound: the driver of `/dev/fuse` writes to an entry's memory from the
//! command that registers it, or commits it, until that command completes, and at no other time.
//! The ring lends an entry for as long, and has it until the ring was closed ([`extant_ring`]). The
//! memory of an entry does not move, and is replaced by a test only, before it is registered.

#![allow(unsafe_code, reason = "what the driver does is known here")]

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use extant_ring::CommandRing;
use extant_units::index;
use rustix::io::Errno;
use rustix::mm::{Advice, madvise};
use zerocopy::IntoBytes;

use super::entry::Entry;
use super::transport::{EntryRing, Event};
use crate::abi::{RING_COMMIT_AND_FETCH, RING_REGISTER, RingCommand};
use crate::device::Device;

/// Pause before a command is repeated for which the kernel lacked memory.
const PAUSE: Duration = Duration::from_millis(1);
/// How often such a call is repeated at the start of a mount, where there is another way.
const TRIES: u32 = 1000;
/// Completions of bells carry these numbers; those of entries the entry's.
const BELL: u64 = u64::MAX;
const CLOSED: u64 = u64::MAX - 1;
/// Vectors of a registered entry: header and payload.
const VECTORS: u32 = 2;

/// A ring that has no entries and no thread yet.
pub(super) type Blank = CommandRing<Entry>;

/// Has the kernel send requests by `/dev/fuse`, by a command that it has to refuse: an entry for a
/// queue that there is none of. Not to be called once the rings carry requests.
///
/// # Errors
/// The kernel did not refuse it as expected, or refuses to be entered.
pub(super) fn decline(device: &Arc<Device>, mut ring: Blank) -> io::Result<()> {
    ring.enable(Arc::clone(device) as _)?;
    for _ in 0..TRIES {
        give(&mut ring, 0, u16::MAX, RING_REGISTER);
        match ring.outcome()? {
            // OPNOTSUPP: rings were switched off, and it has refused an entry before.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(()),
            // The device may not have heard of it.
            Err(Errno::NOMEM | Errno::AGAIN) => thread::sleep(PAUSE),
            Err(error) => return Err(error.into()),
            Ok(_) => {
                let what = "the kernel took an entry that it had to refuse";
                return Err(io::Error::other(what));
            }
        }
    }
    Err(Errno::NOMEM.into())
}

/// Gives an entry to the kernel by a command to a queue. A number that is no entry's stands for one
/// without memory.
fn give(ring: &mut Blank, number: usize, queue: u16, code: u32) {
    let mut fields = RingCommand {
        queue,
        ..RingCommand::default()
    };
    let mut vectors = None;
    if let Some(entry) = ring.item(number) {
        fields.commit_id = entry.commit_id();
        vectors = (code == RING_REGISTER).then(|| (entry.vectors(), VECTORS));
    }
    // SAFETY: the driver touches the memory of the vectors that the entry is registered with, until
    // it completes the command. The vectors and what they name are in the entry.
    unsafe { ring.command(number as u64, code, fields.as_bytes(), vectors) }
}

/// See the module's header.
pub(super) struct Ring {
    ring: Blank,
    queues: Vec<u16>,
    device: Arc<Device>,
    /// So many calls of [`Ring::look`] find the kernel without memory.
    #[cfg(test)]
    pub(super) looks_without_memory: u32,
}

impl Ring {
    /// The ring of `device` with entries of these queues, no more than it was made for.
    pub(super) fn new(
        device: &Arc<Device>,
        mut ring: Blank,
        queues: Vec<u16>,
        payload_len: usize,
    ) -> io::Result<Self> {
        for _ in &queues {
            let mut entry = Entry::new(payload_len)?;
            keep_small(entry.bytes());
            let put = ring.put(entry);
            debug_assert!(put.is_ok(), "room for what is in flight");
        }
        Ok(Self {
            ring,
            queues,
            device: Arc::clone(device),
            #[cfg(test)]
            looks_without_memory: 0,
        })
    }

    /// Takes what has completed.
    fn collect(&mut self, events: &mut Vec<Event>) {
        while let Some((number, result)) = self.ring.reap() {
            events.push(match number {
                BELL => Event::Bell,
                CLOSED => Event::Closed,
                // Of no entry: the kernel has answered what was not asked.
                number if index(number) >= self.queues.len() => continue,
                number => Event::Entry(index(number), result.map(drop)),
            });
        }
    }
}

impl EntryRing for Ring {
    fn queues(&self) -> &[u16] {
        &self.queues
    }

    fn enable(&mut self) -> io::Result<()> {
        self.ring.enable(Arc::clone(&self.device) as _)
    }

    fn entry(&mut self, number: usize) -> Option<&mut Entry> {
        self.ring.item(number)
    }

    fn commit(&mut self, number: usize) {
        give(
            &mut self.ring,
            number,
            self.queues[number],
            RING_COMMIT_AND_FETCH,
        );
    }

    fn hear_bell(&mut self, bell: BorrowedFd<'_>) {
        self.ring.hear(bell, BELL);
    }

    fn hear_close(&mut self) {
        self.ring.hear(self.device.bell(), CLOSED);
    }

    fn submit(&mut self) {
        let _ = self.ring.enter(0);
    }

    fn register_all(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        for (number, &queue) in self.queues.iter().enumerate() {
            give(&mut self.ring, number, queue, RING_REGISTER);
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

    fn wait(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        while events.is_empty() {
            self.ring.enter(1)?;
            self.collect(events);
        }
        Ok(())
    }

    fn look(&mut self, events: &mut Vec<Event>) -> io::Result<bool> {
        #[cfg(test)]
        if self.looks_without_memory > 0 {
            self.looks_without_memory -= 1;
            return Ok(false);
        }
        let all = self.ring.look()?;
        self.collect(events);
        Ok(all)
    }
}

/// Has a touched page take no more memory than itself.
fn keep_small(memory: &mut [u8]) {
    let (start, len) = (memory.as_mut_ptr().cast(), memory.len());
    // SAFETY: the advice changes no byte. Without it the entry only takes more memory.
    let _ = unsafe { madvise(start, len, Advice::LinuxNoHugepage) };
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
        let blank = Blank::for_commands(0).unwrap();
        let mut ring = Ring::new(&device, blank, Vec::new(), 0).unwrap();
        ring.enable().unwrap();
        ring.hear_close();
        device.close().unwrap();
        ring.looks_without_memory = 1;
        let mut events = Vec::new();
        assert!(!ring.look(&mut events).unwrap() && events.is_empty());
        assert!(ring.look(&mut events).unwrap());
        assert!(matches!(events[..], [Event::Closed]), "{events:?}");
    }
}
