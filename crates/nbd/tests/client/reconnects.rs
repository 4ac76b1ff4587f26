//! A server that is lost: what was acknowledged is there, or the device says that it may not be.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use extant_blockdev::{BlockDevice, IoBuf, IoOp, IoRequest, OpenMode, open_queue};
use extant_nbd::NbdDevice;
use extant_testkit::Rng;
use extant_units::DevOff;

use crate::requests::{connect, counter, noise};
use crate::server::{Act, Offer, Seen, Server, brief_timeout};

const LEN: usize = 1 << 20;

/// A plan that does `act` with one request of about `every`, chosen by a generator.
fn sometimes(seed: u64, every: u64, acts: &'static [Act]) -> impl Fn(Seen) -> Act + Send + Sync {
    let rng = Mutex::new(Rng::new(seed));
    move |_| {
        let mut rng = rng.lock().unwrap();
        match rng.below(every) {
            0 => acts[rng.index(acts.len())],
            _ => Act::Serve,
        }
    }
}

/// Whatever the moment at which the server dies and forgets, each flush that succeeds covers every
/// write before it, and reads see what was written.
#[test]
fn a_flush_covers_what_a_dead_server_forgot() {
    const ACTS: &[Act] = &[Act::Crash, Act::Hang, Act::ServeAndHang, Act::Refuse(108)];
    for seed in 0..6 {
        let flags = [crate::server::ALL, crate::server::FLUSH][extant_units::index(seed % 2)];
        let offer = Offer {
            flags,
            structured: seed % 3 != 0,
            ..Offer::default()
        };
        let server = Server::start(offer, sometimes(seed, 25, ACTS));
        let device = connect(&server, "connections=3");
        let mut rng = Rng::new(seed);
        let mut model = vec![0; LEN];
        for step in 0..150 {
            let scale = [600, 9000, 60_000][rng.index(3)];
            let len = 1 + rng.index(scale);
            let at = rng.index(LEN - len);
            let offset = DevOff::new(at as u64);
            match rng.below(8) {
                0..=3 => {
                    let bytes = noise(&mut rng, len);
                    device.write_at(offset, &bytes).unwrap();
                    model[at..at + len].copy_from_slice(&bytes);
                }
                4 => {
                    device.write_zeroes(offset, len as u64).unwrap();
                    model[at..at + len].fill(0);
                }
                5 => {
                    let bytes = noise(&mut rng, len);
                    device.write_durable(offset, &bytes).unwrap();
                    model[at..at + len].copy_from_slice(&bytes);
                    assert!(server.durable() == model, "seed {seed}, step {step}");
                }
                6 => {
                    device.flush().unwrap();
                    assert!(server.durable() == model, "seed {seed}, step {step}");
                }
                _ => {
                    let mut read = vec![1; len];
                    device.read_at(offset, &mut read).unwrap();
                    assert!(read == model[at..at + len], "seed {seed}, step {step}");
                }
            }
        }
        device.flush().unwrap();
        assert!(server.durable() == model, "seed {seed}");
        assert!(counter(&device, "nbd_reconnects") > 0, "seed {seed}");
        assert!(counter(&device, "nbd_resent") > 0, "seed {seed}");
    }
}

/// The same with many requests in flight from several threads.
#[test]
fn a_queue_survives_a_server_that_dies() {
    const ACTS: &[Act] = &[Act::Crash, Act::ServeAndHang];
    let server = Server::start(Offer::default(), sometimes(5, 200, ACTS));
    let device: Arc<dyn BlockDevice> = Arc::new(connect(&server, ""));
    std::thread::scope(|scope| {
        for part in 0..4_u64 {
            let device = Arc::clone(&device);
            scope.spawn(move || {
                let mut queue = open_queue(&device, 16);
                let mut done = Vec::new();
                for round in 0..20_u64 {
                    for tag in 0..16 {
                        let at = (part * 16 + tag) * 16_384;
                        let byte = (round * 3 + tag + part).to_le_bytes()[0];
                        let request = IoRequest {
                            op: IoOp::Write,
                            offset: DevOff::new(at),
                            buf: IoBuf::copy_of(&[byte; 8192]),
                            tag,
                        };
                        queue.submit(request).unwrap();
                    }
                    queue.drain(&mut done);
                    done.drain(..).for_each(|one| one.result.unwrap());
                    if round % 2 == 0 {
                        device.flush().unwrap();
                    }
                }
            });
        }
    });
    device.flush().unwrap();
    let durable = server.durable();
    for (at, chunk) in durable.chunks(16_384).enumerate() {
        let (part, tag) = (at / 16, at % 16);
        let byte = (19 * 3 + tag + part).to_le_bytes()[0];
        assert!(
            chunk[..8192].iter().all(|&b| b == byte),
            "part {part}, {tag}"
        );
    }
    assert!(counter(&*device, "nbd_reconnects") > 0);
}

