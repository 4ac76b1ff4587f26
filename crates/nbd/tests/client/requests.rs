//! Requests to a sound server end as on a device in memory.

use std::io::{ErrorKind, IoSlice, IoSliceMut};
use std::sync::Arc;

use extant_blockdev::{BlockDevice, IoBuf, IoOp, IoRequest, OpenMode, open_queue};
use extant_nbd::{NbdDevice, NbdError};
use extant_testkit::Rng;
use extant_units::DevOff;

use crate::server::{ALL, Act, FLUSH, FUA, MULTI, Offer, Server};

pub(crate) fn connect(server: &Server, parameters: &str) -> NbdDevice {
    NbdDevice::connect(server.address(parameters), OpenMode::ReadWrite).unwrap()
}

/// A counter of the device.
pub(crate) fn counter(device: &dyn BlockDevice, name: &str) -> u64 {
    let counters = device.counters();
    let found = counters.iter().find(|(known, _)| *known == name);
    found.unwrap_or_else(|| panic!("no counter {name}")).1
}

/// Random bytes for a change.
pub(crate) fn noise(rng: &mut Rng, len: usize) -> Vec<u8> {
    (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect()
}

/// Offers that differ in what the client has to do itself.
fn offers() -> Vec<Offer> {
    let whole = Offer::default;
    vec![
        whole(),
        Offer {
            structured: false,
            ..whole()
        },
        Offer {
            flags: FLUSH,
            ..whole()
        },
        Offer {
            flags: FUA | MULTI,
            ..whole()
        },
        Offer {
            blocks: Some([512, 4096, 16_384]),
            ..whole()
        },
        Offer {
            len: (1 << 20) + 100,
            blocks: Some([4096, 65_536, 65_536]),
            ..whole()
        },
    ]
}

#[test]
fn random_requests_agree_with_memory() {
    for (number, offer) in (0..).zip(offers()) {
        let server = Server::start(offer, |_| Act::Serve);
        let device = connect(&server, "");
        let mut rng = Rng::new(number);
        assert_eq!(device.len(), 1 << 20);
        let mut model = vec![0; 1 << 20];
        for step in 0..120 {
            let scale = [20, 5000, 200_000][rng.index(3)];
            let len = 1 + rng.index(scale);
            let at = rng.index(model.len() - len);
            let offset = DevOff::new(at as u64);
            match rng.below(6) {
                0 => {
                    let bytes = noise(&mut rng, len);
                    device.write_at(offset, &bytes).unwrap();
                    model[at..at + len].copy_from_slice(&bytes);
                }
                1 => {
                    let bytes = noise(&mut rng, len);
                    let (one, two) = bytes.split_at(len / 3);
                    let both = [IoSlice::new(one), IoSlice::new(two)];
                    device.write_vectored_at(offset, &both).unwrap();
                    model[at..at + len].copy_from_slice(&bytes);
                }
                2 => {
                    device.write_zeroes(offset, len as u64).unwrap();
                    model[at..at + len].fill(0);
                }
                3 => {
                    let bytes = noise(&mut rng, len);
                    device.write_durable(offset, &bytes).unwrap();
                    model[at..at + len].copy_from_slice(&bytes);
                    let durable = server.durable();
                    assert!(
                        durable[..model.len()] == model,
                        "offer {number}, step {step}"
                    );
                }
                4 => {
                    let (mut one, mut two) = (vec![1; len / 4], vec![1; len - len / 4]);
                    let mut both = [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)];
                    device.read_vectored_at(offset, &mut both).unwrap();
                    let read = [one, two].concat();
                    assert!(read == model[at..at + len], "offer {number}, step {step}");
                }
                _ => {
                    let mut read = vec![1; len];
                    device.read_at(offset, &mut read).unwrap();
                    assert!(read == model[at..at + len], "offer {number}, step {step}");
                }
            }
        }
        device.flush().unwrap();
        assert!(server.durable()[..model.len()] == model, "offer {number}");
        assert_eq!(counter(&device, "nbd_unflushed_bytes"), 0);
        assert_eq!(counter(&device, "nbd_reconnects"), 0);
    }
}

