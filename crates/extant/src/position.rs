//! The position of an open file, which clones of its handle share.
//!
//! # Concurrency
//! Calls through a shared reference lock the position for as long as they take, as that of a
//! descriptor in Linux. A caller that has the only handle by `&mut` needs no lock. A handle keeps
//! the position itself until its first clone moves it to where both find it. The mover holds the
//! lock of the first place, and a caller that gets that lock looks again for the second.

use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, MutexGuard};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Position {
    own: Mutex<u64>,
    /// Takes the place of `own` from the first clone on.
    shared: OnceLock<Arc<Mutex<u64>>>,
}

impl Position {
    /// The same position for another handle.
    pub(crate) fn share(&self) -> Position {
        let own = self.own.lock();
        let shared = self.shared.get_or_init(|| Arc::new(Mutex::new(*own)));
        Position {
            own: Mutex::default(),
            shared: OnceLock::from(Arc::clone(shared)),
        }
    }

    /// The position, locked.
    pub(crate) fn lock(&self) -> MutexGuard<'_, u64> {
        if let Some(shared) = self.shared.get() {
            return shared.lock();
        }
        let own = self.own.lock();
        match self.shared.get() {
            None => own,
            Some(shared) => {
                drop(own);
                shared.lock()
            }
        }
    }

    /// The position of a handle that no other thread uses, unless it has clones.
    #[inline]
    pub(crate) fn alone(&mut self) -> Option<&mut u64> {
        match self.shared.get() {
            Some(_) => None,
            None => Some(self.own.get_mut()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_position_that_the_first_handle_had() {
        let mut first = Position::default();
        *first.alone().unwrap() = 7;
        let mut second = first.share();
        assert!(first.alone().is_none() && second.alone().is_none());
        assert_eq!(*second.lock(), 7);
        *second.lock() = 9;
        let third = second.share();
        assert_eq!(*first.lock(), 9);
        assert_eq!(*third.lock(), 9);
    }

    #[test]
    fn a_caller_that_waits_while_the_position_moves_gets_the_shared_one() {
        let position = Position::default();
        std::thread::scope(|scope| {
            let adders: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        for _ in 0..20_000 {
                            *position.lock() += 1;
                        }
                    })
                })
                .collect();
            while *position.lock() == 0 {
                std::thread::yield_now();
            }
            let other = position.share();
            for adder in adders {
                adder.join().unwrap();
            }
            assert_eq!(*other.lock(), 80_000);
        });
    }
}
