//! `/dev/fuse` of the simulated kernel.
//!
//! INTERRUPTs go first; FORGETs and the others take turns, and several FORGETs go at once. Requests
//! that are sent in the background are held back while so many of them are in work as may be: more
//! than there are workers, as the argument of [`crate::device`] wants it.

use std::thread;

use rustix::io::Errno as Sys;
use zerocopy::FromBytes;

use super::kernel::{Kernel, KernelState};
use crate::abi::{InHeader, op};
use crate::device::KernelEnd;

/// FORGETs that are sent at once.
const FORGETS: usize = 8;

impl Kernel {
    /// Lets background requests go that were held back, as many as may be in work.
    pub(super) fn let_go(&self, state: &mut KernelState) {
        let device = &mut state.device;
        while device.active < self.0.limits.background
            && let Some(request) = device.held.pop_front()
        {
            device.active += 1;
            device.pending.push_back(request);
        }
        self.ring(state);
    }

    /// Has the device be readable while there is something to receive, or it is gone.
    pub(super) fn ring(&self, state: &mut KernelState) {
        let rings = state.is_gone || !state.device.is_empty();
        if rings == state.device.has_rung {
            return;
        }
        state.device.has_rung = rings;
        let mut count = 1_u64.to_ne_bytes();
        match rings {
            true => rustix::io::write(&self.0.bell, &count).unwrap(),
            false => rustix::io::read(&self.0.bell, &mut count).unwrap(),
        };
    }

    /// The mount is disconnected.
    pub(super) fn go(&self) {
        let mut state = self.lock();
        state.is_gone = true;
        self.ring(&mut state);
        drop(state);
        if let Some(queues) = self.0.queues.get() {
            queues.end();
        }
    }

    /// Takes the next message.
    fn next(&self, state: &mut KernelState) -> Option<Vec<u8>> {
        if let Some(interrupt) = state.device.interrupts.pop_front() {
            return Some(interrupt);
        }
        let is_turn = state.device.pending.is_empty() || state.rng.chance(50);
        if is_turn && !state.device.forgets.is_empty() {
            let most = 1 + state.rng.index(FORGETS);
            return Some(state.device.take_forgets(most));
        }
        let (unique, bytes) = state.device.pending.pop_front()?;
        if let Some(asked) = state.asked.get_mut(&unique) {
            asked.is_sent = true;
            if asked.is_signalled {
                state.device.interrupt(unique, asked.task());
            }
        }
        Some(bytes)
    }
}

impl KernelEnd for Kernel {
    fn read(&self, buf: &mut [u8]) -> rustix::io::Result<usize> {
        let mut state = self.lock();
        if state.is_gone {
            return Err(Sys::NODEV);
        }
        let bytes = self.next(&mut state).ok_or(Sys::AGAIN)?;
        self.ring(&mut state);
        drop(state);
        let header = InHeader::read_from_prefix(&bytes);
        if header.is_ok_and(|(header, _)| header.opcode == op::WRITE) {
            thread::sleep(self.0.limits.pace);
        }
        buf[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }

    fn write(&self, message: &[u8]) -> rustix::io::Result<usize> {
        if self.is_gone() {
            return Err(Sys::NODEV);
        }
        match self.take(message) {
            true => Ok(message.len()),
            false => Err(Sys::NOENT),
        }
    }

    fn is_gone(&self) -> bool {
        self.lock().is_gone
    }
}
