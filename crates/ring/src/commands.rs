//! Commands to the driver of a ring's file.
//!
//! # Concurrency
//! The thread that calls [`CommandRing::enable`] is the only one that uses the ring from then on.

#![allow(unsafe_code, reason = "what a ring shares with the kernel")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::io::Errno;

use crate::ring::{Ring, entered};

/// Room for requests beside those of items.
const SPARE: usize = 2;

/// A ring that can give commands and hear of descriptors, and nothing else: the kernel refuses any
/// other operation, whatever is written into the memory that it shares.
pub type CommandRing<T> = Ring<T, squeue::Entry128>;

impl<T> CommandRing<T> {
    /// A ring for so many items, which is not enabled yet.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn for_commands(items: usize) -> io::Result<Self> {
        let mut builder = IoUring::builder();
        let builder = builder.setup_single_issuer().setup_defer_taskrun();
        let ring = Self::build(builder.setup_r_disabled(), items, SPARE)?;
        ring.restrict(&[opcode::UringCmd80::CODE, opcode::PollAdd::CODE])
    }

    /// From now on the ring is this thread's, and its commands are for `file`.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn enable(&mut self, file: Arc<dyn AsFd + Send + Sync>) -> io::Result<()> {
        self.set_file(file);
        self.io.submitter().register_enable_rings()
    }

    /// Adds a command of at most 80 bytes, whose completion has `number`, and lends the item of
    /// that number if there is one. With it goes the address of vectors, and how many there are.
    ///
    /// # Safety
    /// The driver touches memory of that item only, and only until it completes the command.
    pub unsafe fn command(
        &mut self,
        number: u64,
        code: u32,
        bytes: &[u8],
        vectors: Option<(*const u8, u32)>,
    ) {
        let mut all = [0; 80];
        all[..bytes.len()].copy_from_slice(bytes);
        let address = vectors.map(|(at, _)| at.expose_provenance() as u64);
        let (file, flags) = self.target;
        let command = opcode::UringCmd80::new(file, code).cmd(all).addr(address);
        let mut command = command.build().flags(flags);
        set_len(&mut command, vectors.map_or(0, |(_, count)| count));
        // SAFETY: the caller's.
        unsafe { self.push(number, command) }
    }

    /// Has the ring hear, once, when `fd` can be read: by a completion with `number`, which is no
    /// slot's.
    pub fn hear(&mut self, fd: BorrowedFd<'_>, number: u64) {
        // `bits` is signed over the C library, unsigned over system calls.
        let readable = i32::from(PollFlags::IN.bits()).cast_unsigned();
        let poll = opcode::PollAdd::new(types::Fd(fd.as_raw_fd()), readable);
        // SAFETY: the request names no memory.
        unsafe { self.push(number, poll.build().into()) }
    }

    /// Hands over what was pushed, and has the kernel complete all that it had begun for this ring
    /// before. False if it lacked memory: then it has not taken all that was pushed.
    ///
    /// # Errors
    /// See [`Ring::enter`].
    pub fn look(&mut self) -> Result<bool, Errno> {
        let now = types::Timespec::new();
        let at_once = types::SubmitArgs::new().timespec(&now);
        entered(self.io.submitter().submit_with_args(1, &at_once))?;
        Ok(self.io.submission().is_empty())
    }
}

/// A ring that finds out whether the kernel lets this process give commands to a file.
pub struct CommandProbe(Ring<()>);

impl CommandProbe {
    /// # Errors
    /// The kernel refuses rings.
    pub fn make() -> io::Result<CommandProbe> {
        CommandProbe::of(&[opcode::UringCmd16::CODE])
    }

    fn of(operations: &[u8]) -> io::Result<CommandProbe> {
        let ring = Ring::build(IoUring::builder().setup_r_disabled(), 0, 1)?;
        ring.restrict(operations).map(CommandProbe)
    }

    /// Gives a command to `file`, which refuses it, for it is none. A security module refuses
    /// before the driver hears of it.
    ///
    /// # Errors
    /// `PermissionDenied`. Or the kernel refuses to be entered.
    pub fn may_command(mut self, file: BorrowedFd<'_>) -> io::Result<()> {
        self.0.io.submitter().register_enable_rings()?;
        let command = opcode::UringCmd16::new(types::Fd(file.as_raw_fd()), 0).build();
        // SAFETY: the command names no memory.
        unsafe { self.0.push(0, command) }
        match self.0.outcome()? {
            Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Sets the field `len` of a command, which the crate leaves 0 for commands to files.
fn set_len(command: &mut squeue::Entry128, len: u32) {
    /// Its place in the kernel's `struct io_uring_sqe`.
    const OFFSET: usize = 24;
    const { assert!(size_of::<squeue::Entry128>() == 128 && align_of::<squeue::Entry128>() >= 4) };
    let command = ptr::from_mut(command).cast::<u8>();
    // SAFETY: the type is `repr(C)` over the kernel's structure, whose layout is fixed: the field
    // is within it, aligned, and any number is valid there.
    unsafe { command.add(OFFSET).cast::<u32>().write(len) }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use extant_testkit::{Need, need};

    use super::*;

    #[test]
    fn a_refusal_before_the_device_hears_of_it_is_told_apart() {
        // Not `/dev/fuse`: the command is unknown there, too.
        let device = File::open("/dev/null").unwrap();
        if !need(&[Need::IoUring]) {
            return;
        }
        let probe = CommandProbe::make().unwrap();
        probe.may_command(device.as_fd()).unwrap();
        // As a security module would.
        let refused = CommandProbe::of(&[opcode::PollAdd::CODE]).unwrap();
        let error = refused.may_command(device.as_fd()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }
}
