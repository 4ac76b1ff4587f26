//! The requests of virtio-blk, on a [`BlockDevice`].
//!
//! # Invariants
//! - A request is answered by a status or is [`Broken`]; nothing that it says is taken on trust. A
//!   range that leaves the device is an error of the request, with nothing read or written.
//! - Data is copied through one buffer of at most [`STEP`] bytes per queue, however long a request
//!   is.

use std::io;
use std::ops::Deref;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, LatchedDevice};
use extant_units::DevOff;
use tracing::warn;
use vm_memory::GuestMemory;

use crate::block_config::{MAX_SEGMENT_SECTORS, MAX_SEGMENTS, SECTOR};
use crate::broken::Broken;
use crate::chain::Chain;

/// Bytes that are copied at once.
pub(crate) const STEP: usize = 1 << 20;
/// Bytes of a request's header: kind, a reserved word, sector.
const HEADER: usize = 16;
/// Bytes of a segment of a discard or a write of zeros: sector, sectors, flags.
const SEGMENT: usize = 16;
/// Bytes of the device's name.
pub(crate) const ID_LEN: usize = 20;

/// Kinds of requests.
const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;
/// A segment's flag: the range may be deallocated.
const UNMAP: u32 = 1;

/// The status of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Status {
    Ok = 0,
    IoError = 1,
    Unsupported = 2,
}

/// Why a request fails: by its status, or by taking its queue along.
enum Failed {
    With(Status),
    Broken(Broken),
}

impl From<Broken> for Failed {
    fn from(broken: Broken) -> Self {
        Self::Broken(broken)
    }
}

/// Bytes of data that an answer has before its status.
type Outcome = Result<usize, Failed>;

/// Serves the requests of one device, from many queues at once.
pub(crate) struct BlockServer {
    device: LatchedDevice,
    id: [u8; ID_LEN],
}

/// A queue's buffer, and what its driver has agreed to.
#[derive(Debug, Default)]
pub(crate) struct QueueBuffer {
    bytes: Vec<u8>,
}

impl QueueBuffer {
    /// `len` bytes, at most [`STEP`].
    fn of(&mut self, len: usize) -> Result<&mut [u8], Failed> {
        let len = len.min(STEP);
        if self.bytes.len() < len {
            let more = len - self.bytes.len();
            let reserved = self.bytes.try_reserve_exact(more);
            reserved.map_err(|_| Failed::With(Status::IoError))?;
            self.bytes.resize(len, 0);
        }
        Ok(&mut self.bytes[..len])
    }
}

