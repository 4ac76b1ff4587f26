//! Opening the queue of a device.

use std::sync::Arc;

use crate::device::BlockDevice;
use crate::inline_queue::InlineQueue;
use crate::queue::{IoQueue, Queueing};
use crate::thread_queue::ThreadQueue;

/// Opens a queue for up to `depth` requests to `device`; `depth` 0 counts as 1.
pub fn open_queue(device: &Arc<dyn BlockDevice>, depth: usize) -> Box<dyn IoQueue> {
    let depth = depth.max(1);
    match device.queueing(depth) {
        Queueing::Immediate => Box::new(InlineQueue::new(Arc::clone(device), depth)),
        Queueing::Threads => Box::new(ThreadQueue::new(Arc::clone(device), depth)),
        Queueing::Own(queue) => queue,
    }
}

#[cfg(test)]
mod tests;
