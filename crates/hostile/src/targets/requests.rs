//! A mount for reading and writing, and requests of a kernel that may send anything: by `/dev/fuse`
//! and in entries of rings.

use extant::Volume;
use extant_fuse::testing::{FuzzServer, InEntry, with_server};

use super::{Cost, change};
use crate::feed::Feed;

/// The most requests of one run, and node numbers that are kept from replies.
const REQUESTS: usize = 48;
const HELD: usize = 24;
/// Bytes of a request's header and of a reply's.
const IN_HEADER: usize = 40;
const OUT_HEADER: usize = 16;
/// The largest opcode that is tried; there are fewer.
const OPCODES: u8 = 56;
/// Above the length of each operation's fixed part.
const FIXED: u8 = 104;
/// Opcodes of replies that begin with the number of a node, and of WRITE.
const NAMING: [u32; 6] = [1, 6, 8, 9, 13, 35];
const WRITE: u32 = 16;
/// Names and data behind the fixed part of an operation.
const TAILS: [&[u8]; 10] = [
    b"",
    b"n\0",
    b"lost+found\0",
    b"old\0new\0",
    b"n\0n\0",
    b"link\0target of it\0",
    b"user.x\0value",
    b".\0..\0",
    b"no end",
    &[b'w'; 300],
];

pub(super) fn run(data: &[u8]) -> Cost {
    change(data, &[], |seed| seed.mounts, serve)
}

/// Requests until the bytes run out; whether one of them has shut the file system down.
fn serve(volume: &Volume, feed: &mut Feed<'_>) -> bool {
    let served = with_server(volume, |server| {
        let mut kernel = Kernel {
            server,
            held: vec![1],
        };
        for unique in 1..=REQUESTS as u64 {
            if feed.is_empty() {
                break;
            }
            kernel.send(unique * 2, feed);
        }
    });
    // A damaged root directory has no server.
    served.is_err() || volume.sync().is_err()
}

struct Kernel<'a, 'b> {
    server: &'a mut FuzzServer<'b>,
    /// Numbers of nodes.
    held: Vec<u64>,
}

impl Kernel<'_, '_> {
    fn send(&mut self, unique: u64, feed: &mut Feed<'_>) {
        let how = feed.u8();
        let opcode = u32::from(feed.u8() % OPCODES);
        let node = match how & 1 {
            0 => feed.choose(&self.held).copied().unwrap_or(1),
            _ => u64::from(feed.u16()),
        };
        let mut fixed = {
            let len = usize::from(feed.u8() % FIXED);
            feed.take(len).to_vec()
        };
        let tail = feed.choose(&TAILS).copied().unwrap_or_default();
        if opcode == WRITE && how & 2 == 0 {
            // Lengths of data that agree are rare otherwise.
            fixed.resize(40, 0);
            let len = u32::try_from(tail.len()).unwrap_or(0);
            fixed[16..20].copy_from_slice(&len.to_le_bytes());
        }
        let mut len = IN_HEADER + fixed.len() + tail.len();
        if how & 0xf0 == 0xf0 {
            len = usize::try_from(feed.u32()).unwrap_or(len);
        }
        let header = header(len, opcode, unique, node, feed.u8());
        let reply = if how & 4 == 0 {
            self.server.by_device(&[&header[..], &fixed, tail].concat())
        } else {
            let said = match how & 8 {
                0 => u32::try_from(tail.len()).unwrap_or(0),
                _ => feed.u32(),
            };
            self.server.by_ring(InEntry {
                header: &header,
                operation: &fixed,
                payload: tail,
                said,
            })
        };
        if let Some(reply) = reply {
            self.look_at(&reply, opcode, unique);
        }
    }

    /// A reply is whole, and is that to the request. The number of the node that it names is kept.
    fn look_at(&mut self, reply: &[u8], opcode: u32, unique: u64) {
        let number = |at: usize, len: usize| {
            let bytes = reply.get(at..at + len).unwrap_or_default();
            bytes
                .iter()
                .rev()
                .fold(0_u64, |n, b| n << 8 | u64::from(*b))
        };
        assert!(
            reply.len() >= OUT_HEADER,
            "a reply of {} bytes",
            reply.len()
        );
        assert_eq!(number(0, 4), reply.len() as u64, "length of a reply");
        assert_eq!(number(8, 8), unique, "number of a reply");
        let error = number(4, 4);
        assert!(error == 0 || error > 0xffff_f000, "error {error:#x}");
        assert!(
            error == 0 || reply.len() == OUT_HEADER,
            "an error with data"
        );
        let node = number(OUT_HEADER, 8);
        if NAMING.contains(&opcode) && node != 0 && self.held.len() < HELD {
            self.held.push(node);
        }
    }
}

fn header(len: usize, opcode: u32, unique: u64, node: u64, user: u8) -> [u8; IN_HEADER] {
    let mut header = [0; IN_HEADER];
    let len = u32::try_from(len).unwrap_or(u32::MAX);
    let uid = u32::from(user % 3) * 500;
    let fields: [(usize, &[u8]); 6] = [
        (0, &len.to_le_bytes()),
        (4, &opcode.to_le_bytes()),
        (8, &unique.to_le_bytes()),
        (16, &node.to_le_bytes()),
        (24, &uid.to_le_bytes()),
        (28, &uid.to_le_bytes()),
    ];
    for (at, bytes) in fields {
        header[at..at + bytes.len()].copy_from_slice(bytes);
    }
    header
}
