use extant_engine::{SetAttr, VolumeOptions};
use extant_testkit::{Image, Need, need};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::abi::{ReadIn, op};
use crate::testing::{FuzzServer, with_server_beside};

const KIB: u64 = 1 << 10;

/// A request for a node, in one piece.
fn request(opcode: u32, nodeid: u64, body: &[u8]) -> Vec<u8> {
    let header = InHeader {
        len: u32::try_from(size_of::<InHeader>() + body.len()).unwrap(),
        opcode,
        unique: 2,
        nodeid,
        ..InHeader::default()
    };
    [header.as_bytes(), body].concat()
}

/// The number of a file of the root directory.
fn look_up(server: &mut FuzzServer<'_>, name: &[u8]) -> u64 {
    let request = request(op::LOOKUP, abi::ROOT_ID, name);
    let reply = server.by_device(&request).unwrap();
    let (entry, _) = abi::EntryOut::read_from_prefix(&reply[abi::OUT_HEADER..]).unwrap();
    entry.nodeid
}

/// The bytes that a READ of a file returns: those in the reply's memory, and the zeros behind.
fn read(
    server: &mut FuzzServer<'_>,
    id: u64,
    (offset, size): (u64, u64),
    sends_zeros: bool,
) -> (Vec<u8>, usize) {
    let body = ReadIn {
        offset,
        size: u32::try_from(size).unwrap(),
        ..ReadIn::default()
    };
    let request = request(op::READ, id, body.as_bytes());
    let (reply, zeros) = server.by_sender(&request, sends_zeros).unwrap();
    (reply[abi::OUT_HEADER..].to_vec(), zeros)
}

/// Long reads of holes, of unwritten blocks and of data, with a sender that has zeros and with one
/// that has none: the same bytes.
#[test]
fn a_hole_is_read_without_a_buffer() {
    if !need(&[Need::Tool("mke2fs")]) {
        return;
    }
    let image = Image::of_mib(16).args("-b 4096").make().unwrap();
    let volume = VolumeOptions::new().write(true).open(image.path()).unwrap();
    let (root, cred) = (volume.root().unwrap(), Cred::root());
    let file = volume.create(&root, b"f", 0o600, &cred).unwrap();
    let allocate = FallocateMode::Allocate { keep_size: false };
    volume
        .fallocate(&file, allocate, 256 * KIB, 128 * KIB, &cred)
        .unwrap();
    volume.write(&file, 512 * KIB, &[7; 5000], &cred).unwrap();
    let changes = SetAttr {
        size: Some(900 * KIB + 100),
        ..SetAttr::default()
    };
    volume.setattr(&file, &changes, &cred).unwrap();
    // A range, and the zeros that the sender adds for it.
    let cases = [
        (0, 64 * KIB, 64 * KIB),
        (0, 32 * KIB, 32 * KIB),
        (0, 16 * KIB, 0),
        (256 * KIB, 128 * KIB, 128 * KIB),
        (512 * KIB, 64 * KIB, 0),
        (448 * KIB, 128 * KIB, 0),
        (KIB + 1, 100 * KIB, 100 * KIB),
        (800 * KIB, 256 * KIB, 100 * KIB + 100),
        (901 * KIB, 64 * KIB, 0),
    ];
    for durable in [false, true] {
        with_server_beside(&volume, true, |server| {
            let id = look_up(server, b"f\0");
            for (offset, size, zeros) in cases {
                let (mut reply, found) = read(server, id, (offset, size), true);
                assert_eq!(found as u64, zeros, "{size} at {offset}");
                reply.resize(reply.len() + found, 0);
                let (whole, none) = read(server, id, (offset, size), false);
                assert_eq!(none, 0);
                assert!(reply == whole, "{size} at {offset}: {}", whole.len());
            }
        })
        .unwrap();
        if !durable {
            volume.sync().unwrap();
            volume.drop_cached(&file);
        }
    }
    volume.unmount().unwrap();
}
