//! Reads, writes and flushes of an export, each as a caller waits for it.
//!
//! # Invariants
//! - Requests are multiples of the server's smallest block, and have at most the data that it
//!   takes. What is not aligned is read whole, and written whole after a part was changed.
//! - The log holds at most [`MOST_UNFLUSHED`] bytes, and what callers have in flight.
//!
//! # Locks
//! `partial` keeps two writes apart that cover a block in part. No other request needs it: one that
//! overlaps such a write is a race of the callers. `own_flush` lets one thread at a time flush
//! because the log is full. Both are held over requests.

use std::io;
use std::sync::Arc;

use extant_blockdev::IoBuf;
use extant_units::exact_u32;
use parking_lot::Mutex;

use crate::counters::Counters;
use crate::flight::{Ended, Flight};
use crate::link::Link;
use crate::protocol::{Command, FORCE_UNIT_ACCESS, Request, flag};

/// The most bytes of changes that wait for a flush. The device flushes when there are more.
const MOST_UNFLUSHED: usize = 64 << 20;
/// The longest piece of a read or write, unless the server prefers longer ones. Pieces travel over
/// several connections.
const PIECE: u32 = 1 << 20;
/// Pieces of one call in flight at a time.
const DEPTH: usize = 16;
/// The longest request to discard: the server has to carry it out in time.
const LONGEST_TRIM: u32 = 128 << 20;

/// An export and the link to it.
pub(crate) struct Remote {
    pub(crate) link: Arc<Link>,
    pub(crate) read_only: bool,
    partial: Mutex<()>,
    own_flush: Mutex<()>,
}

