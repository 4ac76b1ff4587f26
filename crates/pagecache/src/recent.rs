//! The folio that an opener used last: what spares small sequential and repeated accesses the index.
//!
//! # Concurrency
//! One thread at a time uses a memory; others that come meanwhile look into the index, so nobody ever
//! waits here. An opener that several threads use at once gets a memory for each of a few of them, and they do not meet again. What is remembered keeps a folio's record alive, not its memory: a folio gives that back when it
//! leaves its mapping.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use extant_units::PageIdx;
use parking_lot::Mutex;

use crate::Mapping;
use crate::folio::Folio;
use crate::stats::own_cell;

/// Memories of an opener that several threads use.
const SLOTS: usize = 8;

/// What one opener of a file remembers of the mapping: always the same one.
#[derive(Default)]
pub struct Recent {
    only: Slot,
    /// Instead of the only one, once two threads have met there.
    several: OnceLock<Box<[Slot; SLOTS]>>,
}

/// One memory, a cache line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<Remembered>>);

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

impl Recent {
    /// Calls `f` with the folio of `mapping` that covers `page`, if there is one. The folio may have left the mapping by the
    /// time it is locked.
    #[inline]
    pub fn with<R>(
        &self,
        mapping: &Mapping,
        page: PageIdx,
        f: impl FnOnce(&Folio) -> R,
    ) -> Option<R> {
        let slot = match self.several.get() {
            None => &self.only,
            Some(several) => &several[own_cell() % SLOTS],
        };
        let Some(mut recent) = slot.0.try_lock() else {
            self.several.get_or_init(Box::default);
            return mapping.get(page).map(|folio| f(&folio));
        };
        if !recent.as_ref().is_some_and(|known| known.0.serves(page)) {
            *recent = mapping.get(page).map(Remembered::new);
        }
        recent.as_ref().map(|known| f(&known.0))
    }
}

#[cfg(all(test, not(extant_shuttle)))]
mod tests {
    use std::sync::Weak;

    use extant_units::{BlockSize, Pos};

    use super::*;
    use crate::{Config, MappingParams, PageCache, Writeback, WritebackReason};

    struct Nobody;

    impl Writeback for Nobody {
        fn write_back(self: Arc<Self>, _: WritebackReason, _: u64) {}
    }

    #[test]
    fn threads_that_meet_get_a_memory_each() {
        let cache = PageCache::new(Config {
            flushers: 0,
            ..Config::with_budget(8 << 20)
        });
        let params = MappingParams {
            block_size: BlockSize::KIB4,
            max_order: 0,
        };
        let mapping = Mapping::new(&cache, Weak::<Nobody>::new(), params);
        let page = PageIdx::new(3);
        let folio = mapping.get_or_create(Pos::new(3 << 12), 4096);
        let recent = Recent::default();
        let find = || recent.with(&mapping, page, |found| std::ptr::eq(found, &*folio));
        assert_eq!(find(), Some(true));
        assert!(recent.several.get().is_none(), "one is enough for one");
        let both = recent.with(&mapping, page, |_| {
            std::thread::scope(|scope| scope.spawn(find).join().unwrap())
        });
        assert_eq!(
            both,
            Some(Some(true)),
            "whoever comes second finds it as well"
        );
        assert!(recent.several.get().is_some());
        assert_eq!(find(), Some(true));
        assert_eq!(folio.remembered.load(Ordering::Relaxed), 2);
        drop(recent);
        assert_eq!(folio.remembered.load(Ordering::Relaxed), 0);
    }
}
