//! The folios that an opener used last: what spares small sequential and repeated accesses the index.
//!
//! Every thread remembers for itself, for the openers that it used last: so a look at the memory takes no lock, and threads that share an opener
//! do not meet there.
//!
//! # Invariants
//! * What is remembered keeps a folio's record alive, not its memory: a folio gives that back when it leaves its mapping, and
//!   when its mapping goes.
//! * A thread remembers [`FOLIOS`] folios of each of [`OPENERS`] openers at most.
//!
//! # Concurrency
//! Nobody but its thread sees a memory. Within a use of it (which a destructor may be), the index is looked into instead. A folio that
//! is remembered may have left its mapping: whoever locks it looks.

#[cfg(extant_shuttle)]
use shuttle::thread_local;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use extant_units::{PageIdx, Pos};

use crate::AddressSpace;
use crate::folio::Folio;
use crate::sync::atomic::Ordering;

/// Openers that a thread remembers folios of.
const OPENERS: usize = 16;
/// Folios of an opener that a thread remembers.
const FOLIOS: usize = RecentFolios::MOST;

/// The number of the last opener.
static LAST: AtomicU64 = AtomicU64::new(0);

thread_local! {
    static KNOWN: RefCell<[Known; OPENERS]> = const { RefCell::new([const { Known::NOTHING }; OPENERS]) };
}

/// One opener of a file, as threads remember it: always with the same mapping.
pub struct RecentFolios {
    /// Not zero, and no other opener's, ever.
    number: u64,
}

/// What a thread knows of an opener.
struct Known {
    /// Zero: of nobody.
    opener: u64,
    /// The last used first.
    folios: [Option<Remembered>; FOLIOS],
}

/// A reference that does not keep reclaim from taking the folio away.
struct Remembered(Arc<Folio>);

impl Remembered {
    fn new(folio: Arc<Folio>) -> Self {
        folio.remembered.fetch_add(1, Ordering::Relaxed);
        Self(folio)
    }
}

impl Drop for Remembered {
    fn drop(&mut self) {
        self.0.remembered.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Known {
    const NOTHING: Self = Self {
        opener: 0,
        folios: [const { None }; FOLIOS],
    };

    /// Has the folio of `mapping` that covers `page` at place `at` or, if there is none, nothing new.
    #[inline]
    fn find(&mut self, at: usize, mapping: &AddressSpace, page: PageIdx) -> Option<&Arc<Folio>> {
        let serves = |known: &Option<Remembered>| {
            let known = known.as_ref();
            known.is_some_and(|known| known.0.serves(page))
        };
        if !serves(&self.folios[at]) {
            match self.folios[at..].iter().position(serves) {
                Some(behind) => self.folios.swap(at, at + behind),
                None => {
                    let new = Remembered::new(mapping.get(page)?);
                    self.folios[at..].rotate_right(1);
                    self.folios[at] = Some(new);
                }
            }
        }
        self.folios[at].as_ref().map(|known| &known.0)
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
    pub const MOST: usize = 4;

    /// Calls `f` with the folio of `mapping` that covers `page`, if there is one. The folio may have left the mapping by the
    /// time it is locked.
    #[inline]
    pub fn with_folio<R>(
        &self,
        mapping: &AddressSpace,
        page: PageIdx,
        f: impl FnOnce(&Folio) -> R,
    ) -> Option<R> {
        let mut f = Some(f);
        let known = self.known(|known| {
            let folio = known.find(0, mapping, page)?;
            f.take().map(|f| f(folio))
        });
        known.unwrap_or_else(|| {
            let folio = mapping.get(page)?;
            f.take().map(|f| f(&folio))
        })
    }

    /// Calls `f` with all folios of `mapping` that cover `[start, end)`, ascending, if there are, and no more than [`RecentFolios::MOST`].
    #[inline]
    pub fn with_folios<R>(
        &self,
        mapping: &AddressSpace,
        start: Pos,
        end: Pos,
        f: impl FnOnce(&[&Folio]) -> R,
    ) -> Option<R> {
        let all = |known: &mut Known| {
            let mut page = start.page();
            let mut count = 0;
            loop {
                let folio = (count < FOLIOS).then(|| known.find(count, mapping, page))??;
                count += 1;
                page = folio.next_index();
                if folio.end() >= end {
                    break;
                }
            }
            let first = known.folios[0].as_ref()?;
            let mut folios = [&*first.0; FOLIOS];
            for (folio, known) in folios.iter_mut().zip(&known.folios[..count]) {
                *folio = &known.as_ref()?.0;
            }
            Some(f(&folios[..count]))
        };
        self.known(all).flatten()
    }

    /// Calls `f` with what this thread knows of the opener, unless it is doing so already.
    #[inline]
    fn known<R>(&self, f: impl FnOnce(&mut Known) -> R) -> Option<R> {
        let look = |all: &RefCell<[Known; OPENERS]>| {
            let mut all = all.try_borrow_mut().ok()?;
            let known = &mut all[crate::index(self.number % OPENERS as u64)];
            if known.opener != self.number {
                *known = Known {
                    opener: self.number,
                    ..Known::NOTHING
                };
            }
            Some(f(known))
        };
        KNOWN.try_with(look).ok().flatten()
    }
}

#[cfg(all(test, not(extant_shuttle)))]
mod tests {
    use std::sync::Weak;

    use extant_units::BlockSize;

    use super::*;
    use crate::{AddressSpaceParams, Config, PageCache, Writeback, WritebackReason};

    struct Nobody;

    impl Writeback for Nobody {
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
        let mapping = AddressSpace::new(&cache, Weak::<Nobody>::new(), params);
        (cache, mapping)
    }

    fn make(mapping: &AddressSpace, page: u64) -> Arc<Folio> {
        mapping.get_or_create(Pos::new(page << 12), 4096)
    }

    #[test]
    fn each_thread_remembers_for_itself() {
        let (_cache, mapping) = mapping();
        let page = PageIdx::new(3);
        let folio = make(&mapping, 3);
        let remembered = || folio.remembered.load(Ordering::Relaxed);
        let recent = RecentFolios::default();
        let find = || recent.with_folio(&mapping, page, |found| std::ptr::eq(found, &*folio));
        assert_eq!(find(), Some(true));
        assert_eq!(remembered(), 1);
        let both = recent.with_folio(&mapping, page, |_| {
            let other = std::thread::scope(|scope| {
                let other = scope.spawn(|| (find(), remembered()));
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
        assert_eq!(remembered(), 1, "a thread that ended knows nothing");
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
        let known = |folio: &Arc<Folio>| folio.remembered.load(Ordering::Relaxed);
        assert!(folios.iter().map(known).sum::<usize>() <= FOLIOS);
        assert!(folios.iter().all(|folio| known(folio) <= 1));
    }

    #[test]
    fn memories_of_a_mapping_that_is_gone_hold_no_memory() {
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
    fn a_thread_remembers_only_so_many_openers() {
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
        // Others may have taken numbers in between.
        let remembered = folio.remembered.load(Ordering::Relaxed);
        assert!((1..=OPENERS).contains(&remembered));
    }
}
