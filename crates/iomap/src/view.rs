//! Views: file bytes where they lie in the cache, without a copy.
//!
//! A [`ReadView`] pins the folios of a range and shows their bytes: each page's as they were when
//! the view was taken, whatever is written, truncated or dropped afterwards. It holds no lock.
//! Bytes that are neither cached nor stored are shown as zeros that belong to no folio.
//!
//! [`edit`] is the writable view. Like a store through a memory mapping in Linux (`page_mkwrite`),
//! it goes folio by folio:
//!
//! 1. Map the range and reserve space, with no folio locked.
//! 2. Lock the folio, after the end of its writeback.
//! 3. Check the mappings' cookies and the file's size again; start over if they changed.
//! 4. Make the blocks uptodate, mark them dirty, and let the caller change the bytes in place.

use std::fmt;
use std::ops::Range;

use extant_pagecache::{Folio, FolioGuard, FolioLocked, Pinned, Readahead};
use extant_units::{Pos, index};

use crate::fill::{fill, fill_block};
use crate::iter::Stopped;
use crate::map::Iomap;
use crate::ops::{IomapOp, IomapOps, Outcome};
use crate::read::{is_page_start, needed_at, zeros_at};

/// The most bytes that one view shows: a bound for the memory of its list of folios.
pub const MAX_VIEW: usize = 256 << 20;

/// The zeros that views show of holes.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes of a file, shown where they lie in the cache.
#[derive(Default)]
pub struct ReadView {
    chunks: Vec<Chunk>,
    len: usize,
}

impl fmt::Debug for ReadView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadView")
            .field("len", &self.len)
            .field("chunks", &self.chunks.len())
            .finish_non_exhaustive()
    }
}

enum Chunk {
    Cached(Pinned),
    Zeros(usize),
}

impl ReadView {
    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether there are none: the view was taken at or past the end of the file.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes in order, in pieces that are contiguous in memory.
    pub fn chunks(&self) -> impl Iterator<Item = &[u8]> {
        self.chunks.iter().map(|chunk| match chunk {
            Chunk::Cached(bytes) => &**bytes,
            Chunk::Zeros(len) => &ZEROS[..*len],
        })
    }

    /// The number of bytes that are shared with the cache. The others were copied, because too much
    /// was pinned already or the folio was locked.
    pub fn shared(&self) -> usize {
        let shared = self.chunks.iter().filter_map(|chunk| match chunk {
            Chunk::Cached(bytes) => bytes.is_shared().then_some(bytes.len()),
            Chunk::Zeros(len) => Some(*len),
        });
        shared.sum()
    }

    /// A view of bytes that the cache does not have.
    pub fn of_copy(bytes: Vec<u8>) -> Self {
        let (mut view, len) = (Self::default(), bytes.len());
        if len > 0 {
            view.push(Chunk::Cached(bytes.into()), len);
        }
        view
    }

    fn push(&mut self, chunk: Chunk, len: usize) {
        self.chunks.push(chunk);
        self.len += len;
    }
}

