//! A line that delays the bytes of any protocol.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crate::acceptor::Acceptor;

/// Pieces that are on their way at most, and the bytes of one.
const PIECES: usize = 256;
const PIECE: usize = 64 << 10;

/// A line to a server, on which bytes are under way for half a round trip each way. More bytes may
/// follow meanwhile.
#[derive(Debug)]
pub struct DelayedLine {
    acceptor: Acceptor,
    received: Arc<AtomicU64>,
}

impl DelayedLine {
    /// A line to the server at this address.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn start(server: SocketAddr, round_trip: Duration) -> io::Result<Self> {
        let received = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&received);
        let acceptor = Acceptor::start(move |client| {
            let _ = serve(&client, server, round_trip / 2, &count);
        })?;
        Ok(Self { acceptor, received })
    }

    /// The address for clients.
    pub fn address(&self) -> SocketAddr {
        self.acceptor.address()
    }

    /// Bytes that clients got since the start.
    pub fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }
}

fn serve(
    client: &TcpStream,
    server: SocketAddr,
    delay: Duration,
    received: &AtomicU64,
) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    server.set_nodelay(true)?;
    std::thread::scope(|scope| {
        scope.spawn(|| carry(client, &server, delay, &AtomicU64::new(0)));
        carry(&server, client, delay, received);
    });
    Ok(())
}

/// Carries bytes from one end to the other until one of them ends.
fn carry(from: &TcpStream, to: &TcpStream, delay: Duration, count: &AtomicU64) {
    let (pieces, arrivals) = sync_channel::<(Instant, Vec<u8>)>(PIECES);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let _ = deliver(&arrivals, to);
            // The reader ends as well, whichever end failed.
            let _ = to.shutdown(Shutdown::Both);
            let _ = from.shutdown(Shutdown::Both);
        });
        let (mut from, mut buf) = (from, vec![0; PIECE]);
        while let Ok(len @ 1..) = from.read(&mut buf) {
            count.fetch_add(len as u64, Ordering::Relaxed);
            let piece = (Instant::now() + delay, buf[..len].to_vec());
            if pieces.send(piece).is_err() {
                break;
            }
        }
        drop(pieces);
    });
}

fn deliver(arrivals: &Receiver<(Instant, Vec<u8>)>, mut to: &TcpStream) -> io::Result<()> {
    while let Ok((due, piece)) = arrivals.recv() {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        to.write_all(&piece)?;
    }
    Ok(())
}
