//! A wrapper that logs every write and flush, so that tests can rebuild the device after a power
//! cut.

use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, Queueing};
use extant_units::DevOff;
use parking_lot::Mutex;

/// One logged event. Events are in the order in which they completed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Bytes written; durable once a later flush covers them.
    Write {
        /// First byte on the device.
        offset: DevOff,
        /// The bytes.
        data: Arc<[u8]>,
    },
    /// A flush that succeeded. It covers the events before index `covers`: those that had completed
    /// when it began. It does not cover writes that were in flight meanwhile.
    Flush {
        /// Number of leading events that are durable now.
        covers: usize,
    },
    /// A flush that failed: any write that no flush covers may be lost, and later flushes do not
    /// bring it back.
    FailedFlush,
    /// A flush of one of two devices that are recorded together ([`Recorder::pair`]). It concerns
    /// the writes to `part` alone.
    FlushOf {
        /// Bytes of the device.
        part: Range<DevOff>,
        /// As of [`Event::Flush`], or `None` if it failed.
        covers: Option<usize>,
    },
    /// A mark set by the test, such as "this fsync returned".
    Mark(u64),
}

/// All that a recording may have.
const WHOLE: Range<DevOff> = DevOff::ZERO..DevOff::new(u64::MAX);

impl Event {
    /// The bytes that a flush concerns, and the number of leading events that it covers, or `None`
    /// if it failed.
    pub fn flush(&self) -> Option<(Range<DevOff>, Option<usize>)> {
        match self {
            Self::Flush { covers } => Some((WHOLE, Some(*covers))),
            Self::FailedFlush => Some((WHOLE, None)),
            Self::FlushOf { part, covers } => Some((part.clone(), *covers)),
            Self::Write { .. } | Self::Mark(_) => None,
        }
    }

    /// Returns whether a flush has failed.
    pub fn is_failed_flush(&self) -> bool {
        matches!(self.flush(), Some((_, None)))
    }
}

/// A device that logs what passes through it.
///
/// A durable write is logged as flush, write, flush: once it is on the medium, no earlier write is
/// lost. Writes that fail are logged as well, since part of them may have reached the medium.
///
/// One mutex protects the log and is never held over I/O. The order of overlapping concurrent
/// writes in the log may differ from the order on the medium; callers serialise such writes.
pub struct Recorder<D> {
    inner: D,
    log: Arc<Mutex<Vec<Event>>>,
    /// Bytes of a piece that arrives by itself.
    piece: u64,
    /// The bytes of the recording that are this device, of two.
    part: Option<Range<DevOff>>,
}

impl<D: BlockDevice> Recorder<D> {
    /// Wraps `inner` with an empty log.
    pub fn new(inner: D) -> Self {
        Self::in_pieces(inner, u64::MAX)
    }

    /// Wraps `inner` with an empty log, in which a write that crosses multiples of `piece` bytes is
    /// a write for each part: any of them may arrive without the others.
    pub fn in_pieces(inner: D, piece: u64) -> Self {
        Self {
            inner,
            log: Arc::default(),
            piece,
            part: None,
        }
    }

    /// Wraps two devices of one machine. They share the log, in which the bytes of `second` follow
    /// those of `first`. A flush of one makes nothing durable on the other.
    pub fn pair<E: BlockDevice>(first: D, second: E) -> (Self, Recorder<E>) {
        let border = DevOff::new(first.len());
        let end = border.saturating_add(second.len());
        let (mut first, mut second) = (Self::new(first), Recorder::new(second));
        first.part = Some(DevOff::ZERO..border);
        second.part = Some(border..end);
        second.log = Arc::clone(&first.log);
        (first, second)
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Number of events so far.
    pub fn position(&self) -> usize {
        self.log.lock().len()
    }

    /// Adds a mark.
    pub fn mark(&self, value: u64) {
        self.log.lock().push(Event::Mark(value));
    }

    /// A copy of the log so far. The bytes are shared, not copied.
    pub fn events(&self) -> Vec<Event> {
        self.log.lock().clone()
    }

    fn log_write<'a>(&self, offset: DevOff, pieces: impl Iterator<Item = &'a [u8]>) {
        let mut data = Vec::new();
        pieces.for_each(|piece| data.extend_from_slice(piece));
        let mut log = self.log.lock();
        let (mut offset, mut rest) = (offset, &data[..]);
        loop {
            let room = self.piece - offset.get() % self.piece;
            let len = usize::try_from(room).map_or(rest.len(), |room| room.min(rest.len()));
            let (data, behind) = rest.split_at(len);
            let start = self.part.as_ref().map_or(0, |part| part.start.get());
            log.push(Event::Write {
                offset: offset.saturating_add(start),
                data: data.into(),
            });
            if behind.is_empty() {
                return;
            }
            (offset, rest) = (offset.saturating_add(len as u64), behind);
        }
    }