impl Remote {
    /// An export over `link`.
    pub(crate) fn new(link: Link, read_only: bool) -> Remote {
        Remote {
            link: Arc::new(link),
            read_only,
            partial: Mutex::new(()),
            own_flush: Mutex::new(()),
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.link.export.size
    }

    fn minimum(&self) -> u64 {
        self.link.export.minimum.into()
    }

    /// Bytes of a piece of a read or write.
    pub(crate) fn piece(&self) -> u64 {
        let export = &self.link.export;
        PIECE.max(export.preferred).min(export.longest).into()
    }

    pub(crate) fn is_aligned(&self, offset: u64, len: u64) -> bool {
        offset.is_multiple_of(self.minimum()) && len.is_multiple_of(self.minimum())
    }

    /// # Errors
    /// The range leaves the export.
    pub(crate) fn check_range(&self, offset: u64, len: u64) -> io::Result<()> {
        let end = offset.checked_add(len);
        if end.is_none_or(|end| end > self.len()) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the range lies past the end of the device",
            ));
        }
        Ok(())
    }

    /// # Errors
    /// Nothing may be written.
    pub(crate) fn check_writable(&self) -> io::Result<()> {
        if self.read_only {
            return Err(io::ErrorKind::ReadOnlyFilesystem.into());
        }
        Ok(())
    }

    /// The whole blocks around a range.
    fn around(&self, offset: u64, len: u64) -> (u64, u64) {
        let start = offset / self.minimum() * self.minimum();
        let end = (offset + len).next_multiple_of(self.minimum());
        (start, end - start)
    }

    pub(crate) fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let len = buf.len() as u64;
        self.check_range(offset, len)?;
        if self.is_aligned(offset, len) {
            return self.read_aligned(offset, buf);
        }
        Counters::bump(&self.link.counters.unaligned);
        let (start, whole) = self.around(offset, len);
        let mut bytes = vec![0; extant_units::index(whole)];
        self.read_aligned(start, &mut bytes)?;
        let before = extant_units::index(offset - start);
        buf.copy_from_slice(&bytes[before..before + buf.len()]);
        Ok(())
    }

    fn read_aligned(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut calls = Calls::new(self);
        let pieces = pieces(offset, buf.len() as u64, self.piece());
        let starts: Vec<u64> = pieces.iter().map(|(at, _)| at - offset).collect();
        let mut take = |ended: Ended| {
            let start = starts.get(extant_units::index(ended.number));
            let start = start.map_or(0, |&start| extant_units::index(start));
            buf[start..start + ended.buf.len()].copy_from_slice(&ended.buf);
        };
        for (at, len) in pieces {
            let room = IoBuf::zeroed(len as usize);
            let request = Request::new(Command::Read, at, len);
            calls.flight.start(request, room);
            calls.keep_to(DEPTH, &mut take);
        }
        calls.keep_to(0, &mut take);
        calls.result
    }

    /// Writes `buf`, durably if the server can and `durable` says so.
    pub(crate) fn write(&self, offset: u64, buf: &[u8], durable: bool) -> io::Result<()> {
        self.check_writable()?;
        let len = buf.len() as u64;
        self.check_range(offset, len)?;
        if self.is_aligned(offset, len) {
            return self.write_aligned(offset, buf, durable);
        }
        Counters::bump(&self.link.counters.unaligned);
        let (start, whole) = self.around(offset, len);
        let mut bytes = vec![0; extant_units::index(whole)];
        let before = extant_units::index(offset - start);
        let _partial = self.partial.lock();
        // Only the blocks at the ends keep bytes.
        let edge = bytes.len().min(extant_units::index(self.minimum()));
        self.read_aligned(start, &mut bytes[..edge])?;
        let last = bytes.len() - edge;
        self.read_aligned(start + last as u64, &mut bytes[last..])?;
        bytes[before..before + buf.len()].copy_from_slice(buf);
        self.write_aligned(start, &bytes, durable)
    }

    fn write_aligned(&self, offset: u64, buf: &[u8], durable: bool) -> io::Result<()> {
        let mut calls = Calls::new(self);
        for (at, len) in pieces(offset, buf.len() as u64, self.piece()) {
            let start = extant_units::index(at - offset);
            let data = &buf[start..start + len as usize];
            let request = self.change(Command::Write, at, len, durable);
            calls.flight.change(request, data.into(), IoBuf::default());
            calls.keep_to(DEPTH, &mut |_| {});
        }
        calls.keep_to(0, &mut |_| {});
        calls.result?;
        self.bound_log()
    }

    /// A request that changes the export.
    pub(crate) fn change(&self, command: Command, offset: u64, len: u32, durable: bool) -> Request {
        let export = &self.link.export;
        let fua = export.has(flag::FUA) && (durable || !export.has(flag::FLUSH));
        let flags = if fua { FORCE_UNIT_ACCESS } else { 0 };
        let request = Request::new(command, offset, len);
        Request { flags, ..request }
    }

    /// Flushes if too much waits for it.
    ///
    /// # Errors
    /// The flush failed. Nothing else would tell the caller of a later flush, so the link fails.
    pub(crate) fn bound_log(&self) -> io::Result<()> {
        if self.link.log.held() <= MOST_UNFLUSHED {
            return Ok(());
        }
        let _alone = self.own_flush.lock();
        if self.link.log.held() <= MOST_UNFLUSHED {
            return Ok(());
        }
        Counters::bump(&self.link.counters.own_flushes);
        self.flush().inspect_err(|error| {
            let why = format!("a flush failed ({error}): writes before it may be lost");
            self.link.fail(why);
        })
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        if !self.link.export.has(flag::FLUSH) {
            // Each reply to a change has said that it is durable. A link that failed says so.
            return self.link.session().map(drop);
        }
        let mark = self.link.log.mark();
        let mut calls = Calls::new(self);
        let request = Request::new(Command::Flush, 0, 0);
        calls.flight.start(request, IoBuf::default());
        calls.keep_to(0, &mut |_| {});
        calls.result?;
        self.link.log.flushed(mark);
        Ok(())
    }

    /// Writes `buf` and makes it and every write before it durable.
    pub(crate) fn write_durable(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check_writable()?;
        self.check_range(offset, buf.len() as u64)?;
        self.flush()?;
        self.write(offset, buf, true)?;
        if self.link.export.has(flag::FUA) {
            return Ok(());
        }
        self.flush()
    }

    /// Tells the server that the whole blocks in a range are not needed.
    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.check_range(offset, len)?;
        let start = offset.next_multiple_of(self.minimum());
        let end = (offset + len) / self.minimum() * self.minimum();
        if !self.link.export.has(flag::TRIM) || start >= end {
            return Ok(());
        }
        let mut calls = Calls::new(self);
        for (at, len) in pieces(start, end - start, LONGEST_TRIM.into()) {
            let request = Request::new(Command::Trim, at, len);
            calls.flight.start(request, IoBuf::default());
            calls.keep_to(DEPTH, &mut |_| {});
        }
        calls.keep_to(0, &mut |_| {});
        match calls.result {
            // A hint that the server cannot use.
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
            other => other,
        }
    }

    /// Makes a range read as zeros.
    pub(crate) fn write_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        self.check_range(offset, len)?;
        let start = offset.next_multiple_of(self.minimum()).min(offset + len);
        let end = ((offset + len) / self.minimum() * self.minimum()).max(start);
        self.write_plain_zeroes(offset, start - offset)?;
        if self.link.export.has(flag::WRITE_ZEROES) {
            let mut calls = Calls::new(self);
            for (at, len) in pieces(start, end - start, self.link.export.longest.into()) {
                let request = self.change(Command::WriteZeroes, at, len, false);
                let none: Arc<[u8]> = Arc::default();
                calls.flight.change(request, none, IoBuf::default());
                calls.keep_to(DEPTH, &mut |_| {});
            }
            calls.keep_to(0, &mut |_| {});
            calls.result?;
        } else {
            self.write_plain_zeroes(start, end - start)?;
        }
        self.write_plain_zeroes(end, offset + len - end)
    }

    fn write_plain_zeroes(&self, offset: u64, len: u64) -> io::Result<()> {
        let zeros = vec![0; extant_units::index(len.min(self.piece()))];
        for (at, len) in pieces(offset, len, self.piece()) {
            self.write(at, &zeros[..len as usize], false)?;
        }
        Ok(())
    }
}

