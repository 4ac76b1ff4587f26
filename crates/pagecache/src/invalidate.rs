//! Taking folios out of a mapping, and asking what is cached in a range.

use std::ops::Range;

use extant_units::{PAGE_SHIFT, PageIdx};

use crate::Mapping;
use crate::folio::FolioGuard;

impl Mapping {
    /// Drops the cache of `[start, end)` bytes, dirty or not, without writing it: whole folios go, of
    /// others the part inside is zeroed, and cleaned where it fills blocks. Waits for writeback. The
    /// caller holds the invalidate lock exclusively, or nobody else can reach the file.
    pub fn drop_range(&self, start: u64, end: u64) {
        // First whatever needs no waiting, so that the flusher has less to do meanwhile.
        for wait in [false, true] {
            self.for_each_folio(
                start,
                end,
                |guard| {
                    let folio = guard.folio();
                    if folio.is_under_writeback() && !wait {
                        return;
                    }
                    if folio.start() >= start && folio.end() <= end {
                        guard.detach();
                    } else if wait {
                        clear_part(guard, start, end);
                    }
                },
                wait,
            );
        }
    }

    /// Drops everything, and takes the mapping off the list of dirty ones: for a file that is going away.
    pub fn evict(&self) {
        self.drop_range(0, u64::MAX);
        self.shared().forget(self);
    }

    /// Drops the folios of `[start, end)` bytes that hold nothing dirty and are not under writeback.
    pub fn drop_clean(&self, start: u64, end: u64) {
        self.for_each_folio(
            start,
            end,
            |guard| {
                if !guard.has_dirty() && !guard.folio().is_under_writeback() {
                    guard.detach();
                }
            },
            false,
        );
    }

    /// Forgets that the blocks of folios in `[start, end)` have space: a write asks the block map again.
    pub fn forget_backing(&self, start: u64, end: u64) {
        self.for_each_folio(start, end, |mut guard| guard.set_backed(false), false);
    }

    fn for_each_folio(
        &self,
        start: u64,
        end: u64,
        mut each: impl FnMut(FolioGuard<'_>),
        stable: bool,
    ) {
        let mut from = start >> PAGE_SHIFT;
        while start < end
            && let Some(folio) = self.next(PageIdx::new(from), PageIdx::MAX)
            && folio.start() < end
        {
            from = folio.index().get() + (1 << folio.order());
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

    /// The parts of `[start, end)` bytes where no cached block is dirty or under writeback, in order.
    pub fn clean_ranges(&self, start: u64, end: u64) -> Vec<Range<u64>> {
        let mut clean = Vec::new();
        let mut at = start;
        while at < end {
            let Some(folio) = self.next(PageIdx::new(at >> PAGE_SHIFT), PageIdx::MAX) else {
                break;
            };
            if folio.start() >= end {
                break;
            }
            if folio.start() > at {
                clean.push(at..folio.start());
                at = folio.start();
            }
            let stop = folio.end().min(end);
            if let Some(guard) = self.read(&folio)
                && !folio.is_under_writeback()
            {
                while at < stop {
                    let inside = crate::index(at - folio.start());
                    let position = |found: Option<usize>| {
                        found.map_or(stop, |byte| (folio.start() + byte as u64).min(stop))
                    };
                    let dirty = position(guard.next_dirty(inside, true));
                    if dirty > at {
                        clean.push(at..dirty);
                    }
                    at = position(guard.next_dirty(crate::index(dirty - folio.start()), false));
                }
            }
            at = stop;
        }
        if at < end {
            clean.push(at..end);
        }
        // Neighbours from different folios become one.
        clean.dedup_by(|next, before| {
            let joins = before.end == next.start;
            if joins {
                before.end = next.end;
            }
            joins
        });
        clean
    }

    /// The first byte in `[start, end)` that is cached (`cached`: its block is uptodate) or is not.
    pub fn seek_cached(&self, start: u64, end: u64, cached: bool) -> Option<u64> {
        let mut at = start;
        while at < end {
            let Some(folio) = self.next(PageIdx::new(at >> PAGE_SHIFT), PageIdx::MAX) else {
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
                .and_then(|guard| guard.next_uptodate(crate::index(at - folio.start()), cached))
                .map(|byte| folio.start() + byte as u64);
            if let Some(found) = found {
                return (found < end).then_some(found);
            }
            at = folio.end();
        }
        (!cached && at < end).then_some(at)
    }
}

/// Zeroes and cleans the part of a folio that lies in `[start, end)`.
fn clear_part(mut guard: FolioGuard<'_>, start: u64, end: u64) {
    let folio = guard.folio();
    let from = crate::index(start.max(folio.start()) - folio.start());
    let to = crate::index(end.min(folio.end()) - folio.start());
    guard.bytes_mut()[from..to].fill(0);
    guard.cancel_dirty(from..to);
    guard.set_backed(false);
}
