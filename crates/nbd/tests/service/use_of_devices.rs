//! Requests of clients reach the device as they are meant, and its errors come back.

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread;

use extant_blockdev::{BlockDevice, MemoryDevice, OpenMode};
use extant_nbd::{NbdDevice, ServeOptions, Server, Service};
use extant_testkit::{Fault, FaultyDevice, Loss, LossyDevice, Request, RequestKind, Rng, TempDir};
use extant_units::DevOff;

use crate::raw_client::{FLUSH, FUA, READ, RawClient, TRIM, WRITE, ZEROES, request};

const LEN: u64 = 1 << 20;

fn served(device: Arc<dyn BlockDevice>) -> Arc<Service> {
    Service::new(device, ServeOptions::default()).unwrap()
}

/// Changes a part of `device`, and of `model` likewise.
fn change(device: &NbdDevice, at: u64, model: &mut [u8], rng: &mut Rng) {
    let from = rng.index(model.len());
    let len = rng.index(model.len() - from) % 70_000;
    let part = &mut model[from..from + len];
    let at = DevOff::new(at + from as u64);
    match rng.below(5) {
        0 => {
            part.fill(0);
            device.write_zeroes(at, len as u64).unwrap();
        }
        1 => {
            let mut read = vec![1; len];
            device.read_at(at, &mut read).unwrap();
            assert_eq!(read, part);
        }
        kind => {
            part.fill_with(|| rng.next_u64().to_le_bytes()[0]);
            let written = match kind {
                2 => device.write_durable(at, part),
                _ => device.write_at(at, part),
            };
            written.unwrap();
        }
    }
}

/// Four clients with several connections each, each with its part of the device.
#[test]
fn clients_at_a_time_agree_with_memory() {
    let dir = TempDir::new("nbd-served").unwrap();
    let memory = Arc::new(MemoryDevice::new(LEN));
    let service = served(Arc::clone(&memory) as _);
    let server = Server::listen_unix(&dir.join("socket"), service).unwrap();
    let (address, stopper) = (server.address(), server.stopper());
    let running = thread::spawn(move || server.run(false));
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let address = address.parse().unwrap();
            thread::spawn(move || {
                let device = NbdDevice::connect(address, OpenMode::ReadWrite).unwrap();
                let mut rng = Rng::new(number);
                let mut model = vec![0; 1 << 18];
                (0..200).for_each(|_| change(&device, number << 18, &mut model, &mut rng));
                device.flush().unwrap();
                device.discard(DevOff::new(number << 18), 0).unwrap();
                model
            })
        })
        .collect();
    let model: Vec<u8> = clients
        .into_iter()
        .flat_map(|one| one.join().unwrap())
        .collect();
    assert!(memory.to_bytes() == model);
    stopper.stop();
    running.join().unwrap().unwrap();
    assert!(!dir.join("socket").exists());
}

#[test]
fn what_cannot_be_done_has_its_number() {
    let service = served(Arc::new(MemoryDevice::new(LEN)));
    let mut client = RawClient::ready(&service, false);
    let past = LEN - 8;
    for (command, flags, offset, len, number) in [
        (READ, 0, past, 9, 22),
        (READ, 0, u64::MAX, 2, 22),
        (WRITE, 0, past, 9, 28),
        (ZEROES, 0, past, 9, 28),
        (TRIM, 0, past, 9, 22),
        (READ, 1 << 2, 0, 8, 22),
        (WRITE, 1 << 1, 0, 9, 22),
        (5, 0, 0, 9, 22),
        (77, 0, 0, 9, 22),
        (FLUSH, 0, u64::MAX, 9, 0),
        (WRITE, FUA, past, 8, 0),
        (ZEROES, 1 << 1 | FUA, 1, 200_000, 0),
        (TRIM, FUA, 0, 4096, 0),
        (WRITE, 0, 0, 0, 0),
        (READ, 0, 0, 0, 0),
    ] {
        client.send(&request(command, flags, offset, len));
        if command == WRITE {
            client.send(&vec![9; len as usize]);
        }
        assert_eq!(client.simple(), number, "{command} {flags} {offset} {len}");
    }
    client.send(&request(READ, 0, past, 8));
    assert_eq!((client.simple(), client.receive(8)), (0, vec![9; 8]));
    // An export of more than 32 MiB, of which a reply has at most that.
    let large = served(Arc::new(MemoryDevice::new(40 << 20)));
    let mut client = RawClient::ready(&large, false);
    client.send(&request(READ, 0, 0, (32 << 20) + 1));
    assert_eq!(client.simple(), 75);
    client.send(&request(WRITE, 0, 0, (32 << 20) + 1));
    let error = client.end().1.unwrap_err().to_string();
    assert!(error.contains("a write of 33554433 bytes"), "{error}");
}

