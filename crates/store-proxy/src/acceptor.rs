//! A listening socket whose connections have a thread each, and end with it.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;

/// A port of the loopback that is listened at.
#[derive(Debug)]
pub(crate) struct Acceptor {
    address: SocketAddr,
    open: Arc<Mutex<OpenStreams>>,
    thread: Option<JoinHandle<()>>,
}

/// Connections that have not ended.
#[derive(Debug, Default)]
struct OpenStreams {
    ended: bool,
    next: u64,
    streams: HashMap<u64, TcpStream>,
}

impl Acceptor {
    /// Calls `serve` for each connection, on a thread of its own.
    ///
    /// # Errors
    /// Those of the socket.
    pub(crate) fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let open = Arc::new(Mutex::new(OpenStreams::default()));
        let (all, serve) = (Arc::clone(&open), Arc::new(serve));
        let accept = move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { continue };
                let Some(number) = add(&all, &stream) else {
                    break;
                };
                let (all, serve) = (Arc::clone(&all), Arc::clone(&serve));
                std::thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    serve(stream);
                    all.lock().streams.remove(&number);
                });
            }
        };
        Ok(Self {
            address,
            open,
            thread: Some(std::thread::spawn(accept)),
        })
    }

    /// The address that it listens at.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Adds a connection; `None` at the end.
fn add(all: &Mutex<OpenStreams>, stream: &TcpStream) -> Option<u64> {
    let mut all = all.lock();
    if all.ended {
        return None;
    }
    all.next += 1;
    let number = all.next;
    if let Ok(stream) = stream.try_clone() {
        all.streams.insert(number, stream);
    }
    Some(number)
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        let mut all = self.open.lock();
        all.ended = true;
        for stream in all.streams.values() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        drop(all);
        // The thread waits for a connection.
        let woken = TcpStream::connect(self.address);
        if let (Some(thread), Ok(_)) = (self.thread.take(), woken) {
            let _ = thread.join();
        }
    }
}
