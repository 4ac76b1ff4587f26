//! A chain of descriptors as two runs of bytes: the request, and the room for its answer.
//!
//! # Invariants
//! The descriptors are read once, when the chain is parsed. Their number is bounded by
//! [`MAX_DESCRIPTORS`]; bytes are copied by the caller's buffers only, so a chain takes no memory
//! for what it claims to be long.

use std::ops::Deref;

use virtio_queue::DescriptorChain;
use vm_memory::{Address, Bytes, GuestAddress, GuestMemory};

use crate::broken::Broken;

/// Descriptors of a chain at most: as many as the largest queue of qemu has.
pub(crate) const MAX_DESCRIPTORS: usize = 1024;

/// A part of the guest's memory, which may not be there.
#[derive(Clone, Copy, Debug)]
struct Piece {
    addr: GuestAddress,
    len: usize,
}

/// A run of bytes in pieces.
#[derive(Debug, Default)]
pub(crate) struct Run(Vec<Piece>);

/// See the module's header.
#[derive(Debug)]
pub(crate) struct Chain<M> {
    chain: DescriptorChain<M>,
    /// Bytes of the request.
    pub(crate) request: Run,
    /// Room for its answer.
    pub(crate) answer: Run,
}

impl Run {
    /// Its length in bytes.
    pub(crate) fn len(&self) -> usize {
        // At most 2^32 bytes: the iterator of the descriptors ends before there are more.
        self.0.iter().map(|piece| piece.len).sum()
    }

    /// Calls `each` with the pieces of `len` bytes from `at` on, and the bytes before each of them.
    fn each(
        &self,
        at: usize,
        len: usize,
        mut each: impl FnMut(GuestAddress, usize, usize) -> Result<(), Broken>,
    ) -> Result<(), Broken> {
        let (mut skip, mut done) = (at, 0);
        for piece in &self.0 {
            if done == len {
                break;
            }
            if skip >= piece.len {
                skip -= piece.len;
                continue;
            }
            let part = (piece.len - skip).min(len - done);
            let begin = u64::try_from(skip).map_err(|_| Broken::Memory)?;
            let addr = piece.addr.checked_add(begin).ok_or(Broken::Memory)?;
            each(addr, done, part)?;
            (skip, done) = (0, done + part);
        }
        if done == len {
            Ok(())
        } else {
            Err(Broken::NoAnswer)
        }
    }
}

impl<M> Chain<M>
where
    M: Deref,
    M::Target: GuestMemory + Sized,
{
    /// Reads the descriptors.
    ///
    /// # Errors
    /// No driver makes such a chain.
    pub(crate) fn parse(chain: DescriptorChain<M>) -> Result<Self, Broken>
    where
        M: Clone,
    {
        let (mut request, mut answer) = (Run::default(), Run::default());
        let (mut count, mut goes_on) = (0, true);
        for descriptor in chain.clone() {
            count += 1;
            if count > MAX_DESCRIPTORS {
                return Err(Broken::Length);
            }
            let len = usize::try_from(descriptor.len()).map_err(|_| Broken::Chain)?;
            let piece = Piece {
                addr: descriptor.addr(),
                len,
            };
            if descriptor.is_write_only() {
                answer.0.push(piece);
            } else if answer.0.is_empty() {
                request.0.push(piece);
            } else {
                return Err(Broken::Order);
            }
            goes_on = descriptor.has_next();
        }
        // The iterator ends without an error at a descriptor that it cannot reach.
        if goes_on {
            return Err(Broken::Chain);
        }
        Ok(Self {
            chain,
            request,
            answer,
        })
    }

    /// The number of the chain in the ring.
    pub(crate) fn head(&self) -> u16 {
        self.chain.head_index()
    }

    /// Fills `buf` from byte `at` of the request.
    ///
    /// # Errors
    /// The request is shorter, or not in the guest's memory.
    pub(crate) fn read(&self, at: usize, buf: &mut [u8]) -> Result<(), Broken> {
        let memory = self.chain.memory();
        self.request.each(at, buf.len(), |addr, done, part| {
            let part = buf.get_mut(done..done + part).ok_or(Broken::Memory)?;
            memory.read_slice(part, addr).map_err(|_| Broken::Memory)
        })
    }

    /// Writes `buf` from byte `at` of the answer on.
    ///
    /// # Errors
    /// There is less room, or it is not in the guest's memory.
    pub(crate) fn write(&self, at: usize, buf: &[u8]) -> Result<(), Broken> {
        let memory = self.chain.memory();
        self.answer.each(at, buf.len(), |addr, done, part| {
            let part = buf.get(done..done + part).ok_or(Broken::Memory)?;
            memory.write_slice(part, addr).map_err(|_| Broken::Memory)
        })
    }
}