#[test]
fn structured_replies_have_data_holes_and_errors() {
    let memory = MemoryDevice::new(LEN);
    memory.write_at(DevOff::new(4096), &[5; 100]).unwrap();
    let service = served(Arc::new(memory));
    let mut client = RawClient::ready(&service, true);
    client.send(&request(READ, 0, 0, 4096));
    assert_eq!(client.chunk(), (2, b"\0\0\0\0\0\0\0\0\0\0\x10\0".to_vec()));
    client.send(&request(READ, 0, 4000, 97));
    let mut data = 4000_u64.to_be_bytes().to_vec();
    data.extend([&[0; 96][..], &[5]].concat());
    assert_eq!(client.chunk(), (1, data));
    client.send(&request(READ, 0, 0, 0));
    assert_eq!(client.chunk(), (0, vec![]));
    client.send(&request(FLUSH, 0, 0, 0));
    assert_eq!(client.chunk(), (0, vec![]));
    client.send(&request(READ, 0, LEN, 1));
    assert_eq!(client.chunk(), ((1 << 15) + 1, b"\0\0\0\x16\0\0".to_vec()));
}

#[test]
fn an_export_that_is_read_only_is_not_changed() {
    let memory = Arc::new(MemoryDevice::new(LEN));
    let mut options = ServeOptions::default();
    options.read_only = true;
    let service = Service::new(Arc::clone(&memory) as _, options).unwrap();
    let mut client = RawClient::ready(&service, false);
    for command in [WRITE, TRIM, ZEROES] {
        client.send(&request(command, 0, 0, 512));
        if command == WRITE {
            client.send(&[1; 512]);
        }
        assert_eq!(client.simple(), 1);
    }
    client.send(&request(FLUSH, 0, 0, 0));
    assert_eq!(client.simple(), 0);
    assert!(client.end().1.is_ok());
    assert!(memory.to_bytes().iter().all(|&byte| byte == 0));
}

/// Each kind of error of a device gets the number that the protocol has for it.
#[test]
fn errors_of_the_device_reach_the_client() {
    for (kind, number) in [
        (ErrorKind::StorageFull, 28),
        (ErrorKind::OutOfMemory, 12),
        (ErrorKind::InvalidInput, 5),
        (ErrorKind::Other, 5),
    ] {
        let plan = move |one: Request<'_>| match one.kind {
            RequestKind::Read if one.offset.get() > 0 => Fault::Fail(kind),
            _ => Fault::Pass,
        };
        let service = served(Arc::new(FaultyDevice::new(MemoryDevice::new(LEN), plan)));
        let mut client = RawClient::ready(&service, false);
        client.send(&request(READ, 0, 4096, 8));
        assert_eq!(client.simple(), number);
        client.send(&request(READ, 0, 0, 8));
        assert_eq!((client.simple(), client.receive(8)), (0, vec![0; 8]));
    }
}

/// After a flush that failed none succeeds, of any client: its writes may be those that were lost.
#[test]
fn a_failed_flush_is_remembered_for_all_clients() {
    let device = Arc::new(LossyDevice::new(MemoryDevice::new(LEN)));
    let service = served(Arc::clone(&device) as _);
    let mut one = RawClient::ready(&service, false);
    let mut two = RawClient::ready(&service, false);
    two.send(&request(WRITE, 0, 0, 512));
    two.send(&[1; 512]);
    assert_eq!(two.simple(), 0);
    device.fail(Loss {
        after: 0,
        seed: 1,
        cached: false,
    });
    for client in [&mut one, &mut two] {
        client.send(&request(FLUSH, 0, 0, 0));
        assert_eq!(client.simple(), 5);
    }
    assert_eq!(device.failures(), 1);
}
