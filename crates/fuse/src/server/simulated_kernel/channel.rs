//! `/dev/fuse` of the simulated kernel, and the parts of a request in an entry of a ring.
//!
//! INTERRUPTs go first; FORGETs and the others take turns, and several FORGETs go at once. Requests
//! that are sent in the background are held back while so many of them are in work as may be: more
//! than there are workers, as the argument of [`crate::device`] wants it.

use std::collections::VecDeque;
use std::thread;

use rustix::io::Errno as Sys;
use zerocopy::{FromBytes, IntoBytes};

use super::kernel::{Kernel, KernelState};
use crate::abi::{BatchForgetIn, CreateIn, ForgetIn, ForgetOne, InHeader, InterruptIn};
use crate::abi::{MkdirIn, SetxattrIn, WriteIn, op};
use crate::device::KernelEnd;

/// FORGETs that are sent at once.
const FORGETS: usize = 8;

/// A request, and its number.
type Pending = (u64, Vec<u8>);

/// What waits to be received.
#[derive(Default)]
pub(super) struct DeviceQueue {
    interrupts: VecDeque<Vec<u8>>,
    forgets: VecDeque<ForgetOne>,
    pending: VecDeque<Pending>,
    held: VecDeque<Pending>,
    /// Background requests in work.
    active: usize,
    has_rung: bool,
}

impl DeviceQueue {
    pub(super) fn push(&mut self, unique: u64, bytes: Vec<u8>, is_background: bool) {
        match is_background {
            true => self.held.push_back((unique, bytes)),
            false => self.pending.push_back((unique, bytes)),
        }
    }

    pub(super) fn interrupt(&mut self, unique: u64, task: u32) {
        let interrupt = InterruptIn { unique };
        let of = (op::INTERRUPT, unique | 1);
        let bytes = message(of, (0, task), interrupt.as_bytes());
        self.interrupts.push_back(bytes);
    }

    pub(super) fn forget(&mut self, one: ForgetOne) {
        self.forgets.push_back(one);
    }

    /// A background request has ended.
    pub(super) fn ended(&mut self) {
        self.active -= 1;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.interrupts.is_empty() && self.forgets.is_empty() && self.pending.is_empty()
    }

    /// Takes some FORGETs in one message.
    fn take_forgets(&mut self, most: usize) -> Vec<u8> {
        let count = self.forgets.len().min(most);
        let nodes: Vec<ForgetOne> = self.forgets.drain(..count).collect();
        match nodes[..] {
            [one] => {
                let nlookup = one.nlookup;
                let forget = ForgetIn { nlookup };
                message((op::FORGET, 0), (one.nodeid, 0), forget.as_bytes())
            }
            _ => {
                let head = BatchForgetIn {
                    count: u32::try_from(count).unwrap(),
                    dummy: 0,
                };
                let body = [head.as_bytes(), nodes.as_bytes()].concat();
                message((op::BATCH_FORGET, 0), (0, 0), &body)
            }
        }
    }
}

/// A message to the server: opcode and number, node and task, and what is behind the header.
fn message((opcode, unique): (u32, u64), (nodeid, pid): (u64, u32), body: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
        opcode,
        unique,
        nodeid,
        pid,
        ..InHeader::default()
    };
    [header.as_bytes(), body].concat()
}

/// The fixed part of an operation, and what follows: names, values, data.
pub(super) fn parts(opcode: u32, body: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let fixed = match opcode {
        op::LOOKUP | op::UNLINK | op::RMDIR => 0,
        op::CREATE => size_of::<CreateIn>(),
        op::MKDIR => size_of::<MkdirIn>(),
        op::SETXATTR => size_of::<SetxattrIn>(),
        op::WRITE => size_of::<WriteIn>(),
        _ => body.len(),
    };
    (body[..fixed].to_vec(), body[fixed..].to_vec())
}

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
