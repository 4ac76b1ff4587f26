//! The EOF lock's word: the first byte of a range that reaches to infinity.

use extant_sync::atomic::{AtomicU64, Ordering};

use crate::sleepers::Sleepers;
use crate::step::{Omitted, Step};

/// The word while no thread holds it.
const FREE: u64 = u64::MAX;

/// See the module. On a cache line of its own.
#[repr(align(64))]
pub(crate) struct EofWord {
    /// The first byte that is locked.
    from: AtomicU64,
    sleepers: Sleepers,
}

impl Default for EofWord {
    fn default() -> Self {
        Self {
            from: AtomicU64::new(FREE),
            sleepers: Sleepers::default(),
        }
    }
}

/// The word, published until this is dropped.
pub(crate) struct EofWordGuard<'a> {
    word: &'a EofWord,
    omitted: Omitted,
}

impl Drop for EofWordGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        self.word.withdraw(self.omitted);
    }
}

impl std::fmt::Debug for EofWordGuard<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the EOF word")
    }
}

impl EofWord {
    /// Step 1: writes the word if it is free. The lock counts once its holder has looked.
    #[inline]
    pub(crate) fn publish(&self, from: u64, omitted: Omitted) -> Option<EofWordGuard<'_>> {
        let is_mine = self.write(from, omitted);
        is_mine.then(|| EofWordGuard {
            word: self,
            omitted,
        })
    }

    #[inline]
    fn write(&self, from: u64, omitted: Omitted) -> bool {
        assert!(from != FREE, "a file has no byte at {from}");
        if omitted.is(Step::EofIsExchanged) {
            let free = self.from.load(Ordering::SeqCst) == FREE;
            if free {
                self.from.store(from, Ordering::SeqCst);
            }
            return free;
        }
        let (free, failed) = (Ordering::SeqCst, Ordering::Relaxed);
        self.from.compare_exchange(FREE, from, free, failed).is_ok()
    }

    /// Step 6: withdraws the word and wakes its waiters.
    #[inline]
    fn withdraw(&self, omitted: Omitted) {
        let had = self.from.swap(FREE, Ordering::SeqCst);
        let is_mine = had != FREE || omitted.is(Step::EofIsExchanged);
        debug_assert!(is_mine, "the EOF word was published");
        self.sleepers.wake(omitted);
    }

    /// Step 3: whether a byte up to `last` is locked.
    #[inline]
    pub(crate) fn reaches(&self, last: u64) -> bool {
        let from = self.from.load(Ordering::Acquire);
        from <= last && from != FREE
    }

    /// Waits until no byte up to `last` is locked; see [`Sleepers::wait_while`].
    pub(crate) fn wait(&self, last: u64, omitted: Omitted) -> bool {
        self.sleepers.wait_while(omitted, || self.reaches(last))
    }

    /// Returns whether a thread sleeps for the word.
    pub(crate) fn has_sleepers(&self) -> bool {
        self.sleepers.are_there()
    }
}

#[cfg(all(test, not(extant_shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn the_eof_word_reaches_to_infinity() {
        let (word, no) = (EofWord::default(), Omitted::default());
        assert!(!word.reaches(0) && !word.reaches(u64::MAX));
        let held = word.publish(4096, no).unwrap();
        for other in [0, 4096, 8192] {
            assert!(word.publish(other, no).is_none(), "one at a time");
        }
        assert!(!word.reaches(4095) && word.reaches(4096) && word.reaches(u64::MAX));
        drop(held);
        assert!(!word.reaches(u64::MAX));
        let _all = word.publish(0, no).unwrap();
        assert!(word.reaches(0));
    }

    #[test]
    fn a_waiter_sleeps_for_its_bytes_alone_and_is_woken() {
        let (word, no) = (EofWord::default(), Omitted::default());
        let held = word.publish(10, no).unwrap();
        assert!(!word.wait(9, no), "nothing to wait for");
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| word.wait(10, no));
            while !word.has_sleepers() {
                std::thread::yield_now();
            }
            assert!(!waiter.is_finished());
            drop(held);
            assert!(waiter.join().unwrap());
        });
        assert!(!word.has_sleepers());
    }
}