#[test]
fn a_queue_has_many_requests_in_flight() {
    for (number, offer) in (0..).zip(offers()) {
        let server = Server::start(offer, |_| Act::Serve);
        let device: Arc<dyn BlockDevice> = Arc::new(connect(&server, ""));
        let mut queue = open_queue(&device, 32);
        let mut rng = Rng::new(number);
        let mut model = vec![0; 1 << 20];
        // Blocks of their own: the order of requests in flight is free.
        for round in 0..4 {
            let mut done = Vec::new();
            for tag in 0..32_u64 {
                let len = [4096, 20_480, 512, 700][rng.index(4)];
                let at = extant_units::index(tag) * 32_768;
                let bytes = noise(&mut rng, len);
                model[at..at + len].copy_from_slice(&bytes);
                let request = IoRequest {
                    op: IoOp::Write,
                    offset: DevOff::new(at as u64),
                    buf: IoBuf::copy_of(&bytes),
                    tag,
                };
                queue.submit(request).unwrap();
            }
            queue.drain(&mut done);
            assert_eq!(done.len(), 32);
            for (op, tag) in [(IoOp::Flush, 0), (IoOp::Read, 1)] {
                let (offset, buf) = (DevOff::ZERO, IoBuf::zeroed(1 << 20));
                let request = IoRequest {
                    op,
                    offset,
                    buf,
                    tag,
                };
                queue.submit(request).unwrap();
            }
            queue.drain(&mut done);
            done.iter()
                .for_each(|one| assert!(one.result.is_ok(), "{one:?}"));
            let read = done
                .iter()
                .rev()
                .find(|one| one.tag == 1 && one.buf.len() == 1 << 20);
            assert!(
                *read.unwrap().buf == *model,
                "offer {number}, round {round}"
            );
            assert!(server.durable()[..model.len()] == model, "offer {number}");
        }
    }
}

#[test]
fn errors_of_the_server_are_those_of_the_host() {
    for structured in [true, false] {
        let offer = Offer {
            structured,
            ..Offer::default()
        };
        // The first write has no space, the second read fails, a flush fails.
        let server = Server::start(offer, |seen| match (seen.index, seen.command) {
            (0, 1) => Act::Refuse(28),
            (2, 0) => Act::Refuse(5),
            (3, 3) => Act::Refuse(1),
            (_, 4) => Act::Refuse(95),
            _ => Act::Serve,
        });
        let device = connect(&server, "");
        let mut buf = [0; 512];
        let full = device.write_at(DevOff::ZERO, &buf).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        device.read_at(DevOff::ZERO, &mut buf).unwrap();
        let failed = device.read_at(DevOff::ZERO, &mut buf).unwrap_err();
        assert_eq!(failed.raw_os_error(), Some(5));
        let refused = device.flush().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        device.flush().unwrap();
        // Only a hint.
        device.discard(DevOff::ZERO, 4096).unwrap();
        let past = device.read_at(DevOff::new(1 << 20), &mut buf).unwrap_err();
        assert_eq!(past.kind(), ErrorKind::InvalidInput);
        assert_eq!(counter(&device, "nbd_reconnects"), 0);
    }
}

#[test]
fn what_cannot_be_written_is_refused_at_once() {
    let open = |flags: u16, mode| {
        let offer = Offer {
            flags,
            ..Offer::default()
        };
        let server = Server::start(offer, |_| Act::Serve);
        NbdDevice::connect(server.address(""), mode)
    };
    let read_only = 1 << 1;
    let refused = open(ALL | read_only, OpenMode::ReadWrite).err();
    assert!(matches!(refused, Some(NbdError::ReadOnly)));
    assert!(matches!(
        open(MULTI, OpenMode::ReadWrite).err(),
        Some(NbdError::NoDurability)
    ));
    for flags in [ALL | read_only, MULTI, 0, ALL] {
        let device = open(flags, OpenMode::ReadOnly).unwrap();
        assert!(device.is_read_only());
        let refused = device.write_at(DevOff::ZERO, &[1]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ReadOnlyFilesystem);
    }
}

#[test]
fn connections_are_as_many_as_the_server_allows() {
    for (flags, parameters, expected) in [
        (ALL, "", 4),
        (ALL, "connections=2", 2),
        (ALL & !MULTI, "connections=8", 1),
    ] {
        let offer = Offer {
            flags,
            ..Offer::default()
        };
        let server = Server::start(offer, |_| Act::Serve);
        let device = connect(&server, parameters);
        assert_eq!(server.connections(), expected);
        assert_eq!(counter(&device, "nbd_connections"), expected);
    }
}
