//! Requests that wait to be received from the device, and the parts of one in an entry of a ring.

use std::collections::VecDeque;

use zerocopy::IntoBytes;

use crate::abi::{BatchForgetIn, CreateIn, ForgetIn, ForgetOne, InHeader, InterruptIn};
use crate::abi::{MkdirIn, SetxattrIn, WriteIn, op};

/// A request, and its number.
type Pending = (u64, Vec<u8>);

/// Requests that wait to be received.
#[derive(Default)]
pub(super) struct DeviceQueue {
    pub(super) interrupts: VecDeque<Vec<u8>>,
    pub(super) forgets: VecDeque<ForgetOne>,
    pub(super) pending: VecDeque<Pending>,
    pub(super) held: VecDeque<Pending>,
    /// Background requests in work.
    pub(super) active: usize,
    pub(super) has_rung: bool,
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
    pub(super) fn take_forgets(&mut self, most: usize) -> Vec<u8> {
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
