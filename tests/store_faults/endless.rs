//! Answers without an end: a client reads them up to a bound.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use extant_testkit::{Cmd, Result, ensure, tools};

use crate::line::ensure_plain_error;

/// The most that a client may take, with what is in the buffers of its connections.
const MOST: u64 = 64 << 20;

/// A server whose answers never end; it counts their bytes.
fn endless(status: &'static str) -> Result<(String, Arc<AtomicU64>)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let sent = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&sent);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let Ok(mut client) = client else { continue };
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let _ = client.read(&mut [0; 4096]);
                let head = format!("HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n");
                let _ = client.write_all(head.as_bytes());
                let piece = [b"10000\r\n".as_slice(), &[b' '; 65_536], b"\r\n"].concat();
                // Ends with the client, or with the test that a client without a bound fails.
                while count.load(Ordering::Relaxed) < 8 * MOST && client.write_all(&piece).is_ok() {
                    count.fetch_add(piece.len() as u64, Ordering::Relaxed);
                }
            });
        }
    });
    Ok((endpoint, sent))
}

#[test]
fn lists_and_errors_without_an_end_are_cut_off() -> Result<()> {
    for status in ["200 OK", "400 Bad Request"] {
        let (endpoint, sent) = endless(status)?;
        let versions = Cmd::new(tools::extant()?).args(["versions", "s3://images/root"]);
        let versions = versions
            .env("AWS_ACCESS_KEY_ID", "extant")
            .env("AWS_SECRET_ACCESS_KEY", "extant-secret")
            .env("AWS_ENDPOINT", endpoint)
            .env("AWS_ALLOW_HTTP", "true")
            .limit(Duration::from_secs(60));
        ensure_plain_error(&versions.run()?, &["names/root"])?;
        let sent = sent.load(Ordering::Relaxed);
        ensure!(sent < MOST, "{status}: {sent} bytes were taken");
    }
    Ok(())
}
