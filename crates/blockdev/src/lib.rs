//! Block devices.
//!
//! # Responsibility
//! [`BlockDevice`] is what the journal, the page cache's I/O and the metadata cache use:
//! positioned, synchronous, thread-safe reads and writes of byte ranges, with an explicit flush.
//! Every device also has a queue ([`open_queue()`], [`IoQueue`]): many requests in flight from one
//! thread, with owned buffers.
//!
//! # Invariants
//! - A write that returned is visible to later reads. It is durable only after a
//!   [`BlockDevice::flush`] that began after it, or if it was made by
//!   [`BlockDevice::write_durable`]. Between two flushes, writes may reach the medium in any order.
//! - A flush that failed may have lost any write since the last one that succeeded, and a device
//!   may report that only once: the next flush may succeed without those writes. [`LatchedDevice`]
//!   remembers the failure.
//!
//! # Concurrency
//! All methods take `&self` and may run on many threads. Overlapping concurrent writes leave the
//! content of either, mixed at the granularity of a sector at worst; callers serialise them if that
//! matters.
#![deny(unsafe_code)]

mod claim;
mod cow;
mod device;
mod device_users;
mod direct;
mod file;
mod flush_latch;
mod host_file;
mod inline_queue;
mod io_buf;
mod io_counters;
mod latched_device;
mod latched_queue;
mod lent_device;
mod loops;
mod memory;
#[cfg(test)]
mod null;
mod open_file;
mod open_queue;
mod queue;
mod ring_refusal;
mod share;
mod thread_queue;
mod uring;

pub use cow::CowDevice;
pub use device::BlockDevice;
pub use file::{FileDevice, FileIo, FileQueues};
pub use flush_latch::FlushLatch;
pub use io_buf::{IO_ALIGN, IoBuf};
pub use latched_device::LatchedDevice;
pub use loops::LoopUse;
pub use memory::MemoryDevice;
pub use open_file::{
    OpenError, OpenMode, open_exclusively, refuse_file_in_use, refuse_in_use, refuse_target_in_use,
};
pub use open_queue::open_queue;
pub use queue::{Completion, IoOp, IoQueue, IoRequest, Queueing};
pub use ring_refusal::RingRefusal;
pub use share::memory_share;
pub use uring::io_uring;
