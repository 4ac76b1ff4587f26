//! The queue of devices whose requests never wait.

use std::sync::Arc;

use crate::device::{BlockDevice, perform};
use crate::queue::{Completion, IoQueue, IoRequest};

/// Makes each request while it is submitted, and keeps completions until they are reaped. Requests
/// run in order and on the caller's thread, so that nothing depends on scheduling.
pub(crate) struct InlineQueue {
    device: Arc<dyn BlockDevice>,
    depth: usize,
    done: Vec<Completion>,
}

impl InlineQueue {
    pub(crate) fn new(device: Arc<dyn BlockDevice>, depth: usize) -> Self {
        Self {
            device,
            depth,
            done: Vec::with_capacity(depth.min(64)),
        }
    }
}

impl IoQueue for InlineQueue {
    fn depth(&self) -> usize {
        self.depth
    }

    fn in_flight(&self) -> usize {
        self.done.len()
    }

    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.done.len() >= self.depth {
            return Err(request);
        }
        self.done.push(perform(&*self.device, request));
        Ok(())
    }

    fn reap(&mut self, _min: usize, done: &mut Vec<Completion>) {
        done.append(&mut self.done);
    }
}
