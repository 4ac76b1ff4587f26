//! Ends of clients and of servers: nothing that was answered is lost, and no client disturbs
//! another.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use extant_blockdev::{BlockDevice, MemoryDevice, OpenMode};
use extant_nbd::{NbdDevice, ServeOptions, Server, Service};
use extant_testkit::{GatedDevice, RequestKind, TempDir};
use extant_units::DevOff;

use crate::MEMORY;
use crate::raw_client::{DISCONNECT, READ, RawClient, WRITE, request};

const LEN: u64 = 1 << 20;

fn served(device: Arc<dyn BlockDevice>) -> Arc<Service> {
    Service::new(device, ServeOptions::default()).unwrap()
}

/// Of a request that comes in part, nothing is carried out; those before it are.
#[test]
fn half_of_a_request_is_nothing() {
    let memory = Arc::new(MemoryDevice::new(4096));
    let service = served(Arc::clone(&memory) as _);
    let whole = [&request(WRITE, 0, 0, 4)[..], b"abcd"].concat();
    let second = [&request(WRITE, 0, 8, 4)[..], b"efgh"].concat();
    for cut in 1..second.len() {
        memory.write_zeroes(DevOff::ZERO, 16).unwrap();
        let mut client = RawClient::ready(&service, false);
        client.send(&whole);
        client.send(&second[..cut]);
        let (replies, ended) = client.end();
        assert_eq!(replies.len(), 16);
        assert!(ended.is_err(), "{cut}");
        assert_eq!(memory.to_bytes()[..16], *b"abcd\0\0\0\0\0\0\0\0\0\0\0\0");
    }
}

/// A client that asks for much and reads nothing costs a bounded amount of memory, and another one
/// is served meanwhile.
#[test]
fn a_client_that_does_not_read_disturbs_no_other() {
    let service = served(Arc::new(MemoryDevice::new(32 << 20)));
    let mut greedy = RawClient::ready(&service, false);
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let asked = request(READ, 0, 0, 32 << 20).repeat(100);
    greedy.stream.write_all(&asked).unwrap();
    // Its first reply has begun.
    assert_eq!(greedy.simple(), 0);
    // The server has taken what it takes.
    let mut usage = 0;
    while usage != MEMORY.peak_usage() {
        usage = MEMORY.peak_usage();
        thread::sleep(Duration::from_millis(200));
    }
    let mut other = RawClient::ready(&service, false);
    for _ in 0..100 {
        other.send(&request(READ, 0, 4096, 4096));
        assert_eq!((other.simple(), other.receive(4096)), (0, vec![0; 4096]));
    }
    let most = MEMORY.peak_usage() - before;
    // Beside the one reply, other tests of this program have their devices at the same time.
    assert!(most < 160 << 20, "{most}");
    greedy.stream.shutdown(Shutdown::Both).unwrap();
    assert!(greedy.end().1.is_err());
}

/// The requests that a client sent before it disconnected are carried out and answered.
#[test]
fn what_was_sent_before_the_end_is_answered() {
    let device = Arc::new(GatedDevice::new(MemoryDevice::new(LEN)));
    let service = served(Arc::clone(&device) as _);
    let mut client = RawClient::ready(&service, false);
    let closed = device.gate().close(|one| one.kind == RequestKind::Write);
    for _ in 0..20 {
        client.send(&request(WRITE, 0, 0, 4));
        client.send(b"abcd");
    }
    client.send(&request(DISCONNECT, 0, 0, 0));
    closed.wait_for(4);
    assert_eq!(device.gate().held(), 4, "as many as there are threads");
    drop(closed);
    let (replies, ended) = client.end();
    assert_eq!(replies.len(), 20 * 16);
    assert!(ended.is_ok());
}

/// A server that is stopped answers what it has, and removes its socket.
#[test]
fn a_server_that_stops_answers() {
    let dir = TempDir::new("nbd-stop").unwrap();
    let device = Arc::new(GatedDevice::new(MemoryDevice::new(LEN)));
    let socket = dir.join("socket");
    let server = Server::listen_unix(&socket, served(Arc::clone(&device) as _)).unwrap();
    let mode = fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let again = Server::listen_unix(&socket, served(Arc::new(MemoryDevice::new(512))));
    let error = again.err().unwrap();
    assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    let (address, stopper) = (server.address(), server.stopper());
    let running = thread::spawn(move || server.run(false));
    let client = NbdDevice::connect(address.parse().unwrap(), OpenMode::ReadWrite).unwrap();
    let closed = device.gate().close(|one| one.kind == RequestKind::Write);
    let writing = thread::spawn(move || client.write_at(DevOff::ZERO, b"kept"));
    closed.wait_for(1);
    stopper.stop();
    assert!(!writing.is_finished() && !running.is_finished());
    drop(closed);
    writing.join().unwrap().unwrap();
    running.join().unwrap().unwrap();
    assert!(!socket.exists());
}

/// A server that is stopped ends after a flush.
#[test]
fn a_server_that_stops_flushes() {
    let device = Arc::new(GatedDevice::new(MemoryDevice::new(LEN)));
    let server = Server::listen_tcp("localhost:0", served(Arc::clone(&device) as _)).unwrap();
    let stopper = server.stopper();
    let closed = device.gate().close(|one| one.kind == RequestKind::Flush);
    let running = thread::spawn(move || server.run(false));
    stopper.stop();
    closed.wait_for(1);
    assert!(!running.is_finished());
    drop(closed);
    running.join().unwrap().unwrap();
}

/// With `once` a server ends after its last client; one that never spoke the protocol is none.
#[test]
fn a_server_ends_with_its_last_client() {
    let service = served(Arc::new(MemoryDevice::new(LEN)));
    let server = Server::listen_tcp("localhost:0", service).unwrap();
    assert!(server.is_local());
    let address = server.address();
    let running = thread::spawn(move || server.run(true));
    let stranger = address.trim_start_matches("nbd://").trim_end_matches('/');
    let mut stranger = std::net::TcpStream::connect(stranger).unwrap();
    stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut told = Vec::new();
    // The server resets the connection if it has not read all of it.
    let _ = stranger.read_to_end(&mut told);
    assert!(told.starts_with(b"NBDMAGIC"));
    assert!(!running.is_finished());
    let connect = || NbdDevice::connect(address.parse().unwrap(), OpenMode::ReadOnly).unwrap();
    let (one, two) = (connect(), connect());
    drop(one);
    two.read_at(DevOff::ZERO, &mut [0; 512]).unwrap();
    assert!(!running.is_finished());
    drop(two);
    running.join().unwrap().unwrap();
}

/// More clients than there may be are turned away; after one has left, there is room.
#[test]
fn clients_are_bounded() {
    let dir = TempDir::new("nbd-many").unwrap();
    let socket = dir.join("socket");
    let server = Server::listen_unix(&socket, served(Arc::new(MemoryDevice::new(512)))).unwrap();
    let stopper = server.stopper();
    let running = thread::spawn(move || server.run(false));
    let greeted = || {
        let mut stream = UnixStream::connect(&socket).unwrap();
        let read = stream.read_exact(&mut [0; 18]);
        read.is_ok().then_some(stream)
    };
    let mut clients: Vec<_> = (0..64).map(|_| greeted().unwrap()).collect();
    assert!(greeted().is_none());
    clients.pop();
    while greeted().is_none() {
        thread::sleep(Duration::from_millis(5));
    }
    stopper.stop();
    running.join().unwrap().unwrap();
}
