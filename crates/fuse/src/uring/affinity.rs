//! The processors that a worker runs on.
//!
//! The caller of a small request and its worker take turns: on one processor neither waits until
//! another one wakes up, which takes longer than the request. So a worker stays on the processor of
//! its queue. What carries much data takes longer than a wake-up, and its caller may have other
//! work meanwhile: a worker that gets such requests runs wherever there is time.
//!
//! # Concurrency
//! Each is its worker's own, used on that thread.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tracing::debug;

/// From so many bytes on a request carries much data.
const MUCH_DATA: usize = 64 << 10;
/// Consecutive requests that favour the other placement and move the worker.
const STREAK: u32 = 4;

/// See the module's header.
pub(super) struct Affinity {
    /// The processor of the queue.
    home: Option<usize>,
    /// Where it stays, and all that the thread may run on; `None` if it never moves.
    sets: Option<(CpuSet, CpuSet)>,
    roams: bool,
    /// Consecutive requests that favour the other placement.
    streak: u32,
}

impl Affinity {
    /// For a worker of the queue of processor `home`.
    pub(super) fn of(home: Option<usize>) -> Self {
        Self {
            home: home.filter(|&home| home < CpuSet::MAX_CPU),
            sets: None,
            roams: false,
            streak: 0,
        }
    }

    /// From now on the calling thread, which is the worker's, stays there.
    pub(super) fn begin(&mut self) {
        let home = self.home.map(|home| {
            let mut set = CpuSet::new();
            set.set(home);
            set
        });
        self.sets = home.zip(sched_getaffinity(None).ok());
        self.apply();
    }

    /// The worker has served a request that carried so many bytes.
    pub(super) fn served(&mut self, bytes: usize) {
        if self.moves(bytes) {
            self.apply();
        }
    }

    fn moves(&mut self, bytes: usize) -> bool {
        let much = bytes >= MUCH_DATA;
        self.streak = if much == self.roams {
            0
        } else {
            self.streak + 1
        };
        if self.streak < STREAK {
            return false;
        }
        (self.roams, self.streak) = (much, 0);
        true
    }

    fn apply(&self) {
        let Some((home, everywhere)) = &self.sets else {
            return;
        };
        let set = if self.roams { everywhere } else { home };
        if let Err(error) = sched_setaffinity(None, set) {
            debug!("a worker stays where it is: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_moves_after_some_requests_of_the_other_kind() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let home = (0..CpuSet::MAX_CPU).find(|&p| before.is_set(p));
            let mut affinity = Affinity::of(home);
            affinity.begin();
            let count = || sched_getaffinity(None).unwrap().count();
            assert_eq!(count(), 1);
            for bytes in [MUCH_DATA, MUCH_DATA, MUCH_DATA, 100, MUCH_DATA] {
                affinity.served(bytes);
            }
            assert_eq!(count(), 1, "not as many in a row");
            for _ in 0..STREAK {
                affinity.served(MUCH_DATA);
            }
            assert_eq!(count(), before.count());
            for _ in 0..STREAK {
                affinity.served(MUCH_DATA - 1);
            }
            assert_eq!(count(), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_worker_of_processors_that_are_off_never_moves() {
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).unwrap();
            let mut affinity = Affinity::of(None);
            affinity.begin();
            (0..2 * STREAK).for_each(|_| affinity.served(MUCH_DATA));
            assert!(sched_getaffinity(None).unwrap() == before);
        })
        .join()
        .unwrap();
    }
}
