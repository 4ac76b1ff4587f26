//! The border: what a block device promises.

use std::io::{self, IoSlice, IoSliceMut};
use std::sync::Arc;

use extant_units::DevOff;

use crate::queue::Queueing;

/// A device of fixed length that is read and written at byte offsets. See the crate's header for
/// durability and concurrency.
///
/// # Errors
/// A range past [`BlockDevice::len`] fails with [`io::ErrorKind::InvalidInput`] and touches nothing;
/// a write to a read-only device fails with [`io::ErrorKind::ReadOnlyFilesystem`]; whatever else the
/// environment reports comes through as it is.
pub trait BlockDevice: Send + Sync {
    /// The device's length in bytes.
    fn len(&self) -> u64;

    /// Whether the device has no bytes at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether writes are refused.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Fills `buf` from `offset`.
    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()>;

    /// Fills `buf` from `offset`, with what the medium holds rather than this host's cache of it:
    /// for a block that another host may have written. Where that cannot be had, as
    /// [`BlockDevice::read_at`].
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
    /// Writes since the last flush that succeeded may be lost. Later flushes need not say so again.
    fn flush(&self) -> io::Result<()>;

    /// Writes `buf` at `offset` and makes it, and every write before it, durable: a write with
    /// preflush and forced unit access. The bytes never reach the medium before earlier writes do.
    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.flush()?;
        self.write_at(offset, buf)?;
        self.flush()
    }

    /// Writes `buf` at `offset` and flushes, as well as can be, even after a flush has failed: for
    /// a note of what went wrong. Success promises nothing, neither of `buf` nor of earlier writes.
    fn write_note(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.write_at(offset, buf)?;
        self.flush()
    }

    /// Says that `len` bytes at `offset` hold nothing of value. Their content is undefined
    /// afterwards. Devices that cannot use the hint ignore it.
    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        let _ = (offset, len);
        Ok(())
    }

    /// Makes `len` bytes at `offset` read as zeros: as [`BlockDevice::write_at`] of that many would,
    /// without storing them where the device can do so.
    fn write_zeroes(&self, offset: DevOff, len: u64) -> io::Result<()> {
        write_zeroes_plainly(self, offset, len)
    }

    /// What was done with the device, and how, as counters by name.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What a queue of `depth` requests to this device is to be made of. For [`crate::open_queue`], which is what to call.
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
    fn counters(&self) -> Vec<(&'static str, u64)> {
        (**self).counters()
    }
    fn queueing(&self, depth: usize) -> Queueing {
        (**self).queueing(depth)
    }
}

/// Writes `len` zeros at `offset`, piece by piece.
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
        let zeros = usize::try_from(piece)
            .ok()
            .and_then(|piece| ZEROS.get(..piece));
        device.write_at(at, zeros.unwrap_or(&ZEROS))?;
        done += piece;
    }
    Ok(())
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
