//! The atomics and the mutex of the crate: the real ones, or, built with `--cfg extant_shuttle`,
//! ones whose every step a model checker schedules.

#[cfg(not(extant_shuttle))]
pub(crate) use real::*;

#[cfg(not(extant_shuttle))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU64, fence};

    use parking_lot::Mutex;
    use zerocopy::FromZeros;

    /// Words of a line.
    pub(crate) const WORDS: usize = 8;
    /// Bytes of a cache line.
    const LINE: usize = 64;

    /// Cache lines, in memory that the host backs when it is written.
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
            let words = <[AtomicU64]>::new_box_zeroed_with_elems(with_start.unwrap_or(0));
            let words = words.unwrap_or_default();
            let first = words.as_ptr().align_offset(LINE).min(words.len());
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

    /// A mutex without data, on a cache line of its own.
    #[derive(Default)]
    #[repr(align(64))]
    pub(crate) struct WriterLock(Mutex<()>);

    impl WriterLock {
        /// Runs `change` with the mutex held.
        #[inline]
        pub(crate) fn with<R>(&self, change: impl FnOnce() -> R) -> R {
            let _held = self.0.lock();
            change()
        }
    }
}

#[cfg(extant_shuttle)]
pub(crate) use modelled::*;

#[cfg(extant_shuttle)]
mod modelled {
    pub(crate) use shuttle::sync::atomic::{AtomicU64, fence};

    use std::sync::PoisonError;

    use shuttle::sync::Mutex;

    /// As the real one.
    pub(crate) const WORDS: usize = 8;

    /// As the real one.
    pub(crate) struct Lines(Box<[[AtomicU64; WORDS]]>);

    impl Lines {
        pub(crate) fn zeroed(count: usize) -> Self {
            Self((0..count).map(|_| Default::default()).collect())
        }

        pub(crate) fn len(&self) -> usize {
            self.0.len()
        }

        pub(crate) fn line(&self, at: usize) -> &[AtomicU64; WORDS] {
            &self.0[at]
        }
    }

    /// As the real one. Poison is passed over: the model has failed then.
    #[derive(Default)]
    pub(crate) struct WriterLock(Mutex<()>);

    impl WriterLock {
        pub(crate) fn with<R>(&self, change: impl FnOnce() -> R) -> R {
            let _held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            change()
        }
    }
}
