//! The readahead window: how much to read, and in folios of which size.
//!
//! A reader's first miss opens a window sized by its request. While the reader goes on from there,
//! windows grow up to the largest. A read past the window's marker opens the next window before the
//! last one is used up. Folio orders grow from window to window, by two beyond that of the folio
//! with the marker. A miss elsewhere, in the middle of the file, reads only what was asked for, in
//! folios as a write of that length would make them.
//!
//! # Concurrency
//! A cached read needs two words, the marker and the end of the last read. It reads and writes them
//! without a lock: threads that share a reader's state may at worst open a window too many, or
//! none.

use std::sync::atomic::{AtomicU64, Ordering};

use extant_sync::Mutex;

/// Windows below this many pages use single pages.
const SMALL_WINDOW: u64 = 4;
/// Each window's folios may be larger by this much than the last one's.
const ORDER_STEP: u32 = 2;
/// No marker: there is no window.
const NOWHERE: u64 = u64::MAX;

/// A window to read: `pages` pages from page `start`, in folios of at most `order`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// The first page.
    pub start: u64,
    /// The number of pages.
    pub pages: u64,
    /// The largest folio order to use.
    pub order: u32,
}

impl Window {
    /// The page after the last. A window may reach past the last page there can be.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.pages)
    }
}

/// One reader's readahead state: one per open file. May be shared by threads.
pub struct Readahead {
    max_pages: u64,
    /// Reading past this page calls for the next window.
    marker: AtomicU64,
    /// The page after the last one read.
    expected: AtomicU64,
    window: Mutex<Option<Window>>,
}

impl Readahead {
    /// The state of a reader that has not read yet, with windows of at most `max_bytes`.
    pub fn new(max_bytes: u64) -> Self {
        Self {
            max_pages: (max_bytes >> extant_units::PAGE_SHIFT).max(1),
            marker: AtomicU64::new(NOWHERE),
            expected: AtomicU64::new(0),
            window: Mutex::new(None),
        }
    }

    /// Returns whether a cached read of the pages before `end` calls for [`Readahead::advance`].
    #[inline]
    pub fn wants_more(&self, end: u64) -> bool {
        end > self.marker.load(Ordering::Relaxed)
    }

    /// The page past which a read calls for the next window; `None` without a window.
    pub fn marker(&self) -> Option<u64> {
        Some(self.marker.load(Ordering::Relaxed)).filter(|&page| page != NOWHERE)
    }

    /// The window for a miss at `page`, by a reader that wants `request` pages from there. It holds
    /// the request, or as much of it as the largest window can.
    pub fn miss(&self, page: u64, request: u64, max_order: u32) -> Window {
        let request = request.clamp(1, self.max_pages);
        let mut window = self.window.lock();
        let next = page.saturating_add(request);
        let expected = self.expected.swap(next, Ordering::Relaxed);
        let near = page == expected || page + 1 == expected;
        let sequential = page == 0 || near || request >= self.max_pages;
        if !sequential {
            self.close(&mut window);
            return Window {
                start: page,
                pages: request,
                order: request.ilog2().min(max_order),
            };
        }
        let pages = match *window {
            Some(last) if near => self.grown(last.pages),
            _ => self.first(request),
        };
        let pages = pages.max(request);
        // A miss says nothing about the folios before it: orders start again.
        let order = next_order(0, pages, max_order);
        let new = Window {
            start: page,
            pages,
            order,
        };
        self.open(&mut window, new, request)
    }

    /// The next window, after a cached read up to `end` that reached the marker, which is in a
    /// folio of `order`.
    pub fn advance(&self, end: u64, order: u32, max_order: u32) -> Option<Window> {
        let mut window = self.window.lock();
        let last = (*window)?;
        if !self.wants_more(end) {
            return None;
        }
        self.hit(end);
        if end > last.end().saturating_add(1) {
            // The reader is somewhere else.
            self.close(&mut window);
            return None;
        }
        let pages = self.grown(last.pages);
        let order = next_order(order, pages, max_order);
        let new = Window {
            start: last.end(),
            pages,
            order,
        };
        Some(self.open(&mut window, new, 0))
    }

    /// Notes a cached read of the pages before `end`.
    #[inline]
    pub fn hit(&self, end: u64) {
        self.expected.store(end, Ordering::Relaxed);
    }

    /// The pages of a first window.
    fn first(&self, request: u64) -> u64 {
        let pages = request.next_power_of_two();
        if pages <= self.max_pages / 32 {
            pages * 4
        } else if pages <= self.max_pages / 4 {
            pages * 2
        } else {
            self.max_pages
        }
    }

