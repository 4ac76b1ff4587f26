//! Each fault of the proxy, as a client sees it, and the store behind it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use extant_store_proxy::{MemoryStore, StoreFault, StoreProxy};

fn address(proxy: &StoreProxy) -> SocketAddr {
    proxy.endpoint()["http://".len()..].parse().unwrap()
}

/// Sends one request; returns all that comes, and whether the connection ended well.
fn ask(to: SocketAddr, first: &str, body: &str) -> (String, bool) {
    let mut line = TcpStream::connect(to).unwrap();
    let length = body.len();
    let request = format!("{first}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    line.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let mut buf = [0; 4096];
    loop {
        match line.read(&mut buf) {
            Ok(0) => return (String::from_utf8(answer).unwrap(), true),
            Ok(len) => answer.extend(&buf[..len]),
            Err(_) => return (String::from_utf8(answer).unwrap(), false),
        }
    }
}

const GET: &str = "GET /b/k HTTP/1.1";
const PUT: &str = "PUT /b/k HTTP/1.1";
const LIST: &str = "GET /b?list-type=2&prefix= HTTP/1.1";

#[test]
fn faults_are_what_they_say() {
    let store = MemoryStore::start().unwrap();
    let proxy = StoreProxy::start(store.address()).unwrap();
    let line = address(&proxy);
    assert!(ask(line, PUT, "the content").0.contains("200"));
    let (whole, ended) = ask(line, GET, "");
    assert!(ended && whole.ends_with("the content"), "{whole}");
    let traffic = proxy.take_traffic();
    let counted = (traffic.requests_by("GET"), traffic.requests_by("PUT"));
    assert_eq!((counted, traffic.faults), ((1, 1), 0));
    assert!(traffic.received_bytes >= whole.len() as u64);
    assert_eq!(traffic.connections, 2);

    proxy.set_plan(|_| StoreFault::Torn);
    let (torn, ended) = ask(line, GET, "");
    assert!(!ended && torn.ends_with("the c"), "{torn}");
    proxy.set_plan(|_| StoreFault::Altered);
    assert!(ask(line, GET, "").0.ends_with("the cOntent"));
    proxy.set_plan(|_| StoreFault::Status(403));
    assert!(ask(line, GET, "").0.starts_with("HTTP/1.1 403"));
    proxy.set_plan(|_| StoreFault::Busy(7));
    assert!(ask(line, GET, "").0.contains("Retry-After: 7"));
    proxy.set_plan(|_| StoreFault::Trickle(11, Duration::from_millis(10)));
    let begin = Instant::now();
    assert!(ask(line, GET, "").0.ends_with("the content"));
    assert!(begin.elapsed() >= Duration::from_millis(110));

    for (fault, there) in [
        (StoreFault::ResetBefore, false),
        (StoreFault::LostAnswer, true),
    ] {
        proxy.set_plan(move |_| fault);
        let put = "PUT /b/lost HTTP/1.1";
        assert_eq!(ask(line, put, "x"), (String::new(), false));
        let paths = store.paths();
        assert_eq!(paths.contains(&"b/lost".to_owned()), there, "{paths:?}");
    }
    proxy.set_plan(|_| StoreFault::AlteredRequest);
    ask(line, PUT, "the content");
    proxy.set_plan(|_| StoreFault::None);
    assert!(ask(line, GET, "").0.ends_with("the cOntent"));
    assert_eq!(proxy.take_traffic().faults, 8);
}

#[test]
fn a_stale_list_is_the_last_one_that_was_asked_for() {
    let store = MemoryStore::start().unwrap();
    let proxy = StoreProxy::start(store.address()).unwrap();
    let line = address(&proxy);
    ask(line, "PUT /b/one HTTP/1.1", "1");
    assert!(ask(line, LIST, "").0.contains("<Key>one</Key>"));
    ask(line, "PUT /b/two HTTP/1.1", "2");
    proxy.set_plan(|line| match line.is_list() {
        true => StoreFault::Stale,
        false => StoreFault::None,
    });
    assert!(!ask(line, LIST, "").0.contains("<Key>two</Key>"));
    proxy.set_plan(|_| StoreFault::None);
    assert!(ask(line, LIST, "").0.contains("<Key>two</Key>"));
}

#[test]
fn no_answer_ends_with_the_line_and_a_round_trip_takes_its_time() {
    let store = MemoryStore::start().unwrap();
    let proxy = StoreProxy::start(store.address()).unwrap();
    let line = address(&proxy);
    proxy.set_round_trip(Duration::from_millis(30));
    let begin = Instant::now();
    ask(line, PUT, "x");
    assert!(
        begin.elapsed() >= Duration::from_millis(60),
        "no way to connect and ask"
    );
    proxy.set_plan(|_| StoreFault::NoAnswer);
    let asked = std::thread::spawn(move || ask(line, GET, ""));
    while proxy.take_traffic().requests_by("GET") == 0 {
        std::thread::yield_now();
    }
    drop(proxy);
    assert_eq!(asked.join().unwrap().0, "");
}
