//! Clients that send anything: thousands of sessions, made of garbage and of true sessions that
//! were changed.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;

use extant_blockdev::{BlockDevice, MemoryDevice, OpenMode};
use extant_nbd::{NbdDevice, ServeOptions, Server, Service};
use extant_testkit::{Rng, TempDir};
use extant_units::DevOff;

use crate::raw_client::{FLUSH, PLAIN, READ, TRIM, WRITE, ZEROES, named, option, request};

const LEN: u64 = 1 << 18;
const SESSIONS: u64 = 3000;

/// A session as a client may have it.
fn session(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = PLAIN.to_vec();
    for _ in 0..rng.below(4) {
        let data = vec![0; rng.index(40)];
        let number = [2, 3, 5, 6, 8, 9, 10][rng.index(7)];
        bytes.extend(option(number, if rng.chance(70) { &[] } else { &data }));
    }
    bytes.extend(option(if rng.chance(80) { 7 } else { 1 }, &named("")));
    for _ in 0..rng.below(20) {
        let command = [READ, WRITE, FLUSH, TRIM, ZEROES][rng.index(5)];
        let len = u32::try_from(rng.below(5000)).unwrap();
        bytes.extend(request(command, 0, rng.below(LEN), len));
        if command == WRITE {
            bytes.extend((0..len).map(|_| 0xee));
        }
    }
    bytes
}

/// Bytes for one connection.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    if rng.chance(10) {
        let len = rng.index(2000);
        return (0..len).map(|_| rng.next_u64().to_le_bytes()[0]).collect();
    }
    let mut bytes = session(rng);
    for _ in 0..rng.below(4) {
        let at = rng.index(bytes.len());
        match rng.below(4) {
            0 => bytes.truncate(at.max(1)),
            1 => bytes[at] = rng.next_u64().to_le_bytes()[0],
            2 => bytes[at] ^= 1 << rng.below(8),
            _ => {
                let end = (at + rng.index(64)).min(bytes.len());
                bytes.drain(at..end);
                if bytes.is_empty() {
                    return vec![0];
                }
            }
        }
    }
    bytes
}

/// Every session ends, none brings its thread down, and what may not be changed is as it was.
#[test]
fn sessions_of_garbage_end() {
    let memory = Arc::new(MemoryDevice::new(LEN));
    memory.write_at(DevOff::ZERO, &[3; 4096]).unwrap();
    let before = memory.to_bytes();
    let mut options = ServeOptions::default();
    options.read_only = true;
    let fixed = Service::new(Arc::clone(&memory) as _, options.clone()).unwrap();
    options.read_only = false;
    let changed = Service::new(Arc::new(MemoryDevice::new(LEN)), options).unwrap();
    let mut rng = Rng::new(4);
    let (mut sound, mut broken) = (0, 0);
    for number in 0..SESSIONS {
        let (mut stream, other) = UnixStream::pair().unwrap();
        let own = Arc::clone(if number % 2 == 0 { &fixed } else { &changed });
        let serving = thread::spawn(move || own.serve(other));
        let sent = bytes(&mut rng);
        let mut input = stream.try_clone().unwrap();
        let reading = thread::spawn(move || input.read_to_end(&mut Vec::new()));
        // The server may have ended it.
        let _ = stream.write_all(&sent);
        let _ = stream.shutdown(Shutdown::Write);
        let _ = reading.join().unwrap();
        match serving.join() {
            Ok(Ok(())) => sound += 1,
            Ok(Err(_)) => broken += 1,
            Err(_) => panic!("session {number} brought its thread down"),
        }
    }
    let tenth = SESSIONS / 10;
    assert!(sound > tenth && broken > tenth, "{sound} and {broken}");
    assert!(memory.to_bytes() == before);
}

/// The same beside a client whose reads stay right.
#[test]
fn garbage_beside_a_sound_client() {
    let dir = TempDir::new("nbd-garbage").unwrap();
    let socket = dir.join("socket");
    let memory = MemoryDevice::new(LEN);
    memory.write_at(DevOff::ZERO, &[3; 4096]).unwrap();
    let mut options = ServeOptions::default();
    options.read_only = true;
    let service = Service::new(Arc::new(memory), options).unwrap();
    let server = Server::listen_unix(&socket, service).unwrap();
    let (address, stopper) = (server.address(), server.stopper());
    let running = thread::spawn(move || server.run(false));
    let sound = NbdDevice::connect(address.parse().unwrap(), OpenMode::ReadOnly).unwrap();
    let mut rng = Rng::new(5);
    let mut open = Vec::new();
    for _ in 0..300 {
        if let Ok(mut stream) = UnixStream::connect(&socket) {
            let _ = stream.write_all(&bytes(&mut rng));
            open.push(stream);
        }
        if open.len() > 40 {
            open.remove(0);
        }
        let mut read = [0; 4100];
        sound.read_at(DevOff::ZERO, &mut read).unwrap();
        assert!(read[..4096] == [3; 4096] && read[4096..] == [0; 4]);
    }
    drop(sound);
    stopper.stop();
    running.join().unwrap().unwrap();
}