    /// The pages of the window after one of `last`.
    fn grown(&self, last: u64) -> u64 {
        if last < self.max_pages / 16 {
            last * 4
        } else if last <= self.max_pages / 2 {
            last * 2
        } else {
            self.max_pages
        }
    }

    /// Makes `new` the reader's window. The first `used` pages were asked for; the first page after
    /// them is the marker.
    fn open(&self, window: &mut Option<Window>, new: Window, used: u64) -> Window {
        debug_assert!(used <= new.pages && new.pages > 0, "{used} of {new:?}");
        *window = Some(new);
        let marker = if used < new.pages {
            new.start + used
        } else {
            new.start + new.pages - 1
        };
        self.marker.store(marker, Ordering::Relaxed);
        new
    }

    fn close(&self, window: &mut Option<Window>) {
        *window = None;
        self.marker.store(NOWHERE, Ordering::Relaxed);
    }
}

/// The folio order of a window of `pages` that follows folios of order `last`.
fn next_order(last: u32, pages: u64, max_order: u32) -> u32 {
    if pages < SMALL_WINDOW {
        return 0;
    }
    (last + ORDER_STEP).min(max_order).min(pages.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads page by page from page 0; the windows after the first, each with the order that its
    /// folios got.
    fn stream(ra: &Readahead, pages: u64) -> (Window, Vec<(u64, u32)>) {
        let first = ra.miss(0, 1, 9);
        let mut window = first;
        let mut seen = Vec::new();
        for page in 1..pages {
            assert!(page < window.end(), "opened before the last was used up");
            if ra.wants_more(page + 1) {
                let next = ra.advance(page + 1, window.order, 9).unwrap();
                assert_eq!(next.start, window.end());
                seen.push((next.pages, next.order));
                window = next;
            } else {
                ra.hit(page + 1);
            }
        }
        (first, seen)
    }

    #[test]
    fn iomap_25_orders_grow_by_two_up_to_the_window() {
        // Linux's default, 32 pages: order 5 is the most.
        let (first, seen) = stream(&Readahead::new(128 << 10), 200);
        assert_eq!((first.pages, first.order), (4, 2));
        assert_eq!(seen[..4], [(8, 3), (16, 4), (32, 5), (32, 5)]);
        let (first, seen) = stream(&Readahead::new(2 << 20), 3000);
        assert_eq!((first.pages, first.order), (4, 2));
        let expected = [(16, 4), (64, 6), (128, 7), (256, 8), (512, 9), (512, 9)];
        assert_eq!(seen[..6], expected);
    }

    #[test]
    fn first_windows_follow_the_request() {
        for (request, pages) in [(1, 4), (2, 4), (3, 8), (8, 16), (9, 32), (16, 32), (32, 32)] {
            let ra = Readahead::new(128 << 10);
            let window = ra.miss(0, request, 9);
            assert_eq!(window.pages, pages, "{request}");
            assert_eq!(window.order, 2);
            assert!(ra.marker().is_some_and(|page| page < pages));
        }
        // Too small for anything but single pages.
        assert_eq!(Readahead::new(8 << 10).miss(0, 1, 9).order, 0);
    }

    #[test]
    fn the_order_is_that_of_the_marked_folio() {
        let ra = Readahead::new(2 << 20);
        assert_eq!(ra.miss(0, 64, 9).pages, 128);
        let next = ra.advance(65, 0, 9).unwrap();
        assert_eq!((next.pages, next.order), (256, 2));
        let next = ra.advance(next.start + 1, 7, 9).unwrap();
        assert_eq!((next.pages, next.order), (512, 9));
        let next = ra.advance(next.start + 1, 9, 5).unwrap();
        assert_eq!(next.order, 5, "the mapping's limit");
        assert!(ra.advance(next.end() + 2, 5, 5).is_none(), "elsewhere");
        assert_eq!(ra.marker(), None);
    }

    #[test]
    fn a_random_reader_reads_what_it_asks_for() {
        let ra = Readahead::new(2 << 20);
        for (page, request, order) in [(1000, 2, 1), (7, 1, 0), (500, 256, 8), (90, 3, 1)] {
            let window = ra.miss(page, request, 9);
            assert_eq!((window.start, window.pages), (page, request));
            assert_eq!(window.order, order);
            assert!(!ra.wants_more(u64::MAX - 1));
        }
    }

    #[test]
    fn an_oversized_request_opens_the_largest_window() {
        let ra = Readahead::new(2 << 20);
        let window = ra.miss(200_000, 1 << 30, 9);
        assert_eq!(
            (window.start, window.pages, window.order),
            (200_000, 512, 2)
        );
        assert_eq!(ra.miss(200_512, 1 << 30, 9).start, 200_512);
    }
}
