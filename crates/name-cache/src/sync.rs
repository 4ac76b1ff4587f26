//! The atomics and the mutex of the crate: the real ones, or, built with `--cfg extant_shuttle`,
//! ones whose every step a model checker schedules.

#[cfg(not(extant_shuttle))]
pub(crate) use real::*;

#[cfg(not(extant_shuttle))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU64, fence};

    use parking_lot::Mutex;
    use zerocopy::{FromZeros, KnownLayout};

    /// Words of a line.
    pub(crate) const WORDS: usize = 8;

    /// A cache line of 64 bytes.
    #[derive(Default, FromZeros, KnownLayout)]
    #[repr(C, align(64))]
    pub(crate) struct Line(pub(crate) [AtomicU64; WORDS]);

    /// Lines of zeros, which the host backs with memory when they are written. None if the host
    /// has no room for so many.
    pub(crate) fn zeroed_lines(count: usize) -> Box<[Line]> {
        <[Line]>::new_box_zeroed_with_elems(count).unwrap_or_default()
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
    #[derive(Default)]
    pub(crate) struct Line(pub(crate) [AtomicU64; WORDS]);

    /// As the real one.
    pub(crate) fn zeroed_lines(count: usize) -> Box<[Line]> {
        (0..count).map(|_| Line::default()).collect()
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