impl BlockServer {
    /// A server of `device`, whose name is `id`. A flush that has failed once fails for good: the
    /// host tells of lost writes one time only.
    pub(crate) fn new(device: Arc<dyn BlockDevice>, id: &str) -> Self {
        let mut name = [0; ID_LEN];
        let bytes = id.as_bytes().iter().take(ID_LEN);
        name.iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from);
        Self {
            device: LatchedDevice::new(device),
            id: name,
        }
    }

    /// Sectors of the device.
    pub(crate) fn sectors(&self) -> u64 {
        self.device.len() / SECTOR
    }

    /// Returns whether writes are refused.
    pub(crate) fn is_read_only(&self) -> bool {
        self.device.is_read_only()
    }

    /// Makes what was written durable.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }

    /// Serves one request and writes its answer. With `durable`, a write is answered when it is
    /// durable. Returns the bytes of the answer.
    ///
    /// # Errors
    /// No driver makes such a request.
    pub(crate) fn serve<M>(
        &self,
        chain: &Chain<M>,
        durable: bool,
        buffer: &mut QueueBuffer,
    ) -> Result<u32, Broken>
    where
        M: Deref,
        M::Target: GuestMemory + Sized,
    {
        // The status is the last byte.
        let room = chain.answer.len().checked_sub(1).ok_or(Broken::NoAnswer)?;
        let (status, data) = match self.perform(chain, room, durable, buffer) {
            Ok(data) => (Status::Ok, data),
            Err(Failed::With(status)) => (status, 0),
            Err(Failed::Broken(broken)) => return Err(broken),
        };
        chain.write(room, &[status as u8])?;
        // What stands before the status counts if all of it was written.
        let len = if data == room { room + 1 } else { data };
        Ok(u32::try_from(len).unwrap_or(0))
    }

    fn perform<M>(
        &self,
        chain: &Chain<M>,
        room: usize,
        durable: bool,
        buffer: &mut QueueBuffer,
    ) -> Outcome
    where
        M: Deref,
        M::Target: GuestMemory + Sized,
    {
        let data = chain.request.len().checked_sub(HEADER);
        let data = data.ok_or(Failed::With(Status::IoError))?;
        let mut header = [0; HEADER];
        chain.read(0, &mut header)?;
        let (kind, sector) = (word(&header, 0), long(&header, 8));
        if matches!(kind, OUT | DISCARD | WRITE_ZEROES) && self.is_read_only() {
            return Err(Failed::With(Status::IoError));
        }
        match kind {
            IN => self.read(chain, sector, room, buffer),
            OUT => {
                self.write(chain, sector, data, buffer)?;
                if durable {
                    done(self.device.flush())?;
                }
                Ok(0)
            }
            FLUSH => {
                done(self.device.flush())?;
                Ok(0)
            }
            GET_ID => {
                let len = room.min(ID_LEN);
                chain.write(0, &self.id[..len])?;
                Ok(len)
            }
            DISCARD | WRITE_ZEROES => {
                self.empty(chain, kind, data)?;
                if durable && kind == WRITE_ZEROES {
                    done(self.device.flush())?;
                }
                Ok(0)
            }
            _ => Err(Failed::With(Status::Unsupported)),
        }
    }

    /// The byte at which a range of the device begins; an error if the range leaves the device, or
    /// is not made of sectors.
    fn begin(&self, sector: u64, len: u64) -> Result<u64, Failed> {
        let begin = sector.checked_mul(SECTOR);
        let end = begin.and_then(|begin| begin.checked_add(len));
        let whole = len.is_multiple_of(SECTOR);
        let most = self.sectors() * SECTOR;
        match (begin, end) {
            (Some(begin), Some(end)) if whole && end <= most => Ok(begin),
            _ => Err(Failed::With(Status::IoError)),
        }
    }

    fn read<M>(
        &self,
        chain: &Chain<M>,
        sector: u64,
        room: usize,
        buffer: &mut QueueBuffer,
    ) -> Outcome
    where
        M: Deref,
        M::Target: GuestMemory + Sized,
    {
        let begin = self.begin(sector, room as u64)?;
        let mut at = 0;
        while at < room {
            let part = buffer.of(room - at)?;
            done(self.device.read_at(DevOff::new(begin + at as u64), part))?;
            chain.write(at, part)?;
            at += part.len();
        }
        Ok(room)
    }

    fn write<M>(
        &self,
        chain: &Chain<M>,
        sector: u64,
        len: usize,
        buffer: &mut QueueBuffer,
    ) -> Result<(), Failed>
    where
        M: Deref,
        M::Target: GuestMemory + Sized,
    {
        let begin = self.begin(sector, len as u64)?;
        let mut at = 0;
        while at < len {
            let part = buffer.of(len - at)?;
            chain.read(HEADER + at, part)?;
            done(self.device.write_at(DevOff::new(begin + at as u64), part))?;
            at += part.len();
        }
        Ok(())
    }

    /// Discards ranges, or makes them zeros: all of them are looked at before the first is changed.
    fn empty<M>(&self, chain: &Chain<M>, kind: u32, len: usize) -> Result<(), Failed>
    where
        M: Deref,
        M::Target: GuestMemory + Sized,
    {
        let count = len / SEGMENT;
        if len == 0 || !len.is_multiple_of(SEGMENT) || count > MAX_SEGMENTS as usize {
            return Err(Failed::With(Status::IoError));
        }
        let allowed = if kind == WRITE_ZEROES { UNMAP } else { 0 };
        let mut ranges = Vec::with_capacity(count);
        for number in 0..count {
            let mut segment = [0; SEGMENT];
            chain.read(HEADER + number * SEGMENT, &mut segment)?;
            let (sectors, flags) = (word(&segment, 8), word(&segment, 12));
            if flags & !allowed != 0 {
                return Err(Failed::With(Status::Unsupported));
            }
            if sectors > MAX_SEGMENT_SECTORS {
                return Err(Failed::With(Status::IoError));
            }
            let len = u64::from(sectors) * SECTOR;
            let begin = self.begin(long(&segment, 0), len)?;
            ranges.push((DevOff::new(begin), len));
        }
        for (begin, len) in ranges {
            done(match kind {
                DISCARD => self.device.discard(begin, len),
                _ => self.device.write_zeroes(begin, len),
            })?;
        }
        Ok(())
    }
}

/// The device's result: an error is one of the request.
fn done(result: io::Result<()>) -> Result<(), Failed> {
    result.map_err(|error| {
        warn!("a request of the guest fails: {error}");
        Failed::With(Status::IoError)
    })
}

/// The little-endian word at `at`, which lies in `bytes`.
fn word(bytes: &[u8; 16], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

/// The same of eight bytes.
fn long(bytes: &[u8; 16], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}

#[cfg(test)]
mod tests;
