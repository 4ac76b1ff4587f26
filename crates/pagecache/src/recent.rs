//! The folio that an opener used last: what spares small sequential and repeated accesses the index.
//!
//! # Concurrency
//! One thread at a time uses the memory of an opener; others that come meanwhile look into the index, so nobody ever
//! waits here. What is remembered keeps a folio's record alive, not its memory: a folio gives that back when it
//! leaves its mapping.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use extant_units::PageIdx;
use parking_lot::Mutex;

use crate::Mapping;
use crate::folio::Folio;

/// What one opener of a file remembers of the mapping: always the same one.
#[derive(Default)]
pub struct Recent(Mutex<Option<Remembered>>);

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
        let Some(mut recent) = self.0.try_lock() else {
            return mapping.get(page).map(|folio| f(&folio));
        };
        if !recent.as_ref().is_some_and(|known| known.0.serves(page)) {
            *recent = mapping.get(page).map(Remembered::new);
        }
        recent.as_ref().map(|known| f(&known.0))
    }
}
