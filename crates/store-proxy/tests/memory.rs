//! The store in memory, as a client of S3 sees it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use extant_store_proxy::MemoryStore;

/// Sends one request; returns all that comes up to the end.
fn ask(to: SocketAddr, first: &str, body: &str) -> String {
    let mut line = TcpStream::connect(to).unwrap();
    let length = body.len();
    let request = format!("{first}\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    line.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    line.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_store_knows_conditions_ranges_and_pages() {
    let store = MemoryStore::start().unwrap();
    let to = store.address();
    let create = "PUT /b/k HTTP/1.1\r\nIf-None-Match: *";
    assert!(ask(to, create, "first").starts_with("HTTP/1.1 200"));
    assert!(ask(to, create, "second").starts_with("HTTP/1.1 412"));
    let part = "GET /b/k HTTP/1.1\r\nRange: bytes=2-";
    assert!(ask(to, part, "").ends_with("\r\n\r\nrst"));
    let head = ask(to, "HEAD /b/k HTTP/1.1", "");
    assert!(
        head.contains("Content-Length: 5") && head.ends_with("\r\n\r\n"),
        "{head}"
    );
    assert!(ask(to, "GET /b/none HTTP/1.1", "").starts_with("HTTP/1.1 404"));
    for number in 0..130 {
        ask(to, &format!("PUT /b/p/{number:03} HTTP/1.1"), "x");
    }
    let page = ask(to, "GET /b?list-type=2&prefix=p%2F HTTP/1.1", "");
    assert!(page.contains("<Key>p/099</Key>") && !page.contains("<Key>p/100</Key>"));
    let next = "GET /b?prefix=p%2F&list-type=2&continuation-token=p%2F099 HTTP/1.1";
    let page = ask(to, next, "");
    assert!(page.matches("<Key>").count() == 30 && page.contains("<IsTruncated>false"));
    assert!(ask(to, "DELETE /b/k HTTP/1.1", "").starts_with("HTTP/1.1 204"));
    assert!(!store.paths().contains(&"b/k".to_owned()));
}
