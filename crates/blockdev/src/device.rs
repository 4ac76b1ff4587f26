//! The trait of block devices.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use extant_units::{DevOff, index};

use crate::queue::{Completion, IoOp, IoRequest, Queueing};

/// A device of fixed length that is read and written at byte offsets. See the crate's header for
/// durability and concurrency.
///
/// # Errors
/// A range past [`BlockDevice::len`] fails with [`io::ErrorKind::InvalidInput`] and touches
/// nothing; a write to a read-only device fails with [`io::ErrorKind::ReadOnlyFilesystem`]. Other
/// errors of the environment are returned unchanged.
pub trait BlockDevice: Send + Sync {
    /// The device's length in bytes.
    fn len(&self) -> u64;

    /// Returns whether the device has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Fills `buf` from `offset`.
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()>;

    /// Fills `buf` from `offset` with the content of the medium, not of this host's cache: for a
    /// block that another host may have written. A device that cannot do so reads as
    /// [`BlockDevice::read_at`] does.
    fn read_fresh_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, buf)
    }

    /// Fills `bufs`, one after the other, from one contiguous range that begins at `offset`.
    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.read_at(at, buf)?;
            at = advance(at, buf.len())?;
        }
        Ok(())
    }

    /// Writes `buf` at `offset`.
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()>;

    /// Writes `bufs`, one after the other, to one contiguous range that begins at `offset`.
    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut at = offset;
        for buf in bufs {
            self.write_at(at, buf)?;
            at = advance(at, buf.len())?;
        }
        Ok(())
    }

    /// Makes every write that returned before this call durable.
    ///
    /// # Errors
    /// Writes since the last flush that succeeded may be lost. Later flushes may succeed without
    /// them.
    fn flush(&self) -> io::Result<()>;

    /// Writes `buf` at `offset` and makes it, and every write before it, durable: a write with
    /// preflush and forced unit access. The bytes never reach the medium before earlier writes do.
    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.flush()?;
        self.write_at(offset, buf)?;
        self.flush()
    }

    /// Writes `buf` at `offset` and flushes, even after a flush has failed: for the record of a
    /// fault. Nothing may rely on it. After success neither `buf` nor earlier writes are known to
    /// be durable.
    fn write_note(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.write_at(offset, buf)?;
        self.flush()
    }

    /// Discards `len` bytes at `offset`, whose content is undefined afterwards. It is a hint:
    /// devices that cannot use it ignore it.
    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Makes `len` bytes at `offset` read as zeros, as a write of zeros would, without storing them
    /// if the device can do so.
    fn write_zeroes(&self, offset: DevOff, len: u64) -> io::Result<()> {
        write_zeroes_plainly(self, offset, len)
    }

    /// Makes the device at least `len` bytes long: a regular file of the host gets longer, with a
    /// hole at its end, and the length of a block device is read anew. Requests that run meanwhile
    /// are not disturbed.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] if the device is shorter and cannot grow.
    fn grow(&self, len: u64) -> io::Result<()> {
        if len <= self.len() {
            return Ok(());
        }
        Err(io::ErrorKind::Unsupported.into())
    }

    /// The device's counters, by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Lets go of what is behind this device: the mount that wrapped it has ended. Only a wrapper
    /// that a mount makes for itself has anything to let go of. Queues that were opened before keep
    /// what is behind them.
    fn release(&self) {}

    /// The machinery of a queue of `depth` requests. Callers use [`crate::open_queue()`],
    /// which asks this.
    fn queueing(&self, depth: usize) -> Queueing {
        let _ = depth;
        Queueing::Threads
    }
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    fn len(&self) -> u64 {
        (**self).len()
    }
    fn is_read_only(&self) -> bool {
        (**self).is_read_only()
    }
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_at(offset, buf)
    }
    fn read_fresh_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        (**self).read_fresh_at(offset, buf)
    }
    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        (**self).read_vectored_at(offset, bufs)
    }
    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        (**self).write_at(offset, buf)
    }
    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        (**self).write_vectored_at(offset, bufs)
    }
    fn flush(&self) -> io::Result<()> {
        (**self).flush()
    }
    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        (**self).write_durable(offset, buf)
    }
    fn write_note(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        (**self).write_note(offset, buf)
    }
    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        (**self).discard(offset, len)
    }
    fn write_zeroes(&self, offset: DevOff, len: u64) -> io::Result<()> {
        (**self).write_zeroes(offset, len)
    }
    fn grow(&self, len: u64) -> io::Result<()> {
        (**self).grow(len)
    }
    fn counters(&self) -> Vec<(&'static str, u64)> {
        (**self).counters()
    }
    fn release(&self) {
        (**self).release();
    }
    fn queueing(&self, depth: usize) -> Queueing {
        (**self).queueing(depth)
    }
}

/// Writes `len` zeros at `offset`, in pieces of 64 KiB.
pub(crate) fn write_zeroes_plainly<D: BlockDevice + ?Sized>(
    device: &D,
    offset: DevOff,
    len: u64,
) -> io::Result<()> {
    static ZEROS: [u8; 1 << 16] = [0; 1 << 16];
    let mut done = 0;
    while done < len {
        let piece = (len - done).min(ZEROS.len() as u64);
        let at = offset.checked_add(done).ok_or_else(out_of_range)?;
        device.write_at(at, &ZEROS[..index(piece)])?;
        done += piece;
    }
    Ok(())
}

/// Makes a queue's request by the device's synchronous calls.
pub(crate) fn perform(device: &dyn BlockDevice, mut request: IoRequest) -> Completion {
    let result = match request.op {
        IoOp::Read => device.read_at(request.offset, &mut request.buf),
        IoOp::Write => device.write_at(request.offset, &request.buf),
        IoOp::Flush => device.flush(),
    };
    Completion {
        tag: request.tag,
        buf: request.buf,
        result,
    }
}

/// `offset + len`, or the error for a range that leaves the device.
pub(crate) fn advance(offset: DevOff, len: usize) -> io::Result<DevOff> {
    u64::try_from(len)
        .ok()
        .and_then(|len| offset.checked_add(len))
        .ok_or_else(out_of_range)
}

/// Checks that `[offset, offset + len)` lies within a device of `device_len` bytes.
pub(crate) fn check_range(offset: DevOff, len: usize, device_len: u64) -> io::Result<()> {
    if advance(offset, len)?.get() > device_len {
        return Err(out_of_range());
    }
    Ok(())
}

fn out_of_range() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        "the range lies past the end of the device",
    )
}
