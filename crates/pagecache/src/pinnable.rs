//! A folio's memory, which pins can share.
//!
//! # Invariants
//! * Memory that is shared with a pin is never written: the first change after a pin goes to a
//!   copy, which becomes the folio's own memory. The pin keeps the old bytes.
//! * Memory is released once, when the folio leaves its address space. Pins keep theirs.

use std::sync::Arc;

use crate::arena::FolioMemory;

/// A folio's memory.
pub(crate) enum PinnableMemory {
    /// The folio alone has it.
    Own(FolioMemory),
    /// Pins share it, or did.
    Shared(Arc<FolioMemory>),
    /// The folio has left its address space.
    Released,
}

impl PinnableMemory {
    /// The bytes; none after the release.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(memory) => memory,
            Self::Shared(memory) => memory,
            Self::Released => &[],
        }
    }

    /// The bytes, to be changed. `allocate` makes memory of the given order for a copy if a pin
    /// shares the present memory; without any the copy lies beyond the budget.
    #[inline]
    pub(crate) fn bytes_mut(
        &mut self,
        allocate: impl FnOnce(u32) -> Option<FolioMemory>,
    ) -> &mut [u8] {
        if let Self::Shared(_) = self {
            self.unshare(allocate);
        }
        match self {
            Self::Own(memory) => memory,
            Self::Shared(_) | Self::Released => {
                debug_assert!(
                    false,
                    "only attached folios are changed, in their own memory"
                );
                &mut []
            }
        }
    }

    #[cold]
    fn unshare(&mut self, allocate: impl FnOnce(u32) -> Option<FolioMemory>) {
        let Self::Shared(shared) = std::mem::replace(self, Self::Released) else {
            debug_assert!(false, "called for shared memory");
            return;
        };
        *self = Self::Own(Arc::try_unwrap(shared).unwrap_or_else(|pinned| {
            let mut own = allocate(pinned.order()).unwrap_or_else(|| pinned.beyond_budget());
            own.copy_from_slice(&pinned);
            own
        }));
    }

    /// Gives the memory up; pins keep theirs.
    pub(crate) fn release(&mut self) {
        *self = Self::Released;
    }

    /// The memory, if it is shared already.
    pub(crate) fn shared(&self) -> Option<Arc<FolioMemory>> {
        match self {
            Self::Shared(memory) => Some(memory.clone()),
            Self::Own(_) | Self::Released => None,
        }
    }

    /// Shares the memory; `None` after the release.
    pub(crate) fn share(&mut self) -> Option<Arc<FolioMemory>> {
        *self = match std::mem::replace(self, Self::Released) {
            Self::Own(memory) => Self::Shared(Arc::new(memory)),
            other => other,
        };
        self.shared()
    }
}
