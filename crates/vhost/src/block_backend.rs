//! A virtio-blk device for a monitor: its queues, each with a thread.
//!
//! # Concurrency
//! A queue's thread holds the lock of its ring from the moment it takes a request until that is
//! completed. So the requests of a queue are completed in their order, and a monitor that stops the
//! queue, for which it needs the same lock, finds none under way.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use extant_blockdev::BlockDevice;
use parking_lot::{Mutex, RwLock};
use vhost::vhost_user::VhostUserProtocolFeatures;
use vhost_user_backend::{VhostUserBackend, VringMutex, VringT};
use virtio_queue::QueueT;
use vm_memory::{GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};
use vmm_sys_util::epoll::EventSet;
use vmm_sys_util::event::{
    EventConsumer, EventFlag, EventNotifier, new_event_consumer_and_notifier,
};

use crate::block::{BlockServer, QueueBuffer};
use crate::block_config::{self, config, driver_flushes};
use crate::connection::{Device, Error, Socket, Stopper, serve};
use crate::queue::{BrokenMark, GuestMemory, Vring, take};

/// Descriptors of a queue at most.
const QUEUE_SIZE: usize = 1024;

/// A block device as a guest sees it.
#[derive(Clone, Debug)]
pub struct BlockOptions {
    /// The number of its queues.
    pub queues: u16,
    /// Its name, of which 20 bytes count.
    pub id: String,
    /// Wait for the next monitor when one has ended.
    pub keep: bool,
    /// Each write is durable before it is answered: what the device was told since its last flush
    /// does not outlive this process, which a running guest may.
    pub write_through: bool,
}

/// Serves `device` to the monitors that connect to `socket`, until `stopper` says so or, unless the
/// options say otherwise, the first one has ended. What guests were told is durable then, as far as
/// it can be.
///
/// # Errors
/// The connection fails, or the device cannot make durable what was written.
pub fn serve_block(
    device: Arc<dyn BlockDevice>,
    socket: Socket,
    options: &BlockOptions,
    stopper: &Stopper,
) -> Result<(), Error> {
    let backend = Arc::new(BlockBackend::new(device, options));
    let served = serve("vhost-blk", &backend, socket, options.keep, stopper);
    let flushed = match backend.server.is_read_only() {
        true => Ok(()),
        false => backend.server.flush().map_err(Error::Flush),
    };
    served.and(flushed)
}

struct BlockBackend {
    server: BlockServer,
    queues: Vec<QueueState>,
    memory: RwLock<Option<GuestMemory>>,
    /// The driver flushes what has to be durable.
    driver_flushes: AtomicBool,
    write_through: bool,
}

/// State of a queue beside its ring.
#[derive(Default)]
struct QueueState {
    broken: BrokenMark,
    buffer: Mutex<QueueBuffer>,
}

impl BlockBackend {
    fn new(device: Arc<dyn BlockDevice>, options: &BlockOptions) -> Self {
        let queues = (0..options.queues.max(1)).map(|_| QueueState::default());
        Self {
            server: BlockServer::new(device, &options.id),
            queues: queues.collect(),
            memory: RwLock::default(),
            driver_flushes: AtomicBool::new(true),
            write_through: options.write_through,
        }
    }

    /// Serves the next request of a queue. Returns whether there was one.
    fn serve_next(&self, vring: &Vring, state: &QueueState) -> bool {
        let Some(memory) = self.memory.read().as_ref().map(GuestMemoryAtomic::memory) else {
            return false;
        };
        let mut ring = vring.get_mut();
        // Requests end one at a time and in order. A monitor that looked while one ended may have
        // said that it is to be served again.
        let queue = ring.get_queue_mut();
        let ended = queue.next_used();
        queue.set_next_avail(ended);
        let durable = !self.driver_flushes.load(Ordering::Relaxed);
        let served = take(ring.get_queue_mut(), &memory).and_then(|chain| {
            let Some(chain) = chain else {
                return Ok(false);
            };
            let len = self
                .server
                .serve(&chain, durable, &mut state.buffer.lock())?;
            crate::queue::complete(&mut ring, memory.deref(), chain.head(), len)?;
            Ok(true)
        });
        served.unwrap_or_else(|broken| {
            state.broken.set(broken);
            false
        })
    }
}

impl VhostUserBackend for BlockBackend {
    type Bitmap = ();
    type Vring = VringMutex<GuestMemoryAtomic<GuestMemoryMmap<()>>>;

    fn num_queues(&self) -> usize {
        self.queues.len()
    }

    fn max_queue_size(&self) -> usize {
        QUEUE_SIZE
    }

    fn features(&self) -> u64 {
        block_config::features(self.server.is_read_only(), self.write_through)
    }

    fn acked_features(&self, features: u64) {
        self.driver_flushes
            .store(driver_flushes(features), Ordering::Relaxed);
    }

    fn protocol_features(&self) -> VhostUserProtocolFeatures {
        VhostUserProtocolFeatures::CONFIG
            | VhostUserProtocolFeatures::MQ
            | VhostUserProtocolFeatures::REPLY_ACK
    }

    fn set_event_idx(&self, _enabled: bool) {}

    fn get_config(&self, offset: u32, size: u32) -> Vec<u8> {
        let queues = u16::try_from(self.queues.len()).unwrap_or(u16::MAX);
        config(self.server.sectors(), queues, offset, size)
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
        // A driver that begins anew has its queue served again.
        if let Some(state) = usize::try_from(queue).ok().and_then(|n| self.queues.get(n)) {
            state.broken.clear();
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
        let (Some(vring), Some(state)) = (vrings.first(), self.queues.get(thread)) else {
            return Ok(());
        };
        crate::queue::serve_all(vring, &state.broken, || self.serve_next(vring, state));
        Ok(())
    }
}

impl Device for BlockBackend {
    fn disconnected(&self) {
        *self.memory.write() = None;
        for queue in &self.queues {
            queue.broken.clear();
        }
    }
}
