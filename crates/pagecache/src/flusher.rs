//! Flusher threads: they write files back when dirty data is old enough, when there is too much of
//! it, and when a thread waits for memory.

use extant_sync::thread::JoinHandle;
use extant_sync::time::Instant;
use std::sync::Arc;

use crate::cache_state::{CacheState, FLUSH_BATCH_BYTES};
use crate::counters::bump;
use crate::dirty_list::WritebackReason;
use extant_sync::Mutex;

pub(crate) struct Flushers {
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Flushers {
    pub(crate) fn start(state: &Arc<CacheState>) -> Self {
        let threads: Vec<_> = (0..state.config.flushers)
            .filter_map(|number| {
                let state = state.clone();
                // A host that refuses a thread is no error: without any flusher, a thread that
                // waits at a limit writes by itself.
                extant_sync::thread::Builder::new()
                    .name(format!("flush-{number}"))
                    .spawn(move || run(&state))
                    .ok()
            })
            .collect();
        state.set_flusher_threads(threads.len());
        Self {
            threads: Mutex::new(threads),
        }
    }

    /// Stops and joins the threads; idempotent. A flusher that calls this is not joined.
    pub(crate) fn stop(&self, state: &CacheState) {
        state.flushers.stop();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            if thread.thread().id() != extant_sync::thread::current().id() {
                // A flusher that panicked has reported itself; nothing is lost by not joining it.
                let _ = thread.join();
            }
        }
    }
}

fn run(state: &CacheState) {
    while state.flushers.wait(state.config.flush_interval) {
        flush_due(state);
    }
}

/// Writes until nothing is due any more.
fn flush_due(state: &CacheState) {
    let mut stalls = 0;
    loop {
        let over = state.is_over_background();
        let (before, reason) = if over {
            (None, WritebackReason::Background)
        } else {
            let before = Instant::now().checked_sub(state.config.dirty_expire);
            if before.is_none() {
                break;
            }
            (before, WritebackReason::Expired)
        };
        let Some(first) = state.dirty.take(before) else {
            break;
        };
        bump(&state.counters.flusher_passes);
        let max = if over { FLUSH_BATCH_BYTES } else { u64::MAX };
        let stalled = !state.write(state.with_small_files(first, before), reason, max);
        state.made_progress();
        if state.flushers.is_stopped() {
            break;
        }
        stalls = if stalled { stalls + 1 } else { 0 };
        if stalls > state.dirty.len() {
            // Nothing can be written, or writers are faster: leave the processor to them.
            break;
        }
    }
    state.clear_pressure();
}
