//! Flusher threads: they write dirty mappings back when data is old enough, when there is too much of it,
//! and when somebody waits for memory.

use crate::sync::atomic::Ordering;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use crate::sync::Mutex;

use crate::cache::Shared;
use crate::dirty_list::WritebackReason;

/// How much of one mapping is written before the next gets its turn.
pub(crate) const FLUSH_BATCH: u64 = 64 << 20;

pub(crate) struct Flushers {
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Flushers {
    pub(crate) fn start(shared: &Arc<Shared>) -> Self {
        let threads = (0..shared.config.flushers)
            .filter_map(|number| {
                let shared = shared.clone();
                // A host without threads to spare leaves writing back to whoever waits.
                std::thread::Builder::new()
                    .name(format!("flush-{number}"))
                    .spawn(move || run(&shared))
                    .ok()
            })
            .collect();
        Self {
            threads: Mutex::new(threads),
        }
    }

    /// Stops and joins the threads; idempotent. A flusher that calls this is not joined.
    pub(crate) fn stop(&self, shared: &Shared) {
        shared.work.state.lock().stop = true;
        shared.work.wake.notify_all();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.thread().id() != std::thread::current().id() {
                // A flusher that panicked has reported itself; nothing is lost by not joining it.
                let _ = thread.join();
            }
        }
    }
}

fn run(shared: &Shared) {
    loop {
        {
            let mut state = shared.work.state.lock();
            if state.stop {
                return;
            }
            if !shared.work.take_kick() {
                let interval = shared.config.flush_interval;
                shared.work.wake.wait_for(&mut state, interval);
                shared.work.take_kick();
            }
            if state.stop {
                return;
            }
        }
        round(shared);
    }
}

/// Writes until nothing is due any more.
fn round(shared: &Shared) {
    let mut stalls = 0;
    loop {
        let over = shared.over_background();
        let (taken, reason) = if over {
            (shared.dirty.take(None), WritebackReason::Background)
        } else {
            let before = Instant::now().checked_sub(shared.config.dirty_expire);
            let taken = before.and_then(|before| shared.dirty.take(Some(before)));
            (taken, WritebackReason::Expired)
        };
        let Some(taken) = taken else {
            break;
        };
        shared
            .counters
            .flusher_passes
            .fetch_add(1, Ordering::Relaxed);
        let dirty = taken.mapping.dirty_bytes();
        let max = if over { FLUSH_BATCH } else { u64::MAX };
        taken.owner.clone().write_back(reason, max);
        let stalled = taken.mapping.dirty_bytes() >= dirty;
        shared.dirty.put_back(taken);
        shared.made_progress();
        if shared.work.state.lock().stop {
            break;
        }
        stalls = if stalled { stalls + 1 } else { 0 };
        if stalls > shared.dirty.len() {
            // Nothing can be written, or writers are faster: leave the processor to them for a moment.
            break;
        }
    }
    shared.clear_pressure();
}
