//! A device whose requests are steps of the schedule.
//!
//! The bytes lie in pieces over a base that all schedules share, so that a schedule costs what it
//! writes. The scheduler switches before and after a request only; a write that fails, or that a
//! power cut ends, may have arrived in any of its sectors.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use extant_blockdev::{BlockDevice, Queueing};
use extant_sync::thread;
use extant_testkit::Rng;
use extant_units::{DevOff, index};

/// Bytes of a piece.
const PIECE: usize = 1024;
/// Bytes that arrive whole or not at all.
const SECTOR: usize = 512;
/// The content of what was discarded.
const GONE: u8 = 0xdd;

/// The pieces that differ from the base.
pub(crate) type Pieces = BTreeMap<usize, Arc<[u8; PIECE]>>;

/// A request that changes what is on the medium.
enum Event {
    /// The first byte, and the bytes.
    Write(usize, Vec<u8>),
    /// The first byte, and the number of bytes.
    Discard(usize, usize),
    /// All writes before are on the medium.
    Flush,
}

/// A device in memory, which remembers all that was written and flushed: what a power cut leaves
/// can be asked for at any of these requests, when the schedule has ended.
pub(crate) struct StepDevice {
    base: Arc<Vec<u8>>,
    /// The pieces in the beginning.
    first: Pieces,
    /// Never held where the scheduler switches.
    pieces: Mutex<Pieces>,
    events: Mutex<Vec<Event>>,
    requests: AtomicU64,
    /// Requests of a direct queue complete in threads of their own, or at once.
    threads: bool,
    /// The scheduler has no part in requests any more.
    alone: AtomicBool,
    /// Reads until one fails, if one is to.
    reads_left: Mutex<Option<u64>>,
    has_failed: AtomicBool,
    /// Writes until one fails, if one is to.
    writes_left: Mutex<Option<u64>>,
    /// The events before the write that failed.
    write_failed: Mutex<Option<usize>>,
}

impl StepDevice {
    /// A device that holds `base` with `pieces` over it.
    pub(crate) fn new(base: &Arc<Vec<u8>>, pieces: Pieces, threads: bool) -> Self {
        Self {
            base: Arc::clone(base),
            first: pieces.clone(),
            pieces: Mutex::new(pieces),
            events: Mutex::default(),
            requests: AtomicU64::new(0),
            threads,
            alone: AtomicBool::new(false),
            reads_left: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            writes_left: Mutex::default(),
            write_failed: Mutex::default(),
        }
    }

    /// Lets a read fail, after so many more; none from now on if none is said.
    pub(crate) fn fail_read(&self, after: Option<u64>) {
        *self.reads_left.lock().unwrap() = after;
    }

    /// Lets a write fail after so many more; none from now on if none is said.
    pub(crate) fn fail_write(&self, after: Option<u64>) {
        *self.writes_left.lock().unwrap() = after;
    }

    /// Returns how many events came before the write that failed, if one did.
    pub(crate) fn write_failed(&self) -> Option<usize> {
        *self.write_failed.lock().unwrap()
    }

    /// A write fails, if it is its turn: some of its sectors arrive, or none.
    fn fails_write(&self, at: usize, buf: &[u8]) -> bool {
        let mut left = self.writes_left.lock().unwrap();
        let fails = *left == Some(0);
        *left = left.and_then(|left| left.checked_sub(1));
        drop(left);
        if fails {
            self.request(|pieces| {
                let mut events = self.events.lock().unwrap();
                *self.write_failed.lock().unwrap() = Some(events.len());
                let mut rng = Rng::new(events.len() as u64);
                for (from, sector) in torn(&mut rng, at, buf) {
                    self.store(pieces, from, sector);
                    events.push(Event::Write(from, sector.to_vec()));
                }
            });
        }
        fails
    }

    /// A device with what is there now.
    pub(crate) fn copy(&self) -> StepDevice {
        StepDevice::new(
            &self.base,
            self.pieces.lock().unwrap().clone(),
            self.threads,
        )
    }

    /// Returns whether a read has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    fn fails(&self) -> bool {
        let mut left = self.reads_left.lock().unwrap();
        let fails = *left == Some(0);
        *left = left.and_then(|left| left.checked_sub(1));
        if fails {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        fails
    }

