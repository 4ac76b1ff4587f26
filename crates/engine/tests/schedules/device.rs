//! A device whose requests are steps of the schedule.
//!
//! The bytes lie in pieces over a base that all schedules share, so that a schedule costs what it
//! writes. A write is torn at no point: the scheduler switches before and after a request only.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use extant_blockdev::{BlockDevice, Queueing};
use extant_sync::thread;
use extant_units::{DevOff, index};

/// Bytes of a piece.
const PIECE: usize = 1024;

/// The pieces that differ from the base.
pub(crate) type Pieces = BTreeMap<usize, Arc<[u8; PIECE]>>;

/// A device in memory.
pub(crate) struct StepDevice {
    base: Arc<Vec<u8>>,
    /// Never held where the scheduler switches.
    pieces: Mutex<Pieces>,
    requests: AtomicU64,
    /// Requests of a direct queue complete in threads of their own, or at once.
    threads: bool,
    /// The scheduler has no part in requests any more.
    alone: AtomicBool,
    /// From this request on, as many fail.
    failing: Mutex<Option<(u64, u64)>>,
}

impl StepDevice {
    /// A device that holds `base` with `pieces` over it.
    pub(crate) fn new(base: &Arc<Vec<u8>>, pieces: Pieces, threads: bool) -> Self {
        Self {
            base: Arc::clone(base),
            pieces: Mutex::new(pieces),
            requests: AtomicU64::new(0),
            threads,
            alone: AtomicBool::new(false),
            failing: Mutex::new(None),
        }
    }

    /// The bytes at this moment.
    pub(crate) fn pieces(&self) -> Pieces {
        self.pieces.lock().unwrap().clone()
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// Lets `count` requests fail, once `after` more have been made.
    pub(crate) fn fail(&self, after: u64, count: u64) {
        let first = self.requests() + after;
        *self.failing.lock().unwrap() = Some((first, first + count));
    }

    /// Takes the scheduler out of what is still requested: one thread looks at what is left.
    pub(crate) fn leave_alone(&self) {
        self.alone.store(true, Ordering::Relaxed);
    }

    fn step(&self) {
        if !self.alone.load(Ordering::Relaxed) {
            thread::step();
        }
    }

    fn request<R>(&self, work: impl FnOnce(&mut Pieces) -> R) -> io::Result<R> {
        self.step();
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let failing = *self.failing.lock().unwrap();
        let fails = failing.is_some_and(|(first, end)| (first..end).contains(&number));
        let done = if fails {
            Err(io::Error::from_raw_os_error(5))
        } else {
            Ok(work(&mut self.pieces.lock().unwrap()))
        };
        self.step();
        done
    }

    fn at(&self, offset: DevOff, len: usize) -> io::Result<usize> {
        let at = index(offset.get());
        if at.checked_add(len).is_none_or(|end| end > self.base.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        Ok(at)
    }
}

/// Calls `visit` with the piece, the offset in it, and the part of a buffer, for each piece of a
/// range.
fn each_piece(at: usize, len: usize, mut visit: impl FnMut(usize, usize, std::ops::Range<usize>)) {
    let mut done = 0;
    while done < len {
        let inside = (at + done) % PIECE;
        let part = (PIECE - inside).min(len - done);
        visit((at + done) / PIECE, inside, done..done + part);
        done += part;
    }
}

impl BlockDevice for StepDevice {
    fn len(&self) -> u64 {
        self.base.len() as u64
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        let at = self.at(offset, buf.len())?;
        self.request(|pieces| {
            each_piece(at, buf.len(), |piece, inside, part| {
                let to = &mut buf[part];
                match pieces.get(&piece) {
                    Some(bytes) => to.copy_from_slice(&bytes[inside..inside + to.len()]),
                    None => {
                        let from = piece * PIECE + inside;
                        to.copy_from_slice(&self.base[from..from + to.len()]);
                    }
                }
            });
        })
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let at = self.at(offset, buf.len())?;
        self.request(|pieces| {
            each_piece(at, buf.len(), |piece, inside, part| {
                let old = pieces.entry(piece).or_insert_with(|| {
                    let from = piece * PIECE;
                    Arc::new(self.base[from..from + PIECE].try_into().unwrap())
                });
                Arc::make_mut(old)[inside..inside + part.len()].copy_from_slice(&buf[part]);
            });
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.request(|_| ())
    }

    fn queueing(&self, _: usize) -> Queueing {
        if self.threads {
            Queueing::Threads
        } else {
            Queueing::Immediate
        }
    }
}