/// A view of `len` bytes at `pos`, or as many as the file has there, [`MAX_VIEW`] at most. Fills
/// the cache as a read does.
///
/// # Errors
/// The first error of the file system or the device, with the bytes before it.
pub fn view<O: IomapOps + ?Sized>(
    ops: &O,
    readahead: &Readahead,
    pos: Pos,
    len: usize,
) -> Result<ReadView, Stopped<O::Error>> {
    let pages = ops.address_space();
    let len = len.min(MAX_VIEW);
    let mut view = ReadView::default();
    while view.len < len {
        let at = pos.plus(view.len as u64);
        // Nothing is left at the end and past it.
        let left = ops.size().saturating_sub(at.get());
        debug_assert!(view.len < len, "the loop ends at {len} bytes");
        let want = index(left.min((len - view.len) as u64));
        if want == 0 {
            break;
        }
        if let Some(folio) = pages.get(at.page()) {
            let from = folio.offset_of(at);
            // What lies behind the end is no part of the file: a truncation clears it later.
            let to = || {
                let end = folio.offset_of(Pos::new(ops.size()));
                folio.len().min(from + want).min(end)
            };
            if let Some(bytes) = pages.pin(&folio, from, to) {
                let len = bytes.len();
                view.push(Chunk::Cached(bytes), len);
                if !is_page_start(pos.plus(view.len as u64)) {
                    // All of it, or the file ended here. It may have grown since, but the page has
                    // been looked at.
                    break;
                }
                continue;
            }
        }
        let mut zeros = zeros_at(ops, at, want).map_err(Stopped::after(view.len as u64))?;
        if zeros > 0 {
            while zeros > 0 {
                let len = zeros.min(ZEROS.len());
                view.push(Chunk::Zeros(len), len);
                zeros -= len;
            }
            continue;
        }
        populate(ops, readahead, at, want).map_err(Stopped::after(view.len as u64))?;
    }
    Ok(view)
}

/// Fills the cache for `len` bytes at `pos`, or the first of them.
fn populate<O: IomapOps + ?Sized>(
    ops: &O,
    readahead: &Readahead,
    pos: Pos,
    len: usize,
) -> Result<(), O::Error> {
    let first = pos.page().get();
    let last = pos.plus(len as u64 - 1).page().get();
    let window = readahead.miss(first, last - first + 1, ops.address_space().max_order());
    fill(ops, window, Some(needed_at(pos, len)))
}

/// Lets `change` alter `len` bytes at `pos` in place. It is called for one piece after the other,
/// each within one folio, which is locked meanwhile, with the position of the piece's first byte.
/// Ends at the end of the file, which does not grow. Returns the bytes shown to `change`; they are
/// dirty. `change` must not touch the file.
///
/// # Errors
/// The first error of the file system or the device, with the bytes done before. The reservation of
/// the failing piece is given back.
pub fn edit<O: IomapOps + ?Sized>(
    ops: &O,
    readahead: &Readahead,
    pos: Pos,
    len: usize,
    mut change: impl FnMut(Pos, &mut [u8]),
) -> Result<usize, Stopped<O::Error>> {
    let mut done = 0;
    while done < len {
        let at = pos.plus(done as u64);
        // Nothing is left at the end and past it.
        let left = ops.size().saturating_sub(at.get());
        let want = index(left.min((len - done) as u64));
        if want == 0 {
            break;
        }
        ops.address_space().throttle();
        let edited = edit_folio(ops, readahead, at, want, &mut change);
        done += edited.map_err(Stopped::after(done as u64))?;
    }
    Ok(done)
}

/// [`edit`] within the folio at `pos`; returns zero if the caller is to try again.
fn edit_folio<O: IomapOps + ?Sized>(
    ops: &O,
    readahead: &Readahead,
    pos: Pos,
    len: usize,
    change: &mut impl FnMut(Pos, &mut [u8]),
) -> Result<usize, O::Error> {
    let pages = ops.address_space();
    // Stored data is read in large windows here. Holes are filled block by block below.
    if pages.get(pos.page()).is_none() && zeros_at(ops, pos, 1)? == 0 {
        populate(ops, readahead, pos, len)?;
    }
    let folio = pages.get_or_create(pos, len as u64);
    let from = folio.offset_of(pos);
    let to = folio.len().min(from + len);
    let mut space = EditSpace::new(ops, pos, (to - from) as u64);
    loop {
        space.reserve()?;
        let Some(mut guard) = pages.lock_stable(&folio) else {
            return Ok(0);
        };
        if !space.is_valid(guard.locked()) {
            ops.counters().stale_retries.bump();
            continue;
        }
        // A truncation sets the size before it takes this lock.
        let size = Pos::new(ops.size());
        let to = to.min(folio.offset_of(size));
        if from >= to {
            return Ok(0);
        }
        space.fill(&mut guard, from..to)?;
        guard.mark_dirty(from..to);
        folio.mark_referenced();
        change(pos, &mut guard.bytes_mut()[from..to]);
        drop(guard);
        space.used = (to - from) as u64;
        return space.release_unused().map(|()| to - from);
    }
}