    /// Writes and flushes so far: moments at which the power may go.
    pub(crate) fn events(&self) -> usize {
        self.events.lock().unwrap().len()
    }

    /// Draws a moment from `from` on. Mostly it is one at which much is at stake: before a flush,
    /// when all since the last one may be lost, after it, or with the first write since.
    pub(crate) fn moment(&self, rng: &mut Rng, from: usize) -> usize {
        let events = self.events.lock().unwrap();
        let flushes: Vec<_> = (from..events.len())
            .filter(|at| matches!(events[*at], Event::Flush))
            .collect();
        if flushes.is_empty() || rng.chance(35) {
            return from + rng.index(events.len() - from + 1);
        }
        (flushes[rng.index(flushes.len())] + rng.index(3)).min(events.len())
    }

    /// A device with what is there if the power goes before the event with number `at`: all that
    /// was flushed, and of what came after all, nothing, all but one write, or any; of some writes
    /// only some sectors.
    pub(crate) fn after_cut(&self, at: usize, rng: &mut Rng) -> StepDevice {
        let events = self.events.lock().unwrap();
        let durable = events[..at]
            .iter()
            .rposition(|event| matches!(event, Event::Flush))
            .unwrap_or(0);
        let loose = at - durable;
        let kind = rng.below(5);
        let one = rng.index(loose.max(1));
        let tears = rng.chance(30);
        let mut pieces = self.first.clone();
        for (number, event) in events[..at].iter().enumerate() {
            let arrives = match kind {
                0 => true,
                1 => false,
                2 => number != durable + one,
                3 => number == durable + one,
                _ => rng.chance(50),
            };
            match event {
                _ if number >= durable && !arrives => {}
                Event::Write(to, bytes) if number >= durable && tears && rng.chance(30) => {
                    for (from, sector) in torn(rng, *to, bytes) {
                        self.store(&mut pieces, from, sector);
                    }
                }
                Event::Write(to, bytes) => self.store(&mut pieces, *to, bytes),
                Event::Discard(from, len) => self.store(&mut pieces, *from, &vec![GONE; *len]),
                Event::Flush => {}
            }
        }
        StepDevice::new(&self.base, pieces, self.threads)
    }

    fn store(&self, pieces: &mut Pieces, at: usize, bytes: &[u8]) {
        each_piece(at, bytes.len(), |piece, inside, part| {
            let old = pieces.entry(piece).or_insert_with(|| {
                let from = piece * PIECE;
                Arc::new(self.base[from..from + PIECE].try_into().unwrap())
            });
            Arc::make_mut(old)[inside..inside + part.len()].copy_from_slice(&bytes[part]);
        });
    }

    /// Requests so far.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
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

    fn request<R>(&self, work: impl FnOnce(&mut Pieces) -> R) -> R {
        self.step();
        self.requests.fetch_add(1, Ordering::Relaxed);
        let done = work(&mut self.pieces.lock().unwrap());
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

/// Some of the sectors of a write, with where they begin.
fn torn<'a>(rng: &mut Rng, at: usize, bytes: &'a [u8]) -> Vec<(usize, &'a [u8])> {
    let sectors = bytes.chunks(SECTOR).enumerate();
    let arrive = sectors.filter(|_| rng.chance(50));
    arrive
        .map(|(number, sector)| (at + number * SECTOR, sector))
        .collect()
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
        if self.fails() {
            self.request(|_| ());
            return Err(io::Error::other("a bad sector"));
        }
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
        });
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let at = self.at(offset, buf.len())?;
        if self.fails_write(at, buf) {
            return Err(io::Error::other("a bad sector"));
        }
        self.request(|pieces| {
            self.store(pieces, at, buf);
            let event = Event::Write(at, buf.to_vec());
            self.events.lock().unwrap().push(event);
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.request(|_| self.events.lock().unwrap().push(Event::Flush));
        Ok(())
    }

    /// Nothing is left of what was there.
    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        let len = index(len);
        let at = self.at(offset, len)?;
        self.request(|pieces| {
            self.store(pieces, at, &vec![GONE; len]);
            self.events.lock().unwrap().push(Event::Discard(at, len));
        });
        Ok(())
    }

    fn queueing(&self, _: usize) -> Queueing {
        if self.threads {
            Queueing::Threads
        } else {
            Queueing::Immediate
        }
    }
}
