//! The kernel's side: what was asked, what is known, and what a reply may be.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use extant_fuse::testing::{QUEUES, RingRequest, Wire};

use crate::feed::Feed;

/// Longer than any answer takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of a request's header and of a reply's, of what names a node, and of a directory's entry
/// before its name.
const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;
const ENTRY: usize = 128;
const DIRENT: usize = 24;
/// Opcodes: those that are tried are below the last one.
const LOOKUP: u32 = 1;
const FORGET: u32 = 2;
const GETATTR: u32 = 3;
const READ: u32 = 15;
const WRITE: u32 = 16;
const READDIR: u32 = 28;
const INTERRUPT: u32 = 36;
const DESTROY: u32 = 38;
const BATCH_FORGET: u32 = 42;
const READDIRPLUS: u32 = 44;
const OPCODES: u8 = 56;
const QUESTIONS: u8 = 8;
/// Replies that begin with the number of a node.
const NAMING: [u32; 7] = [LOOKUP, 6, 8, 9, 13, 35, 51];
/// Above the length of each operation's fixed part.
const FIXED: u8 = 104;
/// The most that a READ or a listing asks for: a message of the socket has no more.
const MOST: u32 = 16 << 10;
/// Handles that questions before writes are about.
const HANDLES: u64 = 4;
/// Nodes that requests choose from.
const HELD: usize = 24;
/// Names and data behind the fixed part of an operation.
const TAILS: [&[u8]; 10] = [
    b"",
    b"n\0",
    b"lost+found\0",
    b"old\0new\0",
    b"n\0n\0",
    b"link\0target of it\0",
    b"user.x\0value",
    b"dir\0",
    b"large\0",
    &[b'w'; 5000],
];

/// See the module's header.
pub(super) struct WireKernel<'a> {
    wire: &'a Wire,
    /// It forgets a node only as often as replies have named it.
    is_honest: bool,
    last: u64,
    /// Opcodes of the requests that are not answered yet.
    asked: HashMap<u64, u32>,
    lookups: HashMap<u64, u64>,
    held: Vec<u64>,
}

