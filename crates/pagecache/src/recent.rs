//! The folios that an opener used last: repeated and sequential accesses find them without the
//! index.
//!
//! Each thread has its own cache of recent folios, for the openers that it used last; no other
//! thread reads it. So a look takes no lock, and threads that share an opener do not meet here.
//!
//! # Invariants
//! * A recent folio keeps its record alive, not its memory: a folio gives that back when it leaves
//!   its address space, and when the address space is dropped.
//! * A thread caches [`FOLIOS`] folios of each of [`OPENERS`] openers at most.
//!
//! # Concurrency
//! While a thread uses its cache (a destructor may run within that), lookups go to the index
//! instead. A recent folio may have left its address space: the lock functions tell.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use extant_units::{PageIdx, Pos};

use crate::address_space::AddressSpace;
use crate::folio::Folio;
use extant_sync::atomic::Ordering;

/// Openers whose folios a thread caches. A power of two makes the slot a mask.
const OPENERS: usize = 16;
/// Folios of an opener that a thread caches.
const FOLIOS: usize = RecentFolios::MAX_FOLIOS;

/// The number of the last opener.
static LAST: AtomicU64 = AtomicU64::new(0);

extant_sync::thread_local! {
    static CACHED: RefCell<[Cached; OPENERS]> =
        const { RefCell::new([const { Cached::NONE }; OPENERS]) };
}

/// The key under which threads cache the folios of one opener, always in the same address space.
pub struct RecentFolios {
    /// Not zero, and of no other opener, ever.
    number: u64,
}

/// The recent folios of one opener in a thread's cache.
struct Cached {
    /// Zero: of none.
    opener: u64,
    /// The last used first.
    folios: [Option<RecentFolio>; FOLIOS],
}

/// A reference that reclaim does not count as use of the folio.
struct RecentFolio(Arc<Folio>);

impl RecentFolio {
    fn new(folio: Arc<Folio>) -> Self {
        folio.recent_refs.fetch_add(1, Ordering::Relaxed);
        Self(folio)
    }
}

impl Drop for RecentFolio {
    fn drop(&mut self) {
        let before = self.0.recent_refs.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "each reference is counted");
    }
}

impl Cached {
    const NONE: Self = Self {
        opener: 0,
        folios: [const { None }; FOLIOS],
    };

    /// Moves the folio of `pages` that covers `page` to slot `at`, and returns it. Without such a
    /// folio the slots stay as they are.
    #[inline]
    fn find(&mut self, at: usize, pages: &AddressSpace, page: PageIdx) -> Option<&Arc<Folio>> {
        let covers = |cached: &Option<RecentFolio>| {
            let cached = cached.as_ref();
            cached.is_some_and(|cached| cached.0.covers(page))
        };
        if !covers(&self.folios[at]) {
            match self.folios[at..].iter().position(covers) {
                Some(behind) => self.folios.swap(at, at + behind),
                None => {
                    let new = RecentFolio::new(pages.get(page)?);
                    self.folios[at..].rotate_right(1);
                    self.folios[at] = Some(new);
                }
            }
        }
        self.folios[at].as_ref().map(|cached| &cached.0)
    }
}

impl Default for RecentFolios {
    fn default() -> Self {
        let before = LAST.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        Self { number: before + 1 }
    }
}

impl RecentFolios {
    /// The most folios that [`RecentFolios::with_folios`] finds.
    pub const MAX_FOLIOS: usize = 4;

    /// Calls `f` with the folio of `pages` that covers `page`, if there is one. The folio may have
    /// left the address space by the time it is locked.
    #[inline]
    pub fn with_folio<R>(
        &self,
        pages: &AddressSpace,
        page: PageIdx,
        f: impl FnOnce(&Folio) -> R,
    ) -> Option<R> {
        let mut f = Some(f);
        let cached = self.with_cached(|cached| {
            let folio = cached.find(0, pages, page)?;
            f.take().map(|f| f(folio))
        });
        cached.unwrap_or_else(|| {
            let folio = pages.get(page)?;
            f.take().map(|f| f(&folio))
        })
    }

    /// Calls `f` with the folios of `pages` that cover `[start, end)`, ascending; `None` if some
    /// part is not cached, or the folios are more than [`RecentFolios::MAX_FOLIOS`].
    #[inline]
    pub fn with_folios<R>(
        &self,
        pages: &AddressSpace,
        start: Pos,
        end: Pos,
        f: impl FnOnce(&[&Folio]) -> R,
    ) -> Option<R> {
        let all = |cached: &mut Cached| {
            let mut page = start.page();
            let mut count = 0;
            loop {
                let folio = (count < FOLIOS).then(|| cached.find(count, pages, page))??;
                count += 1;
                page = folio.next_index();
                if folio.end() >= end {
                    break;
                }
            }
            let first = cached.folios[0].as_ref()?;
            let mut folios = [&*first.0; FOLIOS];
            for (folio, cached) in folios.iter_mut().zip(&cached.folios[..count]) {
                *folio = &cached.as_ref()?.0;
            }
            Some(f(&folios[..count]))
        };
        self.with_cached(all).flatten()
    }