/// Cuts a range at the multiples of `unit`.
fn pieces(offset: u64, len: u64, unit: u64) -> Vec<(u64, u32)> {
    let mut pieces = Vec::new();
    let (mut at, end) = (offset, offset + len);
    while at < end {
        // A multiple past the largest offset lies past the end as well.
        let next = (at / unit + 1).saturating_mul(unit).min(end);
        // A unit is a number of the protocol, which has 32 bits.
        let len = exact_u32(next - at);
        pieces.push((at, len));
        at += u64::from(len);
    }
    pieces
}

/// The requests of one call, and the first error of them.
struct Calls {
    flight: Flight,
    result: io::Result<()>,
}

impl Calls {
    fn new(remote: &Remote) -> Calls {
        Calls {
            flight: Flight::new(&remote.link),
            result: Ok(()),
        }
    }

    /// Waits until at most `most` requests are in flight; `take` gets those that succeeded.
    fn keep_to(&mut self, most: usize, take: &mut dyn FnMut(Ended)) {
        while self.flight.in_flight() > most {
            let more = self.flight.in_flight() - most;
            for mut ended in self.flight.reap(more) {
                match std::mem::replace(&mut ended.result, Ok(())) {
                    Ok(()) => take(ended),
                    Err(error) if self.result.is_ok() => self.result = Err(error),
                    Err(_) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_cut_at_multiples() {
        assert_eq!(pieces(5, 0, 10), []);
        assert_eq!(pieces(5, 5, 10), [(5, 5)]);
        assert_eq!(pieces(5, 20, 10), [(5, 5), (10, 10), (20, 5)]);
    }
}
