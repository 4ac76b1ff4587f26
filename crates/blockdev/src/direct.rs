//! I/O past the host's page cache: requests that the descriptor takes as they are, and aligned
//! copies for the rest.
//!
//! # Locks
//! A write that covers an alignment unit in part reads the unit, changes a part and writes it
//! whole. The lock `partial` keeps two such writes apart.
//!
//! # Concurrency
//! No other request needs that lock. One that is disjoint from a partial write and covers whole
//! units covers other units. One that overlaps it while both run is a race of the caller (see the
//! crate's header); bytes of a unit may then be what they were before both.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use extant_units::{DevOff, index};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};

use crate::io_buf::{IO_ALIGN, IoBuf};
use crate::io_counters::IoCounters;

/// The longest copy in bytes; longer requests are made in pieces.
const MAX_COPY: usize = 1 << 20;
/// Copies of at most this many bytes are cached for reuse.
const MAX_CACHED_LEN: usize = 128 << 10;
/// The most copies that are cached.
const MAX_CACHED: usize = 16;

/// The alignment that a descriptor with `O_DIRECT` requires.
pub(crate) struct Direct {
    /// Alignment of offsets and lengths: a power of two up to [`IO_ALIGN`].
    unit: usize,
    /// Alignment of memory and of the lengths of its pieces: a power of two up to [`IO_ALIGN`].
    memory: usize,
    /// Held by a write that covers units in part, from reading them until they are written.
    partial: Mutex<()>,
    /// Copies for reuse.
    copies: Mutex<Vec<IoBuf>>,
}

/// A part of a request, and the whole units around it.
struct Piece {
    at: u64,
    whole: usize,
    /// Bytes of the units before the part.
    before: usize,
    part: usize,
}

impl Direct {
    /// Switches `file`, and `second`, which is the same file, to `O_DIRECT`: both or neither. Does
    /// so if statx reports the alignment and the length `len` of the file is a multiple of it.
    pub(crate) fn switch(file: &File, second: Option<&File>, len: u64) -> Option<Self> {
        let known = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
        if known.stx_mask & StatxFlags::DIOALIGN.bits() == 0 {
            return None;
        }
        let direct = Self::new(known.stx_dio_offset_align, known.stx_dio_mem_align)?;
        if !len.is_multiple_of(direct.alignment()) {
            // A write to the last unit would make the file longer.
            return None;
        }
        let flags = fcntl_getfl(file).ok()?;
        fcntl_setfl(file, flags | OFlags::DIRECT).ok()?;
        if second.is_some_and(|second| fcntl_setfl(second, flags | OFlags::DIRECT).is_err()) {
            fcntl_setfl(file, flags).ok()?;
            return None;
        }
        Some(direct)
    }

    fn new(unit: u32, memory: u32) -> Option<Self> {
        let usable = |align: u32| {
            let align = usize::try_from(align).ok()?;
            (align.is_power_of_two() && align <= IO_ALIGN).then_some(align)
        };
        Some(Self {
            unit: usable(unit)?,
            memory: usable(memory)?,
            partial: Mutex::new(()),
            copies: Mutex::default(),
        })
    }

    /// Alignment of offsets and lengths.
    pub(crate) fn alignment(&self) -> u64 {
        self.unit as u64
    }

