//! Block devices.
//!
//! [`BlockDevice`] is what the journal, the page cache's I/O and the metadata cache stand on:
//! positioned, synchronous, thread-safe reads and writes of byte ranges, with an explicit flush.
//! Submission and completion queues, where they exist, live behind this border and nowhere else.
//!
//! # Durability
//! A write that returned is visible to later reads, but durable only after a [`BlockDevice::flush`]
//! that began after it, or when it was made by [`BlockDevice::write_durable`]. Between two flushes
//! writes may reach the medium in any order.
//!
//! # Concurrency
//! All methods take `&self` and may run from many threads. Overlapping concurrent writes leave either
//! content, mixed at sector granularity at worst; callers that care serialise them.
#![forbid(unsafe_code)]

mod cow;
mod device;
mod faults;
mod file;
mod memory;
mod null;
mod recorder;

pub use cow::CowDevice;
pub use device::BlockDevice;
pub use faults::{Fault, FaultyDevice, Request, RequestKind};
pub use file::{FileDevice, OpenError, OpenMode};
pub use memory::MemoryDevice;
pub use null::NullDevice;
pub use recorder::{Event, Recorder};