    /// Calls `f` with what this thread caches for the opener; `None` within another such call.
    #[inline]
    fn with_cached<R>(&self, f: impl FnOnce(&mut Cached) -> R) -> Option<R> {
        let look = |all: &RefCell<[Cached; OPENERS]>| {
            let mut all = all.try_borrow_mut().ok()?;
            let cached = &mut all[extant_units::index(self.number % OPENERS as u64)];
            if cached.opener != self.number {
                *cached = Cached {
                    opener: self.number,
                    ..Cached::NONE
                };
            }
            Some(f(cached))
        };
        CACHED.try_with(look).ok().flatten()
    }
}

#[cfg(all(test, not(extant_shuttle)))]
mod tests {
    use std::sync::Weak;

    use extant_units::BlockSize;

    use super::*;
    use crate::{AddressSpaceParams, Config, PageCache, Writeback, WritebackReason};

    struct NoWriteback;

    impl Writeback for NoWriteback {
        fn write_back(self: Arc<Self>, _: WritebackReason, _: u64) {}
    }

    fn mapping() -> (Arc<PageCache>, Arc<AddressSpace>) {
        let cache = PageCache::new(Config {
            flushers: 0,
            ..Config::with_budget(8 << 20)
        });
        let params = AddressSpaceParams {
            block_size: BlockSize::KIB4,
            max_order: 0,
        };
        let mapping = AddressSpace::new(&cache, Weak::<NoWriteback>::new(), params);
        (cache, mapping)
    }

    fn make(mapping: &AddressSpace, page: u64) -> Arc<Folio> {
        mapping.get_or_create(Pos::new(page << 12), 4096)
    }

    #[test]
    fn each_thread_has_its_own_recent_folios() {
        let (_cache, mapping) = mapping();
        let page = PageIdx::new(3);
        let folio = make(&mapping, 3);
        let refs = || folio.recent_refs.load(Ordering::Relaxed);
        let recent = RecentFolios::default();
        let find = || recent.with_folio(&mapping, page, |found| std::ptr::eq(found, &*folio));
        assert_eq!(find(), Some(true));
        assert_eq!(refs(), 1);
        let both = recent.with_folio(&mapping, page, |_| {
            let other = std::thread::scope(|scope| {
                let other = scope.spawn(|| (find(), refs()));
                other.join().unwrap()
            });
            (other, find())
        });
        let other = (Some(true), 2);
        assert_eq!(
            both,
            Some((other, Some(true))),
            "within another use as well"
        );
        assert_eq!(refs(), 1, "a thread that ended has no reference");
    }

    #[test]
    fn several_are_found_in_order_or_not_at_all() {
        let (_cache, mapping) = mapping();
        let folios: Vec<_> = (0..6).map(|page| make(&mapping, page)).collect();
        let recent = RecentFolios::default();
        let find = |from: u64, to: u64| {
            let pages = |folios: &[&Folio]| folios.iter().map(|f| f.index().get()).collect();
            let (start, end) = (Pos::new((from << 12) + 5), Pos::new((to << 12) + 7));
            recent.with_folios::<Vec<u64>>(&mapping, start, end, pages)
        };
        assert_eq!(find(1, 2), Some(vec![1, 2]));
        assert_eq!(find(2, 3), Some(vec![2, 3]));
        assert_eq!(find(0, 3), Some(vec![0, 1, 2, 3]));
        assert_eq!(find(3, 3), Some(vec![3]));
        assert_eq!(find(1, 5), None, "too many");
        assert_eq!(find(5, 6), None, "there is none");
        let cached = |folio: &Arc<Folio>| folio.recent_refs.load(Ordering::Relaxed);
        assert!(folios.iter().map(cached).sum::<usize>() <= FOLIOS);
        assert!(folios.iter().all(|folio| cached(folio) <= 1));
    }

    #[test]
    fn recent_folios_of_a_dropped_address_space_hold_no_memory() {
        let (cache, mapping) = mapping();
        let folio = make(&mapping, 0);
        let recent = RecentFolios::default();
        assert!(
            recent
                .with_folio(&mapping, PageIdx::new(0), |_| ())
                .is_some()
        );
        drop((folio, mapping));
        assert_eq!(cache.stats().used_bytes, 0);
    }

    #[test]
    fn a_thread_has_recent_folios_of_few_openers() {
        let (_cache, mapping) = mapping();
        let folio = make(&mapping, 0);
        for _ in 0..3 * OPENERS {
            let recent = RecentFolios::default();
            assert!(
                recent
                    .with_folio(&mapping, PageIdx::new(0), |_| ())
                    .is_some()
            );
        }
        // Other tests may have taken numbers in between.
        let refs = folio.recent_refs.load(Ordering::Relaxed);
        assert!((1..=OPENERS).contains(&refs));
    }
}
