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
use extant_testkit::Rng;
use extant_units::{DevOff, index};

/// Bytes of a piece.
const PIECE: usize = 1024;

/// The pieces that differ from the base.
pub(crate) type Pieces = BTreeMap<usize, Arc<[u8; PIECE]>>;

/// A write: its first byte, and its bytes.
type Write = (usize, Vec<u8>);

/// Bytes that are on the medium for certain, and writes that came after the last flush.
#[derive(Default)]
struct Medium {
    durable: Pieces,
    loose: Vec<Write>,
}

/// A moment at which the power goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cut {
    /// Requests until then.
    pub(crate) after: u64,
    /// Chooses which of the writes since the last flush arrive: all, or each with even odds.
    pub(crate) seed: u64,
}

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
    medium: Mutex<Medium>,
    /// When the power goes, and what is left then.
    cut: Mutex<Option<(u64, u64)>>,
    left: Mutex<Option<Pieces>>,
}

impl StepDevice {
    /// A device that holds `base` with `pieces` over it.
    pub(crate) fn new(base: &Arc<Vec<u8>>, pieces: Pieces, threads: bool) -> Self {
        Self {
            base: Arc::clone(base),
            medium: Mutex::new(Medium {
                durable: pieces.clone(),
                loose: Vec::new(),
            }),
            cut: Mutex::new(None),
            left: Mutex::new(None),
            pieces: Mutex::new(pieces),
            requests: AtomicU64::new(0),
            threads,
            alone: AtomicBool::new(false),
        }
    }

    /// Lets the power go at `cut`, counted from now: the requests go on, and what would be left is
    /// kept.
    pub(crate) fn cut(&self, cut: Cut) {
        *self.cut.lock().unwrap() = Some((self.requests() + cut.after, cut.seed));
    }

    /// A device with what the power cut left, if the power went.
    pub(crate) fn after_cut(&self) -> Option<StepDevice> {
        let left = self.left.lock().unwrap().take()?;
        Some(StepDevice::new(&self.base, left, self.threads))
    }

    /// Returns whether the power has gone.
    pub(crate) fn is_cut(&self) -> bool {
        self.left.lock().unwrap().is_some()
    }

    /// Bytes that are there if the power goes now: what was flushed, and some of what came after.
    fn survivors(&self, seed: u64) -> Pieces {
        let medium = self.medium.lock().unwrap();
        let mut pieces = medium.durable.clone();
        let mut rng = Rng::new(seed);
        let all = rng.chance(40);
        for (at, bytes) in &medium.loose {
            if all || rng.chance(50) {
                self.store(&mut pieces, *at, bytes);
            }
        }
        pieces
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
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let cut = *self.cut.lock().unwrap();
        if let Some((_, seed)) = cut.filter(|(at, _)| *at == number) {
            *self.left.lock().unwrap() = Some(self.survivors(seed));
        }
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
        });
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        let at = self.at(offset, buf.len())?;
        self.request(|pieces| {
            self.store(pieces, at, buf);
            self.medium.lock().unwrap().loose.push((at, buf.to_vec()));
        });
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.request(|pieces| {
            *self.medium.lock().unwrap() = Medium {
                durable: pieces.clone(),
                loose: Vec::new(),
            };
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