    fn logged_flush(&self) -> io::Result<()> {
        let covers = self.position();
        let flushed = self.inner.flush();
        self.log.lock().push(match (&self.part, &flushed) {
            (None, Ok(())) => Event::Flush { covers },
            (None, Err(_)) => Event::FailedFlush,
            (Some(part), flushed) => Event::FlushOf {
                part: part.clone(),
                covers: flushed.as_ref().ok().map(|()| covers),
            },
        });
        flushed
    }
}

impl<D: BlockDevice> BlockDevice for Recorder<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read_at(offset, buf)
    }

    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        self.inner.read_vectored_at(offset, bufs)
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let result = self.inner.write_at(offset, buf);
        self.log_write(offset, std::iter::once(buf));
        result
    }

    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let result = self.inner.write_vectored_at(offset, bufs);
        self.log_write(offset, bufs.iter().map(|buf| &**buf));
        result
    }

    fn flush(&self) -> io::Result<()> {
        self.logged_flush()
    }

    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.logged_flush()?;
        self.write_at(offset, buf)?;
        self.logged_flush()
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
    fn a_durable_write_has_a_flush_on_both_sides() {
        let dev = Recorder::new(MemoryDevice::new(8192));
        dev.write_at(DevOff::ZERO, &[1; 512]).unwrap();
        dev.write_durable(DevOff::new(512), &[2; 512]).unwrap();
        dev.mark(7);
        let events = dev.events();
        assert!(matches!(&events[0], Event::Write { data, .. } if data[0] == 1));
        assert_eq!(events[1], Event::Flush { covers: 1 });
        assert!(matches!(&events[2], Event::Write { data, .. } if data[0] == 2));
        assert_eq!(events[3], Event::Flush { covers: 3 });
        assert_eq!(events[4], Event::Mark(7));
    }

    #[test]
    fn two_devices_share_a_log_and_no_flush() {
        let (one, other) = Recorder::pair(MemoryDevice::new(8192), MemoryDevice::new(4096));
        one.write_at(DevOff::new(512), &[1; 512]).unwrap();
        other.write_durable(DevOff::new(512), &[2; 512]).unwrap();
        one.flush().unwrap();
        assert_eq!((one.position(), one.events()), (5, other.events()));
        let part = DevOff::new(8192)..DevOff::new(8192 + 4096);
        let flush = |covers| Event::FlushOf {
            part: part.clone(),
            covers: Some(covers),
        };
        let events = one.events();
        assert!(matches!(&events[0], Event::Write { offset, .. } if offset.get() == 512));
        assert_eq!((&events[1], &events[3]), (&flush(1), &flush(3)));
        assert!(matches!(&events[2], Event::Write { offset, .. } if offset.get() == 8192 + 512));
        let whole = DevOff::ZERO..DevOff::new(8192);
        assert_eq!(events[4].flush(), Some((whole, Some(4))));
        let mut bytes = [0; 512];
        other.inner().read_at(DevOff::new(512), &mut bytes).unwrap();
        assert_eq!(bytes, [2; 512]);
    }

    #[test]
    fn a_write_is_recorded_in_pieces() {
        let dev = Recorder::in_pieces(MemoryDevice::new(8192), 1024);
        let bytes: Vec<u8> = (0..2500u32).map(|at| at.to_le_bytes()[0]).collect();
        dev.write_at(DevOff::new(512), &bytes).unwrap();
        let mut seen = Vec::new();
        let mut ends = Vec::new();
        for event in dev.events() {
            let Event::Write { offset, data } = event else {
                panic!("{event:?}");
            };
            assert_eq!(offset.get(), 512 + seen.len() as u64);
            seen.extend_from_slice(&data);
            ends.push(offset.get() + data.len() as u64);
        }
        assert_eq!((seen, ends), (bytes, vec![1024, 2048, 3012]));
    }
}
