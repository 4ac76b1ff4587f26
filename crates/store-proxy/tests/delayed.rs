//! A line that delays, as a client sees it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use extant_store_proxy::DelayedLine;

#[test]
fn a_delayed_line_delays_both_ways() {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let round_trip = Duration::from_millis(40);
    let line = DelayedLine::start(server.local_addr().unwrap(), round_trip).unwrap();
    let echo = std::thread::spawn(move || {
        let (mut end, _) = server.accept().unwrap();
        let mut buf = [0; 3];
        while end.read_exact(&mut buf).is_ok() {
            end.write_all(&buf).unwrap();
        }
    });
    let mut client = TcpStream::connect(line.address()).unwrap();
    let begin = Instant::now();
    // Many are under way at once.
    for _ in 0..10 {
        client.write_all(b"abc").unwrap();
    }
    let mut back = [0; 30];
    client.read_exact(&mut back).unwrap();
    assert_eq!(back, *b"abc".repeat(10));
    assert!(begin.elapsed() >= round_trip);
    assert_eq!(line.received_bytes(), 30);
    drop(client);
    echo.join().unwrap();
}
