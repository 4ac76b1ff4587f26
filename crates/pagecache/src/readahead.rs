//! The readahead window: how much to read, and in folios of which size.
//!
//! A reader's first miss opens a window sized by its request; as long as it reads on from where it was, windows
//! grow until the largest. Reading past the window's marker calls for the next window before the last is used
//! up. Folio orders grow with the windows. A miss elsewhere, in the middle of the file, reads
//! only what was asked for.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Requests of at least this many pages begin with folios of their own size.
const LARGE_REQUEST: u64 = 16;
/// Windows below this many pages use single pages.
const SMALL_WINDOW: u64 = 4;

/// What to read: `pages` pages from page `start`, in folios of at most `order`.
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
    /// The page after the last.
    pub fn end(&self) -> u64 {
        self.start.saturating_add(self.pages)
    }
}

/// One reader's readahead state: one per open file. May be shared by threads.
pub struct Readahead {
    max_pages: u64,
    /// Reading past this page calls for the next window. `u64::MAX`: there is no window.
    marker: AtomicU64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The page after the last one read.
    expected: u64,
    window: Option<Window>,
}

impl Readahead {
    /// The state of a reader that has not read yet, with windows of at most `max_bytes`.
    pub fn new(max_bytes: u64) -> Self {
        Self {
            max_pages: (max_bytes >> extant_units::PAGE_SHIFT).max(1),
            marker: AtomicU64::new(u64::MAX),
            state: Mutex::default(),
        }
    }

    /// Whether a cached read of the pages before `end` calls for [`Readahead::advance`].
    #[inline]
    pub fn wants_more(&self, end: u64) -> bool {
        end > self.marker.load(Ordering::Relaxed)
    }

    /// The window for a miss at `page`, by a reader that wants `request` pages from there. It holds the request, or as much of
    /// it as the largest window can.
    pub fn miss(&self, page: u64, request: u64, max_order: u32) -> Window {
        let request = request.clamp(1, self.max_pages);
        let mut state = self.state.lock();
        let near = page == state.expected || page + 1 == state.expected;
        let sequential = page == 0 || near || request >= self.max_pages;
        state.expected = page.saturating_add(request);
        if !sequential {
            self.marker.store(u64::MAX, Ordering::Relaxed);
            state.window = None;
            return Window {
                start: page,
                pages: request,
                order: start_order(request, request, max_order),
            };
        }
        let (pages, order) = match state.window {
            Some(last) if near => self.grown(last, max_order),
            _ => {
                let pages = self.first(request);
                (pages, start_order(request, pages, max_order))
            }
        };
        self.open(&mut state, page, pages.max(request), order, request)
    }

    /// The next window, after a cached read up to `end` that reached the marker.
    pub fn advance(&self, end: u64, max_order: u32) -> Option<Window> {
        let mut state = self.state.lock();
        let last = state.window?;
        if !self.wants_more(end) {
            return None;
        }
        state.expected = end;
        if end > last.end().saturating_add(1) {
            // The reader is somewhere else.
            state.window = None;
            self.marker.store(u64::MAX, Ordering::Relaxed);
            return None;
        }
        let (pages, order) = self.grown(last, max_order);
        Some(self.open(&mut state, last.end(), pages, order, 0))
    }

    /// Remembers a cached read of the pages before `end`.
    pub fn hit(&self, end: u64) {
        if let Some(mut state) = self.state.try_lock() {
            state.expected = end;
        }
    }

    fn first(&self, request: u64) -> u64 {
        let pages = request.next_power_of_two().min(self.max_pages);
        if pages <= self.max_pages / 32 {
            pages * 4
        } else if pages <= self.max_pages / 4 {
            pages * 2
        } else {
            self.max_pages
        }
    }

    fn grown(&self, last: Window, max_order: u32) -> (u64, u32) {
        let pages = if last.pages < self.max_pages / 16 {
            last.pages * 4
        } else if last.pages <= self.max_pages / 2 {
            last.pages * 2
        } else {
            self.max_pages.max(1)
        };
        (pages, limit_order(last.order + 2, pages, max_order))
    }

    fn open(&self, state: &mut State, start: u64, pages: u64, order: u32, used: u64) -> Window {
        let window = Window {
            start,
            pages,
            order,
        };
        state.window = Some(window);
        // The part that the reader did not ask for is the asynchronous one; its first page is the marker.
        let marker = if used < pages {
            start + used
        } else {
            start + pages - 1
        };
        self.marker.store(marker, Ordering::Relaxed);
        window
    }
}

fn start_order(request: u64, window: u64, max_order: u32) -> u32 {
    if request < LARGE_REQUEST {
        return 0;
    }
    limit_order(request.ilog2(), window, max_order)
}

fn limit_order(order: u32, window: u64, max_order: u32) -> u32 {
    if window < SMALL_WINDOW {
        return 0;
    }
    order.min(max_order).min(window.ilog2())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequential_reader_gets_growing_windows_and_folios() {
        let ra = Readahead::new(128 << 10);
        let mut window = ra.miss(0, 1, 9);
        assert_eq!((window.pages, window.order), (4, 0));
        let mut seen = Vec::new();
        for page in 1..200 {
            if page >= window.end() {
                panic!("the next window was opened before the last was used up");
            }
            if ra.wants_more(page + 1) {
                let next = ra.advance(page + 1, 9).unwrap();
                assert_eq!(next.start, window.end());
                seen.push((next.pages, next.order));
                window = next;
            } else {
                ra.hit(page + 1);
            }
        }
        assert_eq!(seen[..4], [(8, 2), (16, 4), (32, 5), (32, 5)]);
    }

    #[test]
    fn a_random_reader_reads_what_it_asks_for() {
        let ra = Readahead::new(128 << 10);
        for page in [1000, 7, 500] {
            let window = ra.miss(page, 2, 9);
            assert_eq!((window.start, window.pages, window.order), (page, 2, 0));
            assert!(!ra.wants_more(u64::MAX - 1));
        }
    }

    #[test]
    fn a_large_request_gets_large_folios_at_once() {
        let ra = Readahead::new(2 << 20);
        let window = ra.miss(0, 256, 9);
        assert_eq!((window.pages, window.order), (512, 8));
        let window = ra.miss(100_000, 256, 9);
        assert_eq!((window.pages, window.order), (256, 8));
        let window = ra.miss(200_000, 1 << 30, 9);
        assert_eq!((window.pages, window.order), (512, 9));
        assert_eq!(ra.miss(200_512, 1 << 30, 9).start, 200_512);
    }
}
