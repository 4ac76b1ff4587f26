//! Pins: bytes of folios that stay as they are for as long as a reader looks at them.
//!
//! A pin shares the folio's memory. A thread that changes the folio meanwhile (a write, a fill, a
//! truncation) changes a copy, which is made at the first change; the pin keeps the old bytes. So a
//! pin is a snapshot that holds no lock, and no thread waits for it.
//!
//! # Invariants
//! * Memory that is shared with a pin is never written (`pinnable.rs`).
//! * Pins share at most a quarter of the budget. What is pinned beyond that, or while another
//!   thread holds the folio lock, is copied instead. So pins cannot use up the cache, and the
//!   copies that changes make beside them, which may lie beyond the budget, are bounded as well.
//! * A pinned folio is not reclaimed: that would free nothing.

use std::ops::{Deref, Range};
use std::sync::Arc;

use extant_units::PAGE_SIZE;

use crate::address_space::AddressSpace;
use crate::arena::FolioMemory;
use crate::cache_state::CacheState;
use crate::folio::Folio;
use crate::folio_guard::FolioGuard;

/// Bytes of a folio as they were when they were pinned.
pub struct Pinned {
    bytes: PinnedBytes,
    range: Range<usize>,
}

enum PinnedBytes {
    /// The folio's memory. The reference to the folio keeps reclaim away from it.
    Shared {
        memory: Arc<FolioMemory>,
        folio: Arc<Folio>,
        cache: Arc<CacheState>,
    },
    Copy(Box<[u8]>),
}

impl Pinned {
    /// Returns whether the bytes are the cache's own, rather than a copy.
    pub fn is_shared(&self) -> bool {
        matches!(self.bytes, PinnedBytes::Shared { .. })
    }
}

/// Bytes that are not the cache's.
impl From<Vec<u8>> for Pinned {
    fn from(bytes: Vec<u8>) -> Self {
        Self {
            range: 0..bytes.len(),
            bytes: PinnedBytes::Copy(bytes.into()),
        }
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.bytes {
            PinnedBytes::Shared { memory, .. } => memory,
            PinnedBytes::Copy(bytes) => bytes,
        };
        &all[self.range.clone()]
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let PinnedBytes::Shared { folio, cache, .. } = &self.bytes {
            cache.release_pin(folio.len() as u64);
        }
    }
}

impl AddressSpace {
    /// Pins the uptodate bytes of `folio` from `from` on, up to what `to` answers under the folio's
    /// lock and before the first page that is uptodate in part. `None` if that is the page of
    /// `from`, or `from` not before `to`, or the folio no longer part of the address space. Does
    /// not wait for writeback.
    pub fn pin(
        &self,
        folio: &Arc<Folio>,
        from: usize,
        to: impl FnOnce() -> usize,
    ) -> Option<Pinned> {
        let may_share = self.state().reserve_pin(folio.len() as u64);
        let found = self.find_pin(folio, from, to, may_share);
        if may_share && !found.as_ref().is_some_and(Pinned::is_shared) {
            self.state().release_pin(folio.len() as u64);
        }
        found
    }

    /// As [`AddressSpace::pin`]; shares memory only if `may_share`: the caller has reserved it.
    fn find_pin(
        &self,
        folio: &Arc<Folio>,
        from: usize,
        to: impl FnOnce() -> usize,
        may_share: bool,
    ) -> Option<Pinned> {
        let shared = |memory, range| Pinned {
            bytes: PinnedBytes::Shared {
                memory,
                folio: folio.clone(),
                cache: self.state().clone(),
            },
            range,
        };
        if may_share
            && let Some(mut guard) = FolioGuard::try_lock(folio, self)
            && guard.is_attached()
        {
            let range = uptodate(from..to(), |at, wanted| guard.next_uptodate(at, wanted))?;
            folio.mark_referenced();
            return Some(shared(guard.memory_mut().share()?, range));
        }
        let guard = self.read(folio)?;
        let range = uptodate(from..to(), |at, wanted| guard.next_uptodate(at, wanted))?;
        folio.mark_referenced();
        if may_share && let Some(memory) = guard.memory().shared() {
            return Some(shared(memory, range));
        }
        let bytes: Box<[u8]> = guard.bytes()[range].into();
        Some(Pinned {
            range: 0..bytes.len(),
            bytes: PinnedBytes::Copy(bytes),
        })
    }
}

/// The uptodate part of `want`, from its beginning on: a page of it is seen as a whole or not.
fn uptodate(
    want: Range<usize>,
    next: impl Fn(usize, bool) -> Option<usize>,
) -> Option<Range<usize>> {
    let missing = next(want.start, false).filter(|missing| *missing < want.end);
    let end = missing.map_or(want.end, |missing| missing & !(PAGE_SIZE - 1));
    (end > want.start).then_some(want.start..end)
}
