//! Cache lines of words, in memory that the host backs when it is written.

use extant_sync::atomic::AtomicU64;
#[cfg(not(extant_shuttle))]
use zerocopy::FromZeros;

/// Words of a line.
pub(crate) const WORDS: usize = 8;
/// Bytes of a cache line.
const LINE: usize = 64;

/// See the module.
pub(crate) struct Lines {
    words: Box<[AtomicU64]>,
    /// The word that the first line begins with.
    first: usize,
}

impl Lines {
    /// Lines of zeros; none if the host has no room for so many.
    ///
    /// They are taken as words: for zeros of a larger alignment the allocator takes memory and
    /// clears it, which backs all of it at once.
    pub(crate) fn zeroed(count: usize) -> Self {
        let with_start = (count > 0).then(|| count * WORDS + WORDS - 1);
        let words = zeroed_words(with_start.unwrap_or(0));
        // The words of a model are larger, and lie anywhere.
        let first = if cfg!(extant_shuttle) {
            0
        } else {
            words.as_ptr().align_offset(LINE).min(words.len())
        };
        Self { words, first }
    }

    #[inline]
    fn all(&self) -> &[[AtomicU64; WORDS]] {
        self.words[self.first..].as_chunks().0
    }

    pub(crate) fn len(&self) -> usize {
        self.all().len()
    }

    #[inline]
    pub(crate) fn line(&self, at: usize) -> &[AtomicU64; WORDS] {
        &self.all()[at]
    }
}

#[cfg(not(extant_shuttle))]
fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    <[AtomicU64]>::new_box_zeroed_with_elems(count).unwrap_or_default()
}

#[cfg(extant_shuttle)]
fn zeroed_words(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::default()).collect()
}
