//! A guest's memory and a ring in it, for tests: any bytes can be put there.

use std::ops::Deref;

use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestAddressSpace, GuestMemoryAtomic, GuestMemoryMmap};

use crate::broken::Broken;
use crate::chain::Chain;
use crate::queue::{GuestMemory, MemoryNow, take};

/// Bytes of the guest's memory.
pub(crate) const MEMORY: u64 = 4 << 20;
/// Descriptors of the ring.
pub(crate) const SIZE: u16 = 16;
pub(crate) const DESCRIPTORS: u64 = 0x1000;
pub(crate) const AVAILABLE: u64 = 0x3000;
pub(crate) const USED: u64 = 0x4000;
/// From here on there is room for buffers.
pub(crate) const BUFFERS: u64 = 0x10000;

/// Flags of descriptors.
pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

/// A descriptor: its buffer, its flags and what follows it.
pub(crate) type Descriptor = ((u64, u32), (u16, u16));

/// See the module's header.
pub(crate) struct GuestRig {
    memory: GuestMemory,
    pub(crate) queue: Queue,
    available: u16,
}

impl GuestRig {
    pub(crate) fn new() -> Self {
        let memory =
            GuestMemoryMmap::from_ranges(&[(GuestAddress(0), usize::try_from(MEMORY).unwrap())]);
        let mut queue = Queue::new(SIZE).unwrap();
        queue
            .try_set_desc_table_address(GuestAddress(DESCRIPTORS))
            .unwrap();
        queue
            .try_set_avail_ring_address(GuestAddress(AVAILABLE))
            .unwrap();
        queue.try_set_used_ring_address(GuestAddress(USED)).unwrap();
        queue.set_ready(true);
        Self {
            memory: GuestMemoryAtomic::new(memory.unwrap()),
            queue,
            available: 0,
        }
    }

    /// The memory, as a monitor shares it.
    pub(crate) fn memory(&self) -> GuestMemory {
        self.memory.clone()
    }

    pub(crate) fn now(&self) -> MemoryNow {
        self.memory.memory()
    }

    pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
        self.now().write_slice(bytes, GuestAddress(at)).unwrap();
    }

    pub(crate) fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.now().read_slice(&mut bytes, GuestAddress(at)).unwrap();
        bytes
    }

    /// Puts a descriptor in a table.
    pub(crate) fn describe(&self, (table, number): (u64, u16), descriptor: Descriptor) {
        let ((addr, len), (flags, next)) = descriptor;
        let mut bytes = addr.to_le_bytes().to_vec();
        bytes.extend(len.to_le_bytes());
        bytes.extend(flags.to_le_bytes());
        bytes.extend(next.to_le_bytes());
        self.put(table + 16 * u64::from(number), &bytes);
    }

    /// Makes the chain at `head` available.
    pub(crate) fn offer(&mut self, head: u16) {
        let slot = AVAILABLE + 4 + 2 * u64::from(self.available % SIZE);
        self.put(slot, &head.to_le_bytes());
        self.available = self.available.wrapping_add(1);
        self.put(AVAILABLE + 2, &self.available.to_le_bytes());
    }

    /// Makes a chain of buffers from descriptor 0 on, and makes it available.
    pub(crate) fn offer_chain(&mut self, buffers: &[(u64, u32, u16)]) {
        for (number, &(addr, len, flags)) in buffers.iter().enumerate() {
            let number = u16::try_from(number).unwrap();
            let last = usize::from(number) + 1 == buffers.len();
            let flags = if last { flags } else { flags | NEXT };
            self.describe((DESCRIPTORS, number), ((addr, len), (flags, number + 1)));
        }
        self.offer(0);
    }

    pub(crate) fn take(&mut self) -> Result<Option<Chain<MemoryNow>>, Broken> {
        let memory = self.now();
        take(&mut self.queue, &memory)
    }

    pub(crate) fn complete(&mut self, head: u16, len: u32) -> Result<(), Broken> {
        let memory = self.now();
        let added = self.queue.add_used(memory.deref(), head, len);
        added.map_err(|_| Broken::Ring)
    }

    /// Requests that the guest was told to be completed, and the last of them.
    pub(crate) fn used(&self) -> (u16, u32, u32) {
        let count = u16::from_le_bytes(self.get(USED + 2, 2).try_into().unwrap());
        let slot = USED + 4 + 8 * u64::from(count.wrapping_sub(1) % SIZE);
        let word = |at| u32::from_le_bytes(self.get(at, 4).try_into().unwrap());
        (count, word(slot), word(slot + 4))
    }
}

/// Numbers of a seed (xorshift).
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}
