//! Pins: bytes of folios that stay as they are for as long as somebody looks at them.
//!
//! A pin shares the folio's memory. Whoever changes the folio meanwhile (a write, a fill, a truncation) does so in a copy, made
//! at the first change; the pin keeps the old one. So a pin is a snapshot, holds no lock, and nobody waits for it.
//!
//! # Invariants
//! * Memory that is shared with a pin is never written.
//! * Pins share at most a quarter of the budget; what is pinned beyond that, or while somebody holds the folio, is
//!   copied instead. So pins cannot use up the cache, and the copies that changes make beside them, which may lie beyond the
//!   budget, are bounded as well.
//! * A pinned folio is not reclaimed: that would free nothing.

use crate::sync::atomic::Ordering;
use std::ops::{Deref, Range};
use std::sync::Arc;

use crate::AddressSpace;
use crate::cache::Shared;
use crate::folio::Folio;
use crate::memory::FolioMemory;

/// A folio's memory: its own, or shared with pins.
pub(crate) struct Memory {
    /// `None` if it is shared, or released.
    own: Option<FolioMemory>,
    shared: Option<Arc<FolioMemory>>,
}

impl Memory {
    pub(crate) fn new(memory: FolioMemory) -> Self {
        Self {
            own: Some(memory),
            shared: None,
        }
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match (&self.own, &self.shared) {
            (Some(memory), _) => memory,
            (None, Some(memory)) => memory,
            (None, None) => &[],
        }
    }

    /// The bytes to be changed; `copy` makes memory of the same size if the present one is pinned.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, copy: impl FnOnce(u32) -> Option<FolioMemory>) -> &mut [u8] {
        if self.own.is_none() {
            self.part(copy);
        }
        match &mut self.own {
            Some(memory) => memory,
            None => &mut [],
        }
    }

    #[cold]
    fn part(&mut self, copy: impl FnOnce(u32) -> Option<FolioMemory>) {
        let Some(shared) = self.shared.take() else {
            return;
        };
        self.own = Some(Arc::try_unwrap(shared).unwrap_or_else(|pinned| {
            let mut own = copy(pinned.order()).unwrap_or_else(|| pinned.beyond_budget());
            own.copy_from_slice(&pinned);
            own
        }));
    }

    /// Gives the memory up; pins keep theirs.
    pub(crate) fn release(&mut self) {
        self.own = None;
        self.shared = None;
    }

    /// The memory if it is shared already.
    fn shared(&self) -> Option<Arc<FolioMemory>> {
        self.shared.clone()
    }

    /// Shares the memory.
    fn share(&mut self) -> Option<Arc<FolioMemory>> {
        if let Some(own) = self.own.take() {
            self.shared = Some(Arc::new(own));
        }
        self.shared()
    }
}

/// Bytes of a folio as they were when they were pinned.
pub struct Pinned {
    held: Held,
    range: Range<usize>,
}

enum Held {
    Memory {
        bytes: Arc<FolioMemory>,
        folio: Arc<Folio>,
        cache: Arc<Shared>,
    },
    Copy(Box<[u8]>),
}

impl Pinned {
    /// Whether the bytes are the cache's own, rather than a copy.
    pub fn is_shared(&self) -> bool {
        matches!(self.held, Held::Memory { .. })
    }
}

impl Deref for Pinned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &self.held {
            Held::Memory { bytes, .. } => bytes,
            Held::Copy(bytes) => bytes,
        };
        &all[self.range.clone()]
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Held::Memory { folio, cache, .. } = &self.held {
            cache.unpin(folio.len() as u64);
        }
    }
}

impl AddressSpace {
    /// Pins the uptodate bytes of `folio` from `from` on, up to `to`. `None` if the byte at `from` is not uptodate, or the folio
    /// no longer part of the mapping. Waits for nobody who writes the folio back.
    pub fn pin(&self, folio: &Arc<Folio>, from: usize, to: usize) -> Option<Pinned> {
        let allowed = self.shared().pin(folio.len() as u64);
        let found = self.find_pin(folio, from..to, allowed);
        if allowed && !found.as_ref().is_some_and(Pinned::is_shared) {
            self.shared().unpin(folio.len() as u64);
        }
        found
    }

    fn find_pin(&self, folio: &Arc<Folio>, want: Range<usize>, allowed: bool) -> Option<Pinned> {
        let held = |bytes| Held::Memory {
            bytes,
            folio: folio.clone(),
            cache: self.shared().clone(),
        };
        if allowed
            && let Some(mut guard) = folio.try_write(self)
            && guard.is_attached()
        {
            let range = uptodate(want, |at, wanted| guard.next_uptodate(at, wanted))?;
            folio.mark_referenced();
            return Some(Pinned {
                held: held(guard.memory_mut().share()?),
                range,
            });
        }
        let guard = self.read(folio)?;
        let range = uptodate(want, |at, wanted| guard.next_uptodate(at, wanted))?;
        folio.mark_referenced();
        if allowed && let Some(bytes) = guard.memory().shared() {
            let held = held(bytes);
            return Some(Pinned { held, range });
        }
        let bytes: Box<[u8]> = guard.bytes()[range].into();
        Some(Pinned {
            range: 0..bytes.len(),
            held: Held::Copy(bytes),
        })
    }
}

/// The uptodate part of `want`, from its beginning on.
fn uptodate(
    want: Range<usize>,
    next: impl Fn(usize, bool) -> Option<usize>,
) -> Option<Range<usize>> {
    let end = next(want.start, false).map_or(want.end, |missing| missing.min(want.end));
    (end > want.start).then_some(want.start..end)
}

impl Shared {
    /// Claims `bytes` for a pin; false if there are too many.
    fn pin(&self, bytes: u64) -> bool {
        let limit = self.budget_bytes() / 4;
        let claim = |pinned: u64| Some(pinned + bytes).filter(|&sum| sum <= limit);
        self.pinned_bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim)
            .is_ok()
    }

    fn unpin(&self, bytes: u64) {
        self.pinned_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.made_progress();
    }
}
