//! A wrapper that makes requests fail on purpose.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extant_blockdev::{BlockDevice, Queueing};
use extant_units::{DevOff, index};

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestKind {
    /// A read.
    Read,
    /// A write, plain or durable.
    Write,
    /// A flush.
    Flush,
}

/// A request, as a fault plan sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The number of requests before it on this device.
    pub index: u64,
    /// Read, write or flush.
    pub kind: RequestKind,
    /// First byte; zero for a flush.
    pub offset: DevOff,
    /// Bytes; zero for a flush.
    pub len: u64,
    /// The bytes of a write; empty for the others.
    pub data: &'a [u8],
}

/// The fault of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// Let it pass.
    Pass,
    /// Fail it without touching the medium.
    Fail(io::ErrorKind),
    /// A write reaches the medium up to this many bytes and then fails. Reads and flushes fail.
    Tear(u64),
    /// Let it pass after a pause.
    Delay(Duration),
    /// Report success without making the request: a flush or write that was lost.
    Drop,
    /// Invert one bit of the bytes that are read or written: bit `n`, counted from the request's
    /// first byte, modulo its length.
    Flip(u64),
}

/// A device with planned faults. The plan runs before each request, on the caller's thread, and
/// must not wait for the device itself.
pub struct FaultyDevice<D, P> {
    inner: D,
    plan: P,
    requests: AtomicU64,
}

impl<D: BlockDevice, P: Fn(Request<'_>) -> Fault + Send + Sync> FaultyDevice<D, P> {
    /// Wraps `inner` with `plan`.
    pub fn new(inner: D, plan: P) -> Self {
        Self {
            inner,
            plan,
            requests: AtomicU64::new(0),
        }
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Number of requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    fn next(&self, kind: RequestKind, offset: DevOff, len: usize, data: &[u8]) -> Fault {
        let fault = (self.plan)(Request {
            index: self.requests.fetch_add(1, Ordering::Relaxed),
            kind,
            offset,
            len: len as u64,
            data,
        });
        if let Fault::Delay(pause) = fault {
            std::thread::sleep(pause);
        }
        fault
    }

    fn faulty_write(
        &self,
        offset: DevOff,
        buf: &[u8],
        write: impl Fn(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match self.next(RequestKind::Write, offset, buf.len(), buf) {
            Fault::Pass | Fault::Delay(_) => write(buf),
            Fault::Fail(kind) => Err(kind.into()),
            Fault::Drop => Ok(()),
            Fault::Tear(whole) => {
                let whole = whole.min(buf.len() as u64);
                self.inner.write_at(offset, &buf[..index(whole)])?;
                Err(io::Error::other("the write was torn"))
            }
            Fault::Flip(bit) => {
                let mut copy = buf.to_vec();
                flip(&mut copy, bit);
                write(&copy)
            }
        }
    }
}

fn flip(bytes: &mut [u8], bit: u64) {
    if bytes.is_empty() {
        return;
    }
    let bits = bytes.len() as u64 * 8;
    let bit = bit % bits;
    bytes[index(bit / 8)] ^= 1 << (bit % 8);
}

impl<D: BlockDevice, P: Fn(Request<'_>) -> Fault + Send + Sync> BlockDevice for FaultyDevice<D, P> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        match self.next(RequestKind::Read, offset, buf.len(), &[]) {
            Fault::Pass | Fault::Delay(_) | Fault::Drop => self.inner.read_at(offset, buf),
            Fault::Fail(kind) => Err(kind.into()),
            Fault::Tear(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Fault::Flip(bit) => {
                self.inner.read_at(offset, buf)?;
                flip(buf, bit);
                Ok(())
            }
        }
    }

    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut joined = vec![0; bufs.iter().map(|buf| buf.len()).sum()];
        self.read_at(offset, &mut joined)?;
        let mut rest = joined.as_slice();
        for buf in bufs {
            let (piece, behind) = rest.split_at(buf.len());
            buf.copy_from_slice(piece);
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.faulty_write(offset, buf, |bytes| self.inner.write_at(offset, bytes))
    }

    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let joined: Vec<u8> = bufs.iter().flat_map(|buf| buf.iter().copied()).collect();
        self.write_at(offset, &joined)
    }

    fn flush(&self) -> io::Result<()> {
        match self.next(RequestKind::Flush, DevOff::ZERO, 0, &[]) {
            Fault::Fail(kind) => Err(kind.into()),
            Fault::Tear(_) => Err(io::Error::other("the flush failed")),
            Fault::Drop => Ok(()),
            Fault::Pass | Fault::Delay(_) | Fault::Flip(_) => self.inner.flush(),
        }
    }

    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.faulty_write(offset, buf, |bytes| self.inner.write_durable(offset, bytes))
    }

    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        self.inner.counters()
    }

    fn queueing(&self, depth: usize) -> Queueing {
        self.inner.queueing(depth).through_wrapper()
    }
}

#[cfg(test)]
mod tests {
    use extant_blockdev::MemoryDevice;

    use super::*;

    #[test]
    fn each_fault_does_what_it_says() {
        let plan = |request: Request<'_>| match request.index {
            0 => Fault::Fail(io::ErrorKind::StorageFull),
            1 => Fault::Tear(2),
            2 => Fault::Drop,
            3 => Fault::Flip(9),
            _ => Fault::Pass,
        };
        let dev = FaultyDevice::new(MemoryDevice::new(512), plan);
        let first = dev.write_at(DevOff::ZERO, &[1; 4]).unwrap_err();
        assert_eq!(first.kind(), io::ErrorKind::StorageFull);
        assert!(dev.write_at(DevOff::ZERO, &[2; 4]).is_err());
        dev.write_at(DevOff::ZERO, &[3; 4]).unwrap();
        dev.write_at(DevOff::new(8), &[0; 4]).unwrap();
        let mut all = [0; 12];
        dev.read_at(DevOff::ZERO, &mut all).unwrap();
        assert_eq!(all, [2, 2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0]);
        assert_eq!(dev.requests(), 5);
    }
}
