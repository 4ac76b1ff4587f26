//! Chunks in memory: the last ones that were read, and those that a thread fetches.
//!
//! # Concurrency
//! Of threads that want the same chunk one fetches it, without a lock. The others wait for that one
//! attempt and have its result, also if it fails: a store that does not answer costs each of them
//! one attempt, not one after the other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::error::Error;
use crate::hash::ObjectHash;

/// The content of a chunk, or why there is none.
pub(crate) type Fetched = Result<Arc<Vec<u8>>, Arc<Error>>;

/// Chunks by their hashes.
#[derive(Debug)]
pub(crate) struct ChunkCache {
    /// Chunks that stay.
    most: usize,
    slots: Mutex<Slots>,
}

#[derive(Default, Debug)]
struct Slots {
    by_hash: HashMap<ObjectHash, Slot>,
    /// Those that are [`Slot::Ready`].
    ready: usize,
    /// Counts reads, for the order of use.
    clock: u64,
    hits: u64,
}

#[derive(Debug)]
enum Slot {
    Fetching(Arc<Flight>),
    Ready { content: Arc<Vec<u8>>, used: u64 },
}

/// An attempt to fetch a chunk.
#[derive(Default, Debug)]
struct Flight {
    result: Mutex<Option<Fetched>>,
    ended: Condvar,
}

impl ChunkCache {
    /// A cache of so many chunks, at least four.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(4),
            slots: Mutex::default(),
        }
    }

    /// The chunks that stay.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Reads that took a chunk from here.
    pub(crate) fn hits(&self) -> u64 {
        self.slots.lock().hits
    }

    /// The chunk of this hash, which `fetch` fetches if it is not here.
    pub(crate) fn get(&self, hash: &ObjectHash, fetch: impl FnOnce() -> Fetched) -> Fetched {
        let mut slots = self.slots.lock();
        slots.clock += 1;
        let now = slots.clock;
        match slots.by_hash.get_mut(hash) {
            Some(Slot::Ready { content, used }) => {
                *used = now;
                let content = Arc::clone(content);
                slots.hits += 1;
                return Ok(content);
            }
            Some(Slot::Fetching(flight)) => {
                let flight = Arc::clone(flight);
                drop(slots);
                return flight.wait();
            }
            None => {}
        }
        let flight = Arc::new(Flight::default());
        let slot = Slot::Fetching(Arc::clone(&flight));
        slots.by_hash.insert(*hash, slot);
        drop(slots);
        let mut landing = Landing {
            cache: self,
            hash,
            flight: &flight,
            result: None,
        };
        let result = fetch();
        landing.result = Some(result.clone());
        result
    }

    /// Ends a flight: enters what it brought, in place of the chunk whose use is the longest ago
    /// if there are too many.
    fn end(&self, hash: &ObjectHash, result: &Fetched) {
        let mut slots = self.slots.lock();
        slots.by_hash.remove(hash);
        let Ok(content) = result else { return };
        let (content, used) = (Arc::clone(content), slots.clock);
        slots.by_hash.insert(*hash, Slot::Ready { content, used });
        slots.ready += 1;
        if slots.ready <= self.most {
            return;
        }
        let ready = slots.by_hash.iter().filter_map(|(hash, slot)| match slot {
            Slot::Ready { used, .. } => Some((*used, *hash)),
            Slot::Fetching(_) => None,
        });
        if let Some((_, oldest)) = ready.min() {
            slots.by_hash.remove(&oldest);
            slots.ready -= 1;
        }
    }
}

impl Flight {
    fn wait(&self) -> Fetched {
        let mut result = self.result.lock();
        loop {
            match &*result {
                Some(result) => return result.clone(),
                None => self.ended.wait(&mut result),
            }
        }
    }
}

/// The thread of a flight. However it ends, the waiters go on.
struct Landing<'a> {
    cache: &'a ChunkCache,
    hash: &'a ObjectHash,
    flight: &'a Flight,
    result: Option<Fetched>,
}

impl Drop for Landing<'_> {
    fn drop(&mut self) {
        let panicked = || Err(Arc::new(Error::damaged(self.hash, "a read of it panicked")));
        let result = self.result.take().unwrap_or_else(panicked);
        self.cache.end(self.hash, &result);
        *self.flight.result.lock() = Some(result);
        self.flight.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Barrier;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    use super::*;

    fn hash(number: u8) -> ObjectHash {
        ObjectHash::of(&[number])
    }

    /// `fetch` runs while three others wait for it. Their results.
    fn with_waiters(cache: &ChunkCache, fetch: impl Fn() -> Fetched + Sync) -> (u64, Vec<bool>) {
        let (begun, fetches) = (Barrier::new(4), AtomicU64::new(0));
        let read = || {
            begun.wait();
            let read = || {
                cache.get(&hash(1), || {
                    fetches.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(200));
                    fetch()
                })
            };
            catch_unwind(AssertUnwindSafe(read)).is_ok_and(|read| read.is_ok())
        };
        let results = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(read)).collect();
            let ended = threads.into_iter().map(|thread| thread.join().unwrap());
            ended.collect()
        });
        (fetches.into_inner(), results)
    }

    #[test]
    fn of_readers_at_once_one_fetches() {
        let cache = ChunkCache::new(4);
        let good = with_waiters(&cache, || Ok(Arc::new(vec![1])));
        assert_eq!(good, (1, vec![true; 4]));
        let cache = ChunkCache::new(4);
        let failed = with_waiters(&cache, || Err(Arc::new(Error::NoImage)));
        assert_eq!(failed, (1, vec![false; 4]), "a failure is everyone's");
        let again = cache.get(&hash(1), || Ok(Arc::new(vec![1])));
        assert!(again.is_ok(), "and the next read tries again");
    }

    #[test]
    fn a_panic_leaves_no_reader_waiting() {
        let cache = ChunkCache::new(4);
        let panicked = with_waiters(&cache, || panic!("of a decoder"));
        assert_eq!(panicked, (1, vec![false; 4]));
        assert!(cache.get(&hash(1), || Ok(Arc::new(vec![1]))).is_ok());
    }

    #[test]
    fn the_least_used_goes() {
        let cache = ChunkCache::new(0);
        let content = |number| Ok(Arc::new(vec![number]));
        for number in 0..9 {
            cache.get(&hash(number), || content(number)).unwrap();
            cache
                .get(&hash(0), || panic!("it is used all the time"))
                .unwrap();
        }
        for number in [0, 6, 7, 8] {
            cache
                .get(&hash(number), || panic!("{number} is here"))
                .unwrap();
        }
        assert_eq!(cache.hits(), 9 + 4);
        let mut gone = false;
        cache
            .get(&hash(5), || {
                gone = true;
                content(5)
            })
            .unwrap();
        assert!(gone);
    }
}