/// The server may carry a write out after its reply was given up. Nothing is believed then.
#[test]
fn a_write_without_a_reply_ends_the_device() {
    let plan = |seen: Seen| match seen.command {
        1 => Act::Ignore,
        _ => Act::Serve,
    };
    let server = Server::start(Offer::default(), plan);
    let device = connect(&server, &brief_timeout());
    let error = device.write_at(DevOff::ZERO, &[1; 512]).unwrap_err();
    let why = "may carry out later what was written";
    assert!(error.to_string().contains(why), "{error}");
    for _ in 0..2 {
        let error = device.flush().unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
    assert!(device.write_at(DevOff::ZERO, &[1; 512]).is_err());
    assert_eq!(counter(&device, "nbd_reconnects"), 0);
}

#[test]
fn a_read_without_a_reply_is_made_again() {
    let plan = |seen: Seen| match seen.index {
        1 => Act::Ignore,
        _ => Act::Serve,
    };
    let server = Server::start(Offer::default(), plan);
    let device = connect(&server, &format!("{}&connections=1", brief_timeout()));
    device.write_at(DevOff::ZERO, &[7; 512]).unwrap();
    let mut read = [0; 512];
    device.read_at(DevOff::ZERO, &mut read).unwrap();
    assert_eq!(read, [7; 512]);
    assert_eq!(counter(&device, "nbd_reconnects"), 1);
}

#[test]
fn a_request_that_ends_every_session_fails() {
    let plan = |seen: Seen| match seen.command {
        0 => Act::Hang,
        _ => Act::Serve,
    };
    let server = Server::start(Offer::default(), plan);
    let device = connect(&server, "connections=1");
    let error = device.read_at(DevOff::ZERO, &mut [0; 512]).unwrap_err();
    assert!(error.to_string().contains("8 times"), "{error}");
    // Nothing was lost by it.
    device.write_at(DevOff::ZERO, &[1; 512]).unwrap();
    device.flush().unwrap();
    assert_eq!(server.durable()[..512], [1; 512]);
}

/// A device that owes nothing waits for its server; one that does fails for good.
#[test]
fn a_server_that_stays_away_ends_only_a_device_that_owes() {
    for owes in [false, true] {
        let server = Server::start(Offer::default(), |_| Act::Serve);
        let device = connect(&server, "reconnect=1");
        device.write_at(DevOff::ZERO, &[1; 512]).unwrap();
        if !owes {
            device.flush().unwrap();
        }
        server.stop();
        let error = device.flush().unwrap_err().to_string();
        assert!(error.contains("not reached again within 1 s"), "{error}");
        assert_eq!(error.contains("may be lost"), owes, "{error}");
        server.listen();
        assert_eq!(device.flush().is_err(), owes);
        assert_eq!(device.write_at(DevOff::ZERO, &[2; 512]).is_err(), owes);
    }
}

#[test]
fn an_export_that_changed_is_not_used() {
    let server = Server::start(Offer::default(), |_| Act::Serve);
    let device = connect(&server, "");
    device.flush().unwrap();
    server.stop();
    server.grow();
    server.listen();
    let error = device.flush().unwrap_err();
    assert!(error.to_string().contains("not what it was"), "{error}");
}

/// A write that a new server refuses was acknowledged: no flush may succeed.
#[test]
fn a_log_that_is_refused_ends_the_device() {
    let crashed = Arc::new(AtomicBool::new(false));
    let seen_crash = Arc::clone(&crashed);
    let plan = move |seen: Seen| match seen.command {
        3 if !seen_crash.swap(true, Ordering::SeqCst) => Act::Crash,
        1 if seen_crash.load(Ordering::SeqCst) => Act::Refuse(28),
        _ => Act::Serve,
    };
    let server = Server::start(Offer::default(), plan);
    let device = connect(&server, "");
    device.write_at(DevOff::ZERO, &[1; 512]).unwrap();
    for _ in 0..2 {
        let error = device.flush().unwrap_err();
        assert!(error.to_string().contains("the server refuses"), "{error}");
    }
}

/// The log has a bound, and a flush that the device makes on its own is not forgotten when it
/// fails.
#[test]
fn a_long_stream_is_flushed_on_the_way() {
    let offer = || Offer {
        len: 96 << 20,
        ..Offer::default()
    };
    let flushes = Arc::new(AtomicU64::new(0));
    let seen_flushes = Arc::clone(&flushes);
    let plan = move |seen: Seen| {
        if seen.command == 3 {
            seen_flushes.fetch_add(1, Ordering::SeqCst);
        }
        Act::Serve
    };
    let server = Server::start(offer(), plan);
    let device = connect(&server, "");
    let bytes = vec![3; 4 << 20];
    let write = |device: &NbdDevice, nth: u64| device.write_at(DevOff::new(nth << 22), &bytes);
    for nth in 0..24 {
        write(&device, nth).unwrap();
        assert!(counter(&device, "nbd_unflushed_bytes") <= 64 << 20);
    }
    assert_eq!(flushes.load(Ordering::SeqCst), 1);
    assert_eq!(counter(&device, "nbd_own_flushes"), 1);

    let server = Server::start(offer(), |seen| match seen.command {
        3 => Act::Refuse(5),
        _ => Act::Serve,
    });
    let device = connect(&server, "");
    let failed = (0..24).find_map(|nth| write(&device, nth).err());
    assert_eq!(failed.unwrap().raw_os_error(), Some(5));
    let error = device.flush().unwrap_err();
    assert!(error.to_string().contains("may be lost"), "{error}");
}

#[test]
fn a_reader_waits_for_its_server() {
    const ACTS: &[Act] = &[Act::Crash, Act::Hang];
    let server = Server::start(Offer::default(), sometimes(3, 10, ACTS));
    let device = NbdDevice::connect(server.address(""), OpenMode::ReadOnly).unwrap();
    for at in 0..200 {
        let mut read = [1; 4096];
        device.read_at(DevOff::new(at * 4096), &mut read).unwrap();
        assert_eq!(read, [0; 4096]);
    }
    assert!(counter(&device, "nbd_reconnects") > 5);
}
