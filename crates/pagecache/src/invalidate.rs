//! Removing a range of a file from the cache, and asking what is cached of one.

use std::ops::Range;

use extant_units::Pos;

use crate::address_space::AddressSpace;
use crate::folio_guard::FolioGuard;
use crate::locks::InvalidateExclusive;

impl AddressSpace {
    /// Drops the cache of `[start, end)`, dirty or not, without writing it. Whole folios go; of
    /// other folios whole blocks are not uptodate any more, and parts of blocks are zeroed. Waits
    /// for writeback. `_no_fills` keeps other threads from filling the range again.
    pub fn drop_range(&self, _no_fills: &InvalidateExclusive<'_>, start: Pos, end: Pos) {
        self.drop_folios(start, end);
    }

    /// Drops everything, and takes the file off the list of dirty ones: for a file that is going to
    /// be deleted, which no other thread can reach.
    pub fn evict(&self) {
        self.drop_folios(Pos::ZERO, Pos::MAX);
        self.state().forget(self.dirty_state());
    }

    fn drop_folios(&self, start: Pos, end: Pos) {
        // First the folios that need no waiting, so that flushers have less to write meanwhile.
        self.for_each_folio(start, end, false, |guard| {
            let folio = guard.folio();
            if folio.start() >= start && folio.end() <= end && !folio.is_under_writeback() {
                guard.detach();
            }
        });
        self.for_each_folio(start, end, true, |guard| {
            if guard.folio().start() >= start && guard.folio().end() <= end {
                guard.detach();
            } else {
                clear_part(guard, start, end);
            }
        });
    }

    /// Drops the folios of `[start, end)` that hold nothing dirty and are not under writeback.
    pub fn drop_clean(&self, start: Pos, end: Pos) {
        self.for_each_folio(start, end, false, |guard| {
            if !guard.has_dirty() && !guard.folio().is_under_writeback() {
                guard.detach();
            }
        });
    }

    /// Removes `[start, end)`, whole blocks, from the cache as far as that loses nothing; returns
    /// whether all of it is gone. Folios with nothing dirty go. Of other folios the blocks of the
    /// range are not uptodate afterwards. Blocks that are dirty in the range stay, and so do folios
    /// under writeback, unless `wait` is set: then this waits for the end of writeback.
    pub fn invalidate(&self, start: Pos, end: Pos, wait: bool) -> bool {
        let mut gone = true;
        self.for_each_folio(start, end, wait, |mut guard| {
            let folio = guard.folio();
            let part = folio.offset_of(start)..folio.offset_of(end);
            if folio.is_under_writeback() {
                gone = false;
            } else if !guard.has_dirty() {
                guard.detach();
            } else if guard.is_clean(part.clone()) {
                guard.discard(part);
            } else {
                gone = false;
            }
        });
        gone
    }

    /// Forgets that the blocks in `[start, end)` have space: the next write to them asks the block
    /// map again.
    pub fn clear_backed(&self, start: Pos, end: Pos) {
        self.for_each_folio(start, end, false, |mut guard| {
            let folio = guard.folio();
            guard.clear_backed(folio.offset_of(start)..folio.offset_of(end));
        });
    }

    /// Calls `each` with every folio that touches `[start, end)`, locked; if `stable`, after the
    /// end of its writeback.
    fn for_each_folio(
        &self,
        start: Pos,
        end: Pos,
        stable: bool,
        mut each: impl FnMut(FolioGuard<'_>),
    ) {
        let mut from = start;
        while from < end
            && let Some(folio) = self.next(from)
            && folio.start() < end
        {
            from = folio.end();
            let guard = if stable {
                self.lock_stable(&folio)
            } else {
                self.lock(&folio)
            };
            if let Some(guard) = guard {
                each(guard);
            }
        }
    }

    /// The parts of `[start, end)` where no cached block is dirty, in order. Waits for writeback: a
    /// folio under it says nothing of its other blocks.
    pub fn clean_ranges(&self, start: Pos, end: Pos) -> Vec<Range<Pos>> {
        let mut clean: Vec<Range<Pos>> = Vec::new();
        let mut add = |from: Pos, to: Pos| match clean.last_mut() {
            Some(last) if last.end == from => last.end = to,
            _ if from < to => clean.push(from..to),
            _ => {}
        };
        let mut at = start;
        while at < end
            && let Some(folio) = self.next(at)
            && folio.start() < end
        {
            self.wait_stable(&folio);
            let guard = self.read(&folio);
            let Some(guard) = guard.filter(|_| !folio.is_under_writeback()) else {
                // It has left the cache, or is under writeback again.
                continue;
            };
            add(at, folio.start().max(at));
            at = at.max(folio.start());
            let stop = folio.end().min(end);
            while at < stop {
                let position =
                    |found: Option<usize>| found.map_or(stop, |at| folio.pos_of(at).min(stop));
                let dirty = position(guard.next_dirty(folio.offset_of(at), true));
                add(at, dirty);
                at = position(guard.next_dirty(folio.offset_of(dirty), false));
            }
        }
        add(at, end.max(at));
        clean
    }

    /// The first byte in `[start, end)` whose block is uptodate, if `cached`, or is not.
    pub fn seek_cached(&self, start: Pos, end: Pos, cached: bool) -> Option<Pos> {
        let mut at = start;
        while at < end {
            let Some(folio) = self.next(at) else {
                break;
            };
            if folio.start() > at {
                if !cached {
                    return Some(at);
                }
                at = folio.start();
                continue;
            }
            let found = self
                .read(&folio)
                .and_then(|guard| guard.next_uptodate(folio.offset_of(at), cached))
                .map(|offset| folio.pos_of(offset));
            if let Some(found) = found {
                return (found < end).then_some(found);
            }
            at = folio.end();
        }
        (!cached && at < end).then_some(at)
    }
}

/// Drops the part of a folio that lies in `[start, end)`: clean, and zeros or not uptodate.
fn clear_part(mut guard: FolioGuard<'_>, start: Pos, end: Pos) {
    let part = guard.folio().offset_of(start)..guard.folio().offset_of(end);
    guard.cancel_dirty(part.clone());
    guard.discard(part.clone());
    guard.clear_backed(part);
}