fn number(bytes: &[u8], at: usize, len: usize) -> u64 {
    let bytes = bytes.get(at..at + len).unwrap_or_default();
    let all = bytes.iter().rev();
    all.fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn header(len: usize, opcode: u32, unique: u64, node: u64) -> Vec<u8> {
    let mut header = vec![0; IN_HEADER];
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let fields: [(usize, &[u8]); 4] = [
        (0, &len.to_le_bytes()),
        (4, &opcode.to_le_bytes()),
        (8, &unique.to_le_bytes()),
        (16, &node.to_le_bytes()),
    ];
    for (at, bytes) in fields {
        header[at..at + bytes.len()].copy_from_slice(bytes);
    }
    header
}

impl<'a> WireKernel<'a> {
    pub(super) fn new(wire: &'a Wire, is_honest: bool) -> WireKernel<'a> {
        WireKernel {
            wire,
            is_honest,
            last: 0,
            asked: HashMap::new(),
            lookups: HashMap::new(),
            held: vec![1],
        }
    }

    /// One step: a request, an interruption, something forgotten, or a pause.
    pub(super) fn step(&mut self, feed: &mut Feed<'_>) {
        match feed.u8() % 10 {
            how @ 0..=6 => self.request(how >= 4, feed),
            7 => {
                // Of one of the last requests, answered or not, or of the next one.
                let back = u64::from(feed.u8() % 6) * 2;
                let unique = (self.last + 2).saturating_sub(back);
                self.tell(INTERRUPT, unique | 1, 0, &unique.to_le_bytes());
            }
            8 => self.forget(feed),
            _ => self.wait_for_all(),
        }
        while let Some(reply) = self.wire.reply(Duration::ZERO) {
            self.take(&reply);
        }
    }

    fn tell(&self, opcode: u32, unique: u64, node: u64, body: &[u8]) {
        let header = header(IN_HEADER + body.len(), opcode, unique, node);
        let sent = self.wire.by_device(&[&header, body].concat());
        assert!(sent.is_ok(), "the server has ended: {sent:?}");
    }

    fn request(&mut self, by_ring: bool, feed: &mut Feed<'_>) {
        let how = feed.u8();
        // Questions before writes, which may be answered later, are one in eight.
        let mut opcode = match feed.u8() % (OPCODES + QUESTIONS) {
            opcode if opcode < OPCODES => u32::from(opcode),
            _ => GETATTR,
        };
        let forgets = matches!(opcode, FORGET | BATCH_FORGET);
        if opcode == INTERRUPT || forgets && self.is_honest {
            opcode = LOOKUP;
        }
        let node = match how & 7 {
            7 => u64::from(feed.u16()),
            _ => feed.choose(&self.held).copied().unwrap_or(1),
        };
        let mut operation = {
            let len = usize::from(feed.u8() % FIXED);
            feed.take(len).to_vec()
        };
        let tail = feed.choose(&TAILS).copied().unwrap_or_default();
        agree(opcode, &mut operation, tail.len());
        self.last += 2;
        let unique = self.last;
        let is_silent = !by_ring && matches!(opcode, FORGET | BATCH_FORGET);
        if !is_silent {
            self.asked.insert(unique, opcode);
        }
        if by_ring {
            // An operation has whole words, as the kernel's structures do.
            operation.truncate(operation.len() / 8 * 8);
            let len = IN_HEADER + operation.len() + tail.len();
            let request = RingRequest {
                header: header(len, opcode, unique, node),
                operation,
                payload: tail.to_vec(),
            };
            self.wire.by_ring(usize::from(how >> 5) % QUEUES, request);
        } else {
            self.tell(opcode, unique, node, &[&operation, tail].concat());
        }
        // Numbers of nodes come from replies: some requests wait for those.
        if how & 8 != 0 {
            self.wait_while(|kernel| kernel.asked.contains_key(&unique));
        }
    }

    /// Forgets a node, as often as it was named or less often.
    fn forget(&mut self, feed: &mut Feed<'_>) {
        let node = feed.choose(&self.held).copied().unwrap_or(1);
        let count = u64::from(feed.u8());
        let known = self.lookups.get(&node).copied().unwrap_or(0);
        let count = match self.is_honest {
            true => count.min(known),
            false => count << (count % 48),
        };
        self.send_forget(node, count);
    }

    fn send_forget(&mut self, node: u64, count: u64) {
        if let Some(known) = self.lookups.get_mut(&node) {
            *known = known.saturating_sub(count);
        }
        self.last += 2;
        if count.is_multiple_of(2) {
            let one = [1_u64, node, count].map(u64::to_le_bytes).concat();
            self.tell(BATCH_FORGET, self.last, 0, &one);
        } else {
            self.tell(FORGET, self.last, node, &count.to_le_bytes());
        }
    }

    fn wait_for_all(&mut self) {
        self.wait_while(|kernel| !kernel.asked.is_empty());
    }

    fn wait_while(&mut self, condition: impl Fn(&WireKernel<'_>) -> bool) {
        let begun = Instant::now();
        while condition(self) {
            let left = PATIENCE.saturating_sub(begun.elapsed());
            match self.wire.reply(left) {
                Some(reply) => self.take(&reply),
                None => panic!("not answered: {:?}", self.asked),
            }
        }
    }

    /// A reply is whole, and is the only one to a request that was sent. What it names is known.
    fn take(&mut self, reply: &[u8]) {
        let len = reply.len();
        assert!(len >= OUT_HEADER, "a reply of {len} bytes");
        assert_eq!(number(reply, 0, 4), len as u64, "length of a reply");
        let (error, unique) = (number(reply, 4, 4), number(reply, 8, 8));
        if unique == 0 {
            // A notification.
            return;
        }
        let opcode = self.asked.remove(&unique);
        let Some(opcode) = opcode else {
            panic!("no reply was due to {unique}: error {error:#x}, {len} bytes");
        };
        assert!(error == 0 || error > 0xffff_f000, "error {error:#x}");
        assert!(error == 0 || len == OUT_HEADER, "an error with data");
        if error != 0 {
            return;
        }
        let body = reply.get(OUT_HEADER..).unwrap_or_default();
        if NAMING.contains(&opcode) {
            self.learn(number(body, 0, 8));
        }
        if opcode == READDIRPLUS {
            let mut at = 0;
            while at + ENTRY + DIRENT <= body.len() {
                self.learn(number(body, at, 8));
                let name = usize::try_from(number(body, at + ENTRY + 16, 4)).unwrap_or(0);
                at += (ENTRY + DIRENT + name).next_multiple_of(8);
            }
        }
    }

    fn learn(&mut self, node: u64) {
        if node > 1 {
            *self.lookups.entry(node).or_default() += 1;
            if self.held.len() < HELD {
                self.held.push(node);
            }
        }
    }

    /// Waits for all replies, forgets all nodes and lets go of the mount. Returns the number of the
    /// last request.
    pub(super) fn end(mut self) -> u64 {
        self.wait_for_all();
        if self.is_honest {
            let known: Vec<(u64, u64)> = self.lookups.iter().map(|(n, c)| (*n, *c)).collect();
            for (node, count) in known.into_iter().filter(|(_, count)| *count > 0) {
                self.send_forget(node, count);
            }
        }
        self.last += 2;
        self.asked.insert(self.last, DESTROY);
        self.tell(DESTROY, self.last, 0, &[]);
        self.wait_for_all();
        let late = self.wire.reply(Duration::ZERO);
        if let Some(late) = late {
            self.take(&late);
        }
        self.last / 2
    }
}

/// Makes lengths in an operation agree with what follows it, or with what a message holds.
fn agree(opcode: u32, operation: &mut Vec<u8>, tail: usize) {
    let size = |operation: &mut Vec<u8>, size: u32| {
        operation.resize(40, 0);
        operation[16..20].copy_from_slice(&size.to_le_bytes());
    };
    match opcode {
        WRITE => size(operation, u32::try_from(tail).unwrap_or(0)),
        READ | READDIR | READDIRPLUS => {
            let asked = u32::try_from(number(operation, 16, 4)).unwrap_or(0);
            size(operation, asked % MOST);
        }
        GETATTR if operation.first().is_some_and(|flags| flags & 2 == 0) => {
            // With a handle: those that were opened have small numbers.
            let handle = 1 + number(operation, 8, 8) % HANDLES;
            operation.resize(16, 0);
            operation[0] |= 1;
            operation[8..].copy_from_slice(&handle.to_le_bytes());
        }
        _ => {}
    }
}
