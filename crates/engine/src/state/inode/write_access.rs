//! Openers that may write a file, and their exclusion.
//!
//! An opener that writes counts itself for as long as its file is open. A file whose content is
//! about to be fixed has none, and gets none meanwhile.

use extant_sync::atomic::{AtomicI64, Ordering};

/// The number of openers that write, or [`DENIED`].
#[derive(Default)]
pub(crate) struct WriterCount(AtomicI64);

/// The value while no opener may write.
const DENIED: i64 = -1;

impl WriterCount {
    /// Counts one more opener. Returns false, and counts none, while they are excluded.
    pub(crate) fn admit(&self) -> bool {
        let more = |count: i64| (count != DENIED).then(|| count + 1);
        let order = Ordering::AcqRel;
        self.0.fetch_update(order, Ordering::Acquire, more).is_ok()
    }

    /// Ends what [`WriterCount::admit`] began.
    pub(crate) fn leave(&self) {
        let before = self.0.fetch_sub(1, Ordering::AcqRel);
        debug_assert!(before > 0, "{before} openers");
    }

    /// Excludes openers that write until the result is dropped; `None` if there is one, or they are
    /// excluded already.
    pub(crate) fn deny(&self) -> Option<WriteDenied<'_>> {
        let taken = (self.0).compare_exchange(0, DENIED, Ordering::AcqRel, Ordering::Acquire);
        taken.ok().map(|_| WriteDenied(self))
    }

    /// Returns whether openers that write are excluded now.
    pub(crate) fn is_denied(&self) -> bool {
        self.0.load(Ordering::Acquire) == DENIED
    }
}

/// The exclusion of openers that write.
#[must_use]
pub(crate) struct WriteDenied<'a>(&'a WriterCount);

impl Drop for WriteDenied<'_> {
    fn drop(&mut self) {
        self.0.0.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writers_and_their_exclusion_are_never_together() {
        let access = WriterCount::default();
        assert!(access.admit() && access.admit());
        assert!(access.deny().is_none());
        access.leave();
        assert!(access.deny().is_none());
        access.leave();
        let denied = access.deny();
        assert!(denied.is_some() && access.deny().is_none());
        assert!(!access.admit() && access.is_denied());
        drop(denied);
        assert!(!access.is_denied() && access.admit());
    }
}
