//! Block devices.
//!
//! [`BlockDevice`] is what the journal, the page cache's I/O and the metadata cache stand on:
//! positioned, synchronous, thread-safe reads and writes of byte ranges, with an explicit flush.
//! Beside it stands the queue ([`open_queue`], [`IoQueue`]): many requests in flight from one thread, with owned
//! buffers. Every device has one.
//!
//! # Durability
//! A write that returned is visible to later reads, but durable only after a [`BlockDevice::flush`]
//! that began after it, or when it was made by [`BlockDevice::write_durable`]. Between two flushes
//! writes may reach the medium in any order.
//!
//! A flush that failed may have lost any write since the last one that succeeded, and a device need
//! not tell again: the next flush may succeed without them. [`LatchedDevice`] remembers.
//!
//! # Concurrency
//! All methods take `&self` and may run from many threads. Overlapping concurrent writes leave either
//! content, mixed at sector granularity at worst; callers that care serialise them.
#![deny(unsafe_code)]

mod claim;
mod cow;
mod device;
mod direct;
mod faults;
mod file;
mod flush_latch;
mod gate;
mod host_file;
mod inline_queue;
mod io_buf;
mod latched_queue;
mod loops;
mod lossy;
mod memory;
mod null;
mod queue;
mod recorder;
mod share;
mod thread_queue;
mod uring;

pub use cow::CowDevice;
pub use device::BlockDevice;
pub use faults::{Fault, FaultyDevice, Request, RequestKind};
pub use file::{FileDevice, FileIo, FileQueues, OpenError, OpenMode};
pub use flush_latch::{FlushLatch, LatchedDevice};
pub use gate::{Closed, Gate, GatedDevice};
pub use io_buf::{IO_ALIGN, IoBuf};
pub use loops::LoopUse;
pub use lossy::{Loss, LossyDevice};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use queue::{Completion, IoOp, IoQueue, IoRequest, Queueing, open_queue};
pub use recorder::{Event, Recorder};
pub use share::memory_share;
pub use thread_queue::ThreadQueue;
pub use uring::io_uring;
