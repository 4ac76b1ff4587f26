//! Spreading a pass over threads.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crate::error::{Error, Result};
use crate::options::CheckOptions;

/// Progress is reported about so many times.
const CALLS: u64 = 500;

/// Runs the pieces of a pass on several threads and reports progress.
pub(crate) struct Work<'a> {
    options: &'a CheckOptions<'a>,
    threads: usize,
    done: AtomicU64,
    total: AtomicU64,
}

impl<'a> Work<'a> {
    /// Work on `groups` groups: each is a step in the pass over tables and one in that over
    /// bitmaps.
    pub(crate) fn new(options: &'a CheckOptions<'a>, threads: usize, groups: u32) -> Self {
        Self {
            options,
            threads,
            done: AtomicU64::new(0),
            total: AtomicU64::new(u64::from(groups) * 2),
        }
    }

    /// Adds `more` steps to the total.
    pub(crate) fn expect(&self, more: u64) {
        self.total.fetch_add(more, Ordering::Relaxed);
    }

    fn step(&self) {
        let Some(progress) = self.options.progress else {
            return;
        };
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let total = self.total.load(Ordering::Relaxed);
        // Some hundred calls in all, however many steps there are.
        if done.is_multiple_of(total / CALLS + 1) || done == total {
            progress(done, total);
        }
    }

    /// Returns whether one thread does everything, in order.
    pub(crate) fn is_sequential(&self) -> bool {
        self.threads <= 1
    }

    /// Runs `piece` for each of `items`, on several threads, and returns the results in the order
    /// of the items. Each thread has a buffer, which keeps its memory from piece to piece.
    ///
    /// # Errors
    /// The first error of a piece, in the order of the items; pieces behind it may have run.
    pub(crate) fn spread<I: Sync, T: Send>(
        &self,
        items: &[I],
        piece: impl Fn(&I, &mut Vec<u8>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
        let worker = || {
            let (mut mine, mut buffer) = (Vec::new(), Vec::new());
            while !failed.load(Ordering::Relaxed) {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(at) else { break };
                let result = piece(item, &mut buffer);
                self.step();
                if result.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                mine.push((at, result));
            }
            mine
        };
        let mut all = std::thread::scope(|scope| {
            let threads = self.threads.clamp(1, items.len().max(1));
            let handles: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            // The results of a thread that panicked are lost: its error comes before all others.
            let joined = handles.into_iter().map(|handle| {
                let panicked = |_| vec![(0, Err(Error::Panicked))];
                handle.join().unwrap_or_else(panicked)
            });
            joined.flatten().collect::<Vec<_>>()
        });
        all.sort_by_key(|(at, _)| *at);
        all.into_iter().map(|(_, result)| result).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_the_items() {
        let options = CheckOptions::default();
        let work = Work::new(&options, 4, 0);
        let items: Vec<u32> = (0..1000).collect();
        let doubled = work.spread(&items, |item, _| Ok(item * 2)).unwrap();
        assert!(doubled.iter().zip(&items).all(|(two, one)| *two == one * 2));
        assert_eq!(doubled.len(), items.len());
        assert_eq!(work.spread(&[], |_: &u32, _| Ok(())).unwrap(), []);
    }

    #[test]
    fn an_error_ends_the_pass() {
        let options = CheckOptions::default();
        let work = Work::new(&options, 1, 0);
        let ran = AtomicU64::new(0);
        let result = work.spread(&[1, 2, 3], |item, _| {
            ran.fetch_add(1, Ordering::Relaxed);
            match item {
                2 => Err(Error::TooShort),
                _ => Ok(()),
            }
        });
        assert!(matches!(result, Err(Error::TooShort)));
        assert_eq!(ran.into_inner(), 2);
    }

    #[test]
    fn a_panic_is_an_error() {
        let options = CheckOptions::default();
        let work = Work::new(&options, 2, 0);
        let result = work.spread(&[1, 2, 3], |item, _| match item {
            2 => panic!("planned"),
            _ => Ok(()),
        });
        assert!(matches!(result, Err(Error::Panicked)));
    }
}
