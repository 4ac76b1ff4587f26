//! A lock that is held for some tens of nanoseconds.

use crate::{Mutex, MutexGuard};

/// Attempts at a lock that is held before a thread sleeps.
const ATTEMPTS: u32 = 64;
/// The most pauses between two of them.
const MAX_PAUSES: u32 = 32;

/// A mutex that is held for some tens of nanoseconds: a thread waits for it on the processor, as
/// sleeping and being woken would take a hundred times as long, and sleeps only if its holder does.
#[derive(Default)]
pub struct SpinMutex<T>(Mutex<T>);

impl<T> SpinMutex<T> {
    /// An unlocked mutex.
    pub fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if cfg!(extant_shuttle) {
            return self.0.lock();
        }
        self.0.try_lock().unwrap_or_else(|| self.wait())
    }

    #[cold]
    fn wait(&self) -> MutexGuard<'_, T> {
        let mut pauses = 1;
        for _ in 0..ATTEMPTS {
            (0..pauses).for_each(|_| std::hint::spin_loop());
            if let Some(guard) = self.0.try_lock() {
                return guard;
            }
            pauses = (pauses * 2).min(MAX_PAUSES);
        }
        self.0.lock()
    }
}