    /// Returns whether a request of `len` bytes into or out of `pieces` can be made without a copy.
    pub(crate) fn takes<'a>(
        &self,
        offset: DevOff,
        len: usize,
        pieces: impl IntoIterator<Item = &'a [u8]>,
    ) -> bool {
        let aligned = |piece: &[u8]| {
            piece.as_ptr().addr().is_multiple_of(self.memory)
                && piece.len().is_multiple_of(self.memory)
        };
        self.whole_units(offset, len) && pieces.into_iter().all(aligned)
    }

    fn whole_units(&self, offset: DevOff, len: usize) -> bool {
        offset.get().is_multiple_of(self.alignment()) && len.is_multiple_of(self.unit)
    }

    /// Cuts a request into parts whose units fit a copy.
    fn pieces(&self, offset: DevOff, len: usize) -> impl Iterator<Item = Piece> {
        let unit = self.unit;
        let mut at = offset.get();
        let mut left = len;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let start = at - at % unit as u64;
            let before = index(at - start);
            let part = left.min(MAX_COPY - before);
            let piece = Piece {
                at: start,
                whole: (before + part).next_multiple_of(unit),
                before,
                part,
            };
            debug_assert!(part > 0 && before < unit, "units are smaller than a copy");
            at += part as u64;
            left -= part;
            Some(piece)
        })
    }

    /// Fills `bufs` from `offset` through copies. The range lies within the file.
    pub(crate) fn read(
        &self,
        file: &File,
        offset: DevOff,
        bufs: &mut [IoSliceMut<'_>],
        counters: &IoCounters,
    ) -> io::Result<()> {
        counters.copied.fetch_add(1, Ordering::Relaxed);
        let total = bufs.iter().map(|buf| buf.len()).sum();
        let mut position = Position::default();
        for piece in self.pieces(offset, total) {
            self.with_copy(piece.whole, |copy| {
                file.read_exact_at(copy, piece.at)?;
                position.scatter(&copy[piece.before..piece.before + piece.part], bufs);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Writes `bufs` at `offset` through copies. The range lies within the file.
    pub(crate) fn write(
        &self,
        file: &File,
        offset: DevOff,
        bufs: &[IoSlice<'_>],
        counters: &IoCounters,
    ) -> io::Result<()> {
        counters.copied.fetch_add(1, Ordering::Relaxed);
        let total = bufs.iter().map(|buf| buf.len()).sum();
        let in_part = !self.whole_units(offset, total);
        let _partial = in_part.then(|| {
            counters.merged.fetch_add(1, Ordering::Relaxed);
            self.partial.lock()
        });
        let mut position = Position::default();
        for piece in self.pieces(offset, total) {
            self.with_copy(piece.whole, |copy| {
                if piece.part < piece.whole {
                    file.read_exact_at(copy, piece.at)?;
                }
                position.gather(bufs, &mut copy[piece.before..piece.before + piece.part]);
                file.write_all_at(copy, piece.at)
            })?;
        }
        Ok(())
    }

    fn with_copy(
        &self,
        len: usize,
        work: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let cached = self.copies.lock().pop_if(|copy| copy.capacity() >= len);
        let mut copy = match cached {
            Some(mut copy) => {
                copy.set_len(len);
                copy
            }
            // A short copy is made as large as any that is cached, so that it fits later requests.
            None => {
                let mut copy = IoBuf::zeroed(if len <= MAX_CACHED_LEN {
                    MAX_CACHED_LEN
                } else {
                    len
                });
                copy.set_len(len);
                copy
            }
        };
        let result = work(&mut copy);
        if copy.capacity() <= MAX_CACHED_LEN {
            let mut copies = self.copies.lock();
            if copies.len() < MAX_CACHED {
                copies.push(copy);
            }
        }
        result
    }
}

/// A position in a list of buffers.
#[derive(Default)]
struct Position {
    index: usize,
    inside: usize,
}

impl Position {
    /// Fills `into` from the bytes at this position in `bufs`, and moves past them.
    fn gather(&mut self, bufs: &[IoSlice<'_>], mut into: &mut [u8]) {
        while let Some(buf) = bufs.get(self.index)
            && !into.is_empty()
        {
            let from = &buf[self.inside..];
            let len = from.len().min(into.len());
            let (now, later) = into.split_at_mut(len);
            now.copy_from_slice(&from[..len]);
            into = later;
            self.advance(len, buf.len());
        }
    }

    /// Copies `from` to the bytes at this position in `bufs`, and moves past them.
    fn scatter(&mut self, mut from: &[u8], bufs: &mut [IoSliceMut<'_>]) {
        while let Some(buf) = bufs.get_mut(self.index)
            && !from.is_empty()
        {
            let to = &mut buf[self.inside..];
            let len = to.len().min(from.len());
            let (now, later) = from.split_at(len);
            to[..len].copy_from_slice(now);
            from = later;
            self.advance(len, buf.len());
        }
    }

    fn advance(&mut self, by: usize, len: usize) {
        self.inside += by;
        if self.inside >= len {
            self.index += 1;
            self.inside = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_alignments_are_refused() {
        for (unit, memory) in [(0, 512), (512, 0), (8192, 512), (512, 8192), (513, 4)] {
            assert!(Direct::new(unit, memory).is_none(), "{unit}, {memory}");
        }
        let direct = Direct::new(512, 4).unwrap();
        let buf = IoBuf::zeroed(4096);
        assert!(direct.takes(DevOff::new(1024), 4096, [&*buf]));
        assert!(!direct.takes(DevOff::new(1025), 4096, [&*buf]));
        assert!(!direct.takes(DevOff::new(1024), 511, [&buf[..511]]));
        assert!(!direct.takes(DevOff::new(1024), 512, [&buf[1..513]]));
        assert!(!direct.takes(DevOff::new(1024), 512, [&buf[..510], &buf[..2]]));
        assert!(direct.takes(DevOff::new(1024), 512, [&buf[4..12], &buf[4..508]]));
    }

    #[test]
    fn pieces_cover_a_request_and_fit_a_copy() {
        let direct = Direct::new(512, 512).unwrap();
        for (offset, len) in [(0, 1), (511, 2), (7, 3 << 20), (512, 1024), (100, MAX_COPY)] {
            let mut at = offset;
            for piece in direct.pieces(DevOff::new(offset), len) {
                assert_eq!(piece.at + piece.before as u64, at);
                assert!(piece.at.is_multiple_of(512) && piece.whole.is_multiple_of(512));
                assert!(piece.before + piece.part <= piece.whole && piece.whole <= MAX_COPY);
                assert!(piece.before < 512 && piece.part > 0);
                at += piece.part as u64;
            }
            assert_eq!(at, offset + len as u64);
        }
    }

    #[test]
    fn lists_are_gathered_and_scattered_in_any_steps() {
        let bytes: Vec<u8> = (0..=250).collect();
        for step in [1, 3, 50, 251, 300] {
            let list = [
                IoSlice::new(&bytes[..0]),
                IoSlice::new(&bytes[..100]),
                IoSlice::new(&bytes[100..101]),
                IoSlice::new(&bytes[101..101]),
                IoSlice::new(&bytes[101..]),
            ];
            let mut position = Position::default();
            let mut gathered = vec![0; bytes.len()];
            for part in gathered.chunks_mut(step) {
                position.gather(&list, part);
            }
            assert_eq!(gathered, bytes);
            let (mut one, mut none, mut two) = (vec![0; 7], vec![], vec![0; 244]);
            let mut into = [&mut one, &mut none, &mut two].map(|buf| IoSliceMut::new(buf));
            let mut position = Position::default();
            for part in bytes.chunks(step) {
                position.scatter(part, &mut into);
            }
            assert_eq!([one, two].concat(), bytes);
        }
    }
}
