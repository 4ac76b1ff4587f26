//! A queue of a guest: taking requests out of it, completing them, and giving it up.

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

use tracing::warn;
use vhost_user_backend::{VringMutex, VringState, VringT};
use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{GuestMemoryAtomic, GuestMemoryLoadGuard, GuestMemoryMmap};

use crate::broken::Broken;
use crate::chain::Chain;

/// The guest's memory as the monitor has shared it last.
pub(crate) type GuestMemory = GuestMemoryAtomic<GuestMemoryMmap<()>>;
/// The same, as it was at a moment: it stays mapped as long as this is held.
pub(crate) type MemoryNow = GuestMemoryLoadGuard<GuestMemoryMmap<()>>;
/// A ring and its eventfds.
pub(crate) type Vring = VringMutex<GuestMemory>;

/// Marks a queue as broken.
#[derive(Debug, Default)]
pub(crate) struct BrokenMark(AtomicBool);

impl BrokenMark {
    /// The queue is not served any more.
    pub(crate) fn set(&self, broken: Broken) {
        if !self.0.swap(true, Ordering::Relaxed) {
            warn!("a queue of the guest is not served any more: {broken}");
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// The queue was set up anew.
    pub(crate) fn clear(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// Takes the next request, if there is one.
///
/// # Errors
/// The ring or the request is one that no driver makes.
pub(crate) fn take(
    queue: &mut Queue,
    memory: &MemoryNow,
) -> Result<Option<Chain<MemoryNow>>, Broken> {
    if !queue.ready() {
        return Ok(None);
    }
    if !queue.is_valid(memory.deref()) {
        return Err(Broken::Ring);
    }
    let mut available = queue.iter(memory.clone()).map_err(|_| Broken::Ring)?;
    available.next().map(Chain::parse).transpose()
}

/// Gives a request back to the guest, with an answer of `len` bytes.
///
/// # Errors
/// The ring lies outside of the guest's memory.
pub(crate) fn complete(
    ring: &mut VringState<GuestMemory>,
    memory: &GuestMemoryMmap<()>,
    head: u16,
    len: u32,
) -> Result<(), Broken> {
    let queue = ring.get_queue_mut();
    queue
        .add_used(memory, head, len)
        .map_err(|_| Broken::Ring)?;
    if queue.needs_notification(memory).map_err(|_| Broken::Ring)? {
        // A monitor that is gone needs no word.
        let _ = ring.signal_used_queue();
    }
    Ok(())
}

/// Calls `next` until the queue is empty, and has the guest tell of what comes later. `next`
/// returns whether there was a request.
pub(crate) fn serve_all(vring: &Vring, broken: &BrokenMark, mut next: impl FnMut() -> bool) {
    loop {
        if broken.is_set() || !vring.get_ref().get_queue().ready() {
            return;
        }
        if vring.disable_notification().is_err() {
            return broken.set(Broken::Ring);
        }
        while !broken.is_set() && next() {}
        match vring.enable_notification() {
            Ok(true) => {}
            Ok(false) => return,
            Err(_) => return broken.set(Broken::Ring),
        }
    }
}
