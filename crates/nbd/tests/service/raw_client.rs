//! A client that speaks the protocol byte by byte, over one end of a pair of sockets.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use extant_nbd::Service;
use extant_testkit::patience;

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const ZEROES: u16 = 6;
/// Flags of requests.
pub(crate) const FUA: u16 = 1;

/// The greeting of a server.
pub(crate) const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\0\x03";
/// The client's flags: fixed newstyle, no zeroes.
pub(crate) const PLAIN: &[u8] = b"\0\0\0\x03";

/// A client whose server is a thread of this process.
pub(crate) struct RawClient {
    pub(crate) stream: UnixStream,
    server: JoinHandle<io::Result<()>>,
}

/// An option as it is sent.
pub(crate) fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = b"IHAVEOPT".to_vec();
    bytes.extend(number.to_be_bytes());
    bytes.extend(u32::try_from(data.len()).unwrap().to_be_bytes());
    bytes.extend(data);
    bytes
}

/// The data of INFO and GO, for the export `name`.
pub(crate) fn named(name: &str) -> Vec<u8> {
    let mut bytes = u32::try_from(name.len()).unwrap().to_be_bytes().to_vec();
    bytes.extend(name.as_bytes());
    bytes.extend([0, 0]);
    bytes
}

/// A request as it is sent, without data.
pub(crate) fn request(command: u16, flags: u16, offset: u64, len: u32) -> Vec<u8> {
    let mut bytes = b"\x25\x60\x95\x13".to_vec();
    bytes.extend(flags.to_be_bytes());
    bytes.extend(command.to_be_bytes());
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(len.to_be_bytes());
    bytes
}

impl RawClient {
    /// A client that has not said anything.
    pub(crate) fn new(service: &Arc<Service>) -> RawClient {
        let (stream, other) = UnixStream::pair().unwrap();
        let limit = Some(patience(Duration::from_secs(30)));
        stream.set_read_timeout(limit).unwrap();
        stream.set_write_timeout(limit).unwrap();
        let service = Arc::clone(service);
        RawClient {
            stream,
            server: thread::spawn(move || service.serve(other)),
        }
    }

    /// A client after the handshake.
    pub(crate) fn ready(service: &Arc<Service>, structured: bool) -> RawClient {
        let mut client = RawClient::new(service);
        client.take(GREETING);
        client.send(PLAIN);
        if structured {
            client.send(&option(8, b""));
            assert_eq!(client.reply(), (8, 1, vec![]));
        }
        client.send(&option(7, &named("")));
        while client.reply().1 != 1 {}
        client
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(crate) fn receive(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    /// Receives `expected`.
    pub(crate) fn take(&mut self, expected: &[u8]) {
        assert_eq!(self.receive(expected.len()), expected);
    }

    fn number(&mut self) -> u32 {
        u32::from_be_bytes(self.receive(4).try_into().unwrap())
    }

    /// The option, the kind and the data of a reply to an option.
    pub(crate) fn reply(&mut self) -> (u32, u32, Vec<u8>) {
        self.take(&0x0003_E889_0455_65A9_u64.to_be_bytes());
        let (option, kind, len) = (self.number(), self.number(), self.number());
        (option, kind, self.receive(len as usize))
    }

    /// The error of a simple reply.
    pub(crate) fn simple(&mut self) -> u32 {
        self.take(b"\x67\x44\x66\x98");
        let error = self.number();
        self.take(&7_u64.to_be_bytes());
        error
    }

    /// The kind and the data of a structured reply of one chunk.
    pub(crate) fn chunk(&mut self) -> (u16, Vec<u8>) {
        self.take(b"\x66\x8e\x33\xef\0\x01");
        let kind = u16::from_be_bytes(self.receive(2).try_into().unwrap());
        self.take(&7_u64.to_be_bytes());
        let len = self.number();
        (kind, self.receive(len as usize))
    }

    /// Says nothing more; returns what is still received, and how the server saw it end.
    pub(crate) fn end(mut self) -> (Vec<u8>, io::Result<()>) {
        let mut rest = Vec::new();
        // The server may have ended it.
        let _ = self.stream.shutdown(Shutdown::Write);
        let _ = self.stream.read_to_end(&mut rest);
        (rest, self.server.join().expect("the server does not panic"))
    }
}