/// Space for one piece of an edit: reserved before the folio is locked, checked under its lock,
/// given back if it was not used.
struct EditSpace<'a, O: IomapOps + ?Sized> {
    ops: &'a O,
    pos: Pos,
    len: u64,
    /// The mappings of the range.
    maps: Vec<Iomap>,
    /// Those of them, in all rounds, that `begin` made space for.
    reserved: Vec<Iomap>,
    /// Bytes of the range that became dirty.
    used: u64,
}

impl<'a, O: IomapOps + ?Sized> EditSpace<'a, O> {
    fn new(ops: &'a O, pos: Pos, len: u64) -> Self {
        Self {
            ops,
            pos,
            len,
            maps: Vec::new(),
            reserved: Vec::new(),
            used: 0,
        }
    }

    /// Maps the range and reserves its space. That changes the map, so that it may take a second
    /// round until all mappings are valid together.
    fn reserve(&mut self) -> Result<(), O::Error> {
        self.maps.clear();
        let mut done = 0;
        while done < self.len {
            let at = self.pos.plus(done);
            self.ops.counters().begins.bump();
            let map = self.ops.begin(IomapOp::Write, at, self.len - done)?;
            let part = map.clamp(at, self.len - done);
            debug_assert!(part > 0, "a pages covers the first byte asked for");
            // Makes progress, whatever the file system answers.
            done += part.max(1);
            if map.new {
                self.reserved.push(map);
            }
            self.maps.push(map);
        }
        Ok(())
    }

    fn is_valid(&self, locked: FolioLocked<'_>) -> bool {
        let is_valid = |map| self.ops.is_valid(locked, map);
        self.maps.iter().all(is_valid)
    }

    /// Makes the blocks of `range` uptodate.
    fn fill(&self, guard: &mut FolioGuard<'_>, range: Range<usize>) -> Result<(), O::Error> {
        let folio: &Folio = guard.folio();
        let block = self.ops.address_space().block_size().bytes();
        let mut at = range.start & !(block - 1);
        while let Some(missing) = guard.next_uptodate(at, false)
            && missing < range.end
        {
            let pos = folio.pos_of(missing.max(range.start));
            let map = self.maps.iter().find(|map| map.clamp(pos, 1) > 0);
            let Some(map) = map else {
                debug_assert!(false, "the whole range is mapped");
                break;
            };
            fill_block(self.ops, map, guard, missing)?;
            at = missing + block;
        }
        for map in self.maps.iter().filter(|map| map.has_space()) {
            guard.set_backed(folio.offset_of(map.offset)..folio.offset_of(map.end()));
        }
        Ok(())
    }

    /// Gives back space that was reserved and not used. The caller holds no folio lock.
    fn release_unused(&mut self) -> Result<(), O::Error> {
        let used_end = self.pos.plus(self.used);
        let range_end = self.pos.plus(self.len);
        let mut failed = Ok(());
        for map in self.reserved.drain(..) {
            let at = map.offset.max(self.pos);
            let len = map.clamp(at, range_end.since(at));
            // Nothing of it was used if it lies past the used part.
            let done = used_end.distance_from(at).unwrap_or(0).min(len);
            let outcome = Outcome::done(done);
            let ended = self.ops.end(IomapOp::Write, &map, at, len, outcome);
            failed = failed.and(ended);
        }
        failed
    }
}

impl<O: IomapOps + ?Sized> Drop for EditSpace<'_, O> {
    fn drop(&mut self) {
        // Dropped with reservations only after an error, which the caller returns.
        let _ = self.release_unused();
    }
}
