//! A virtio-fs device for a monitor: a queue of urgent requests and queues of others, whose threads
//! only take requests in.
//!
//! # Concurrency
//! Requests of a queue are served by many workers and completed in any order. A monitor that stops
//! a queue waits until none of its requests is under way. A worker waits for no queue's thread and
//! for no monitor, so that ends.

use std::io;
use std::sync::Arc;
use std::thread;

use extant_fuse::GuestVolume;
use parking_lot::RwLock;
use vhost::vhost_user::VhostUserProtocolFeatures;
use vhost_user_backend::VhostUserBackend;
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{
    EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier,
};

use crate::block_config::{EVENT_IDX, INDIRECT, PROTOCOL_FEATURES, VERSION_1};
use crate::connection::{Device, Error, Socket, Stopper, serve};
use crate::jobs::{Jobs, SharedQueue};
use crate::queue::{GuestMemory, Vring, serve_all};
use crate::sessions::serve_sessions;

/// Descriptors of a queue at most.
const QUEUE_SIZE: usize = 1024;
/// Bytes of the tag in the configuration space.
const TAG_LEN: usize = 36;

/// A file system as a guest sees it.
#[derive(Clone, Debug)]
pub struct FsOptions {
    /// The number of its queues, beside that of urgent requests.
    pub queues: u16,
    /// The name by which a guest mounts it, of at most 36 bytes.
    pub tag: String,
    /// Wait for the next monitor when one has ended.
    pub keep: bool,
}

/// Serves `volume` to the monitors that connect to `socket`, until `stopper` says so or, unless the
/// options say otherwise, the first one has ended. The volume is unmounted then.
///
/// # Errors
/// The connection fails, or the unmount.
pub fn serve_fs(
    volume: GuestVolume,
    socket: Socket,
    options: &FsOptions,
    stopper: &Stopper,
) -> Result<(), Error> {
    let volume = Arc::new(volume);
    let backend = Arc::new(FsBackend::new(Arc::clone(&volume), options));
    let served = thread::scope(|scope| {
        let sessions = thread::Builder::new().name("fuse-0".into());
        let jobs = &backend.jobs;
        let _end = jobs.closing();
        sessions.spawn_scoped(scope, || serve_sessions(&volume, jobs))?;
        serve("vhost-fs", &backend, socket, options.keep, stopper)
    });
    drop(backend);
    let closed = match Arc::into_inner(volume) {
        Some(volume) => volume
            .close()
            .map_err(|error| Error::Close(error.to_string())),
        // Not reached: all threads that knew it have ended.
        None => Err(Error::Close("it is still in use".to_owned())),
    };
    served.and(closed)
}

/// The number of workers that a volume for [`serve_fs`] is made for.
#[must_use]
pub fn fs_workers() -> usize {
    crate::sessions::WORKERS
}

struct FsBackend {
    volume: Arc<GuestVolume>,
    queues: Vec<Arc<SharedQueue>>,
    memory: RwLock<Option<GuestMemory>>,
    jobs: Jobs,
    config: Vec<u8>,
}

impl FsBackend {
    fn new(volume: Arc<GuestVolume>, options: &FsOptions) -> Self {
        let requests = options.queues.max(1);
        let queues = (0..=requests).map(|_| Arc::default());
        Self {
            volume,
            queues: queues.collect(),
            memory: RwLock::default(),
            jobs: Jobs::default(),
            config: config(&options.tag, requests),
        }
    }

    /// Takes in the next request of a queue. Returns whether there was one.
    fn take_next(&self, vring: &Vring, queue: &Arc<SharedQueue>) -> bool {
        let Some(memory) = self.memory.read().as_ref().map(GuestMemoryAtomic::memory) else {
            return false;
        };
        match queue.take(vring, memory) {
            Ok(Some(job)) => {
                self.jobs.add(job);
                true
            }
            Ok(None) => false,
            Err(broken) => {
                queue.broken.set(broken);
                false
            }
        }
    }
}

/// The configuration space: the tag, padded with zeros, and the number of queues.
fn config(tag: &str, queues: u16) -> Vec<u8> {
    let mut space: Vec<u8> = tag.bytes().take(TAG_LEN).collect();
    space.resize(TAG_LEN, 0);
    space.extend(u32::from(queues).to_le_bytes());
    space
}

impl VhostUserBackend for FsBackend {
    type Bitmap = ();
    type Vring = Vring;

    fn num_queues(&self) -> usize {
        self.queues.len()
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        let all = [INDIRECT, EVENT_IDX, PROTOCOL_FEATURES, VERSION_1];
        all.iter().fold(0, |bits, number| bits | 1 << number)
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
    }

    fn set_event_idx(&self, _enabled: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let range = usize::try_from(offset).ok().zip(usize::try_from(size).ok());
        let range = range.and_then(|(from, len)| Some(from..from.checked_add(len)?));
        range
            .and_then(|range| self.config.get(range))
            .unwrap_or_default()
            .to_vec()
    }

    fn update_memory(&self, memory: GuestMemory) -> io::Result<()> {
        *self.memory.write() = Some(memory);
        Ok(())
    }

    fn queues_per_thread(&self) -> Vec<u64> {
        (0..self.queues.len()).map(|queue| 1 << queue).collect()
    }

    fn exit_event(&self, _thread: usize) -> Option<(EventConsumer, EventNotifier)> {
        new_event_consumer_and_notifier(EventFlag::NONBLOCK | EventFlag::CLOEXEC).ok()
    }

    fn stop_vring(&self, queue: u32) -> io::Result<()> {
        if let Some(queue) = usize::try_from(queue).ok().and_then(|n| self.queues.get(n)) {
            queue.drain();
            queue.broken.clear();
        }
        Ok(())
    }

    fn handle_event(
        &self,
        _event: u16,
        _set: EventSet,
        vrings: &[Self::Vring],
        thread: usize,
    ) -> io::Result<()> {
        let (Some(vring), Some(queue)) = (vrings.first(), self.queues.get(thread)) else {
            return Ok(());
        };
        serve_all(vring, &queue.broken, || self.take_next(vring, queue));
        Ok(())
    }
}

impl Device for FsBackend {
    fn disconnected(&self) {
        for queue in &self.queues {
            queue.drain();
            queue.broken.clear();
        }
        *self.memory.write() = None;
        if let Err(error) = self.volume.sync() {
            tracing::error!("what the guest wrote is not durable: {error}");
        }
    }
}

#[cfg(test)]
mod tests;
