//! Reads, writes and syncs of a ring's file.
//!
//! # Concurrency
//! Not always the same thread uses such a ring. The kernel cancels the requests of a thread that
//! ends: their completions carry `ECANCELED`, and the caller makes them again.

#![allow(unsafe_code, reason = "what a ring shares with the kernel")]

use std::io;

use io_uring::{IoUring, Probe, opcode, squeue, types};

use crate::ring::Ring;

/// The most bytes that one request asks the kernel for. A longer one ends as a short transfer.
const MAX_LEN: usize = 1 << 30;

/// A request on memory of its item, which may be of the registered buffer of that number.
pub enum Transfer<'a> {
    /// Fill the bytes with those from a position on.
    Read(&'a mut [u8], u64, Option<u16>),
    /// Write them there.
    Write(&'a [u8], u64, Option<u16>),
    /// Make earlier writes durable.
    Sync,
}

impl<T> Ring<T> {
    /// A ring for up to `depth` transfers.
    ///
    /// # Errors
    /// The kernel refused; [`io::ErrorKind::Unsupported`] if its rings lack an operation or a
    /// feature that is needed here.
    pub fn new(depth: usize) -> io::Result<Self> {
        let ring = Self::build(&mut IoUring::builder(), depth, 0)?;
        let mut probe = Probe::new();
        ring.io.submitter().register_probe(&mut probe)?;
        let needed = [
            opcode::Read::CODE,
            opcode::Write::CODE,
            opcode::ReadFixed::CODE,
            opcode::WriteFixed::CODE,
            opcode::Fsync::CODE,
        ];
        let has_all = needed.iter().all(|&op| probe.is_supported(op));
        if !ring.io.params().is_feature_nodrop() || !has_all {
            return Err(io::ErrorKind::Unsupported.into());
        }
        Ok(ring)
    }

    /// Registers buffers, whose numbers are their positions. Returns whether the kernel takes them
    /// (locked memory is limited).
    ///
    /// # Safety
    /// The kernel holds the pages that are there now, whatever lies at these addresses later: the
    /// buffers' memory stays where it is until the ring is dropped, and an item whose request names
    /// a buffer has its memory within it.
    pub unsafe fn register_buffers(&mut self, buffers: &[*mut [u8]]) -> bool {
        let vector = |buffer: &*mut [u8]| libc::iovec {
            iov_base: buffer.cast(),
            iov_len: buffer.len(),
        };
        let vectors: Vec<_> = buffers.iter().map(vector).collect();
        // SAFETY: the caller vouches for the buffers.
        unsafe { self.io.submitter().register_buffers(&vectors) }.is_ok()
    }

    /// Takes a request with its item. The next [`Ring::wait`] submits it.
    ///
    /// # Errors
    /// The item, if all slots are in use or the ring has given up.
    pub fn transfer(&mut self, item: T, of: impl FnOnce(&mut T) -> Transfer<'_>) -> Result<(), T> {
        if self.dead {
            return Err(item);
        }
        // The item moves to its slot before the address of its memory is taken.
        let number = self.put(item)?;
        let target = self.target.0;
        let request = self.item(number).map(|item| entry(target, of(item)));
        let request = request.expect("it was just put there").flags(self.target.1);
        // SAFETY: the request names memory that it has borrowed of the item in the slot.
        unsafe { self.push(number as u64, request) };
        Ok(())
    }
}

/// The entry of the ring of submissions for a request.
fn entry(file: types::Fd, transfer: Transfer<'_>) -> squeue::Entry {
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX_LEN")]
    let len = |bytes: &[u8]| bytes.len().min(MAX_LEN) as u32;
    match transfer {
        Transfer::Read(to, at, None) => {
            let request = opcode::Read::new(file, to.as_mut_ptr(), len(to));
            request.offset(at).build()
        }
        Transfer::Read(to, at, Some(number)) => {
            let request = opcode::ReadFixed::new(file, to.as_mut_ptr(), len(to), number);
            request.offset(at).build()
        }
        Transfer::Write(from, at, None) => {
            let request = opcode::Write::new(file, from.as_ptr(), len(from));
            request.offset(at).build()
        }
        Transfer::Write(from, at, Some(number)) => {
            let request = opcode::WriteFixed::new(file, from.as_ptr(), len(from), number);
            request.offset(at).build()
        }
        Transfer::Sync => {
            let request = opcode::Fsync::new(file);
            request.flags(types::FsyncFlags::DATASYNC).build()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::sync::Arc;

    use extant_testkit::{Need, TempDir, need};
    use rustix::io::Errno;

    use super::*;

    /// A ring of eight transfers to a new file; `None` without io_uring.
    fn rig() -> Option<(TempDir, Ring<Vec<u8>>)> {
        if !need(&[Need::IoUring]) {
            return None;
        }
        let dir = TempDir::new("ring").unwrap();
        let file = File::create_new(dir.join("file")).unwrap();
        let mut ring = Ring::new(8).unwrap();
        ring.set_file(Arc::new(file));
        Some((dir, ring))
    }

    fn write(ring: &mut Ring<Vec<u8>>, byte: u8) -> Result<(), Vec<u8>> {
        let at = u64::from(byte) * 512;
        ring.transfer(vec![byte; 512], |bytes| Transfer::Write(bytes, at, None))
    }

    #[test]
    fn what_a_kernel_that_refuses_to_go_on_has_not_taken_is_canceled() {
        let Some((dir, mut ring)) = rig() else { return };
        (0..4).for_each(|byte| write(&mut ring, byte).unwrap());
        assert!(ring.enter(0).unwrap());
        assert_eq!(ring.item(0), None, "the kernel has it until it is reaped");
        (4..8).for_each(|byte| write(&mut ring, byte).unwrap());
        assert_eq!(
            write(&mut ring, 8),
            Err(vec![8; 512]),
            "all slots are in use"
        );
        ring.refuse_next_enter = Some(Errno::PERM);
        let mut ended = Vec::new();
        ring.wait(8, &mut ended);
        ended.sort_by(|(one, _), (other, _)| one.cmp(other));
        let done = |byte: u8| match byte {
            0..4 => Ok(512),
            _ => Err(Errno::CANCELED),
        };
        assert!(
            ended
                .into_iter()
                .eq((0..8).map(|byte| (vec![byte; 512], done(byte))))
        );
        assert_eq!((ring.lent(), write(&mut ring, 9)), (0, Err(vec![9; 512])));
        assert_eq!(std::fs::read(dir.join("file")).unwrap().len(), 4 * 512);
    }

    #[test]
    fn a_kernel_that_is_short_of_memory_is_asked_again() {
        let Some((_dir, mut ring)) = rig() else {
            return;
        };
        for error in [Errno::AGAIN, Errno::BUSY, Errno::INTR] {
            write(&mut ring, 1).unwrap();
            ring.refuse_next_enter = Some(error);
            let mut ended = Vec::new();
            assert_eq!(ring.wait(1, &mut ended), 2);
            assert_eq!(ended, [(vec![1; 512], Ok(512))]);
        }
    }
}
