//! A server of the tests: an export in memory with a volatile cache, whose death is planned.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use extant_testkit::{TempDir, patience};
use extant_units::index;

pub(crate) const FLUSH: u16 = 1 << 2;
pub(crate) const FUA: u16 = 1 << 3;
pub(crate) const TRIM: u16 = 1 << 5;
pub(crate) const ZEROES: u16 = 1 << 6;
pub(crate) const MULTI: u16 = 1 << 8;
/// Everything that a good server offers.
pub(crate) const ALL: u16 = FLUSH | FUA | TRIM | ZEROES | MULTI;

/// A request as the plan sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Requests before it on this server.
    pub(crate) index: u64,
    pub(crate) command: u16,
}

/// The server's way with a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Act {
    /// Carries it out and replies.
    Serve,
    /// Refuses it with this number.
    Refuse(u32),
    /// Never replies.
    Ignore,
    /// Ends the connection; the request is not carried out.
    Hang,
    /// Carries the request out and ends the connection without a reply.
    ServeAndHang,
    /// Dies: all connections end, and what was not flushed is gone.
    Crash,
}

type Plan = Box<dyn Fn(Seen) -> Act + Send + Sync>;

/// The export and the features that a server offers.
pub(crate) struct Offer {
    pub(crate) len: usize,
    pub(crate) flags: u16,
    pub(crate) structured: bool,
    pub(crate) blocks: Option<[u32; 3]>,
}

impl Default for Offer {
    fn default() -> Offer {
        Offer {
            len: 1 << 20,
            flags: ALL,
            structured: true,
            blocks: None,
        }
    }
}

/// The export: what clients see, and what a crash leaves.
struct Disk {
    seen: Vec<u8>,
    durable: Vec<u8>,
    /// Deaths of the server. Of the connections from before one, nothing is carried out after it,
    /// also if a thread has read the request.
    deaths: u64,
}

struct Shared {
    offer: Offer,
    plan: Plan,
    disk: Mutex<Disk>,
    requests: AtomicU64,
    connections: AtomicU64,
    open: Mutex<Vec<UnixStream>>,
    ended: AtomicBool,
}

/// A server that runs until it is dropped.
pub(crate) struct Server {
    _dir: TempDir,
    path: PathBuf,
    shared: Arc<Shared>,
}

impl Server {
    /// Starts a server that does what `plan` says.
    pub(crate) fn start(
        offer: Offer,
        plan: impl Fn(Seen) -> Act + Send + Sync + 'static,
    ) -> Server {
        let dir = TempDir::new("nbd").unwrap();
        let path = dir.join("socket");
        let len = offer.len;
        let shared = Arc::new(Shared {
            offer,
            plan: Box::new(plan),
            disk: Mutex::new(Disk {
                seen: vec![0; len],
                durable: vec![0; len],
                deaths: 0,
            }),
            requests: AtomicU64::new(0),
            connections: AtomicU64::new(0),
            open: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let server = Server {
            _dir: dir,
            path,
            shared,
        };
        server.listen();
        server
    }

    /// Listens, again if it has stopped.
    pub(crate) fn listen(&self) {
        let listener = UnixListener::bind(&self.path).unwrap();
        self.shared.ended.store(false, Ordering::SeqCst);
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::SeqCst) {
                    return;
                }
                let (stream, shared) = (stream.unwrap(), Arc::clone(&shared));
                shared
                    .open
                    .lock()
                    .unwrap()
                    .push(stream.try_clone().unwrap());
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let life = shared.disk.lock().unwrap().deaths;
                thread::spawn(move || {
                    let _ = shared.serve(&stream, life);
                    let _ = stream.shutdown(Shutdown::Both);
                });
            }
        });
    }

    /// Ends all connections, and refuses new ones until [`Server::listen`].
    pub(crate) fn stop(&self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        // The thread that accepts notices it with this one.
        let _ = UnixStream::connect(&self.path);
        let _ = std::fs::remove_file(&self.path);
        self.shared.disk.lock().unwrap().deaths += 1;
        self.shared.hang_up();
    }

    /// The address of the export, with parameters.
    pub(crate) fn address(&self, parameters: &str) -> extant_nbd::Address {
        let text = format!("nbd+unix:///?socket={}&{parameters}", self.path.display());
        text.parse().unwrap()
    }

    /// The bytes that a crash would leave now.
    pub(crate) fn durable(&self) -> Vec<u8> {
        self.shared.disk.lock().unwrap().durable.clone()
    }

    /// Connections so far.
    pub(crate) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Changes the length that later connections are told.
    pub(crate) fn grow(&self) {
        let mut disk = self.shared.disk.lock().unwrap();
        disk.seen.push(0);
        disk.durable.push(0);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

fn array<const N: usize>(mut stream: &UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The address's parameter for a server that does not answer: short, and longer where many suites
/// run, so that those which do answer are heard.
pub(crate) fn brief_timeout() -> String {
    let seconds = patience(Duration::from_secs(2)).as_secs();
    format!("timeout={seconds}")
}

/// Bytes put together from pieces.
pub(crate) fn joined(pieces: &[&[u8]]) -> Vec<u8> {
    pieces.concat()
}

/// A reply to an option.
pub(crate) fn option_reply(option: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    joined(&[
        &0x0003_E889_0455_65A9_u64.to_be_bytes(),
        &option.to_be_bytes(),
        &kind.to_be_bytes(),
        &u32::try_from(data.len()).unwrap().to_be_bytes(),
        data,
    ])
}

impl Shared {
    fn hang_up(&self) {
        for stream in self.open.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    fn serve(&self, mut stream: &UnixStream, life: u64) -> io::Result<()> {
        stream.write_all(b"NBDMAGICIHAVEOPT\x00\x03")?;
        array::<4>(stream)?;
        let mut structured = false;
        loop {
            array::<8>(stream)?;
            let option = u32::from_be_bytes(array(stream)?);
            let len = u32::from_be_bytes(array(stream)?);
            let mut data = vec![0; len as usize];
            stream.read_exact(&mut data)?;
            if option == 8 && self.offer.structured {
                structured = true;
                stream.write_all(&option_reply(8, 1, &[]))?;
            } else if option == 7 {
                self.describe(stream)?;
                break;
            } else {
                stream.write_all(&option_reply(option, 1 << 31 | 1, b"no"))?;
            }
        }
        while self.request(stream, structured, life)? {}
        Ok(())
    }

    fn describe(&self, mut stream: &UnixStream) -> io::Result<()> {
        let size = self.disk.lock().unwrap().seen.len() as u64;
        let flags = self.offer.flags | 1;
        let export = joined(&[&[0, 0], &size.to_be_bytes(), &flags.to_be_bytes()]);
        stream.write_all(&option_reply(7, 3, &export))?;
        if let Some(blocks) = self.offer.blocks {
            let sizes = blocks.map(u32::to_be_bytes).concat();
            stream.write_all(&option_reply(7, 3, &joined(&[&[0, 3], &sizes])))?;
        }
        stream.write_all(&option_reply(7, 1, &[]))
    }

    /// Serves one request; false when the connection ends.
    fn request(&self, mut stream: &UnixStream, structured: bool, life: u64) -> io::Result<bool> {
        let header: [u8; 28] = array(stream)?;
        let field = |range: Range<usize>| {
            let bytes = header[range].iter();
            bytes.fold(0_u64, |value, &byte| value << 8 | u64::from(byte))
        };
        let (flags, command, cookie) = (field(4..6), field(6..8), field(8..16));
        let (offset, len) = (index(field(16..24)), index(field(24..28)));
        let mut data = vec![0; if command == 1 { len } else { 0 }];
        stream.read_exact(&mut data)?;
        if command == 2 {
            return Ok(false);
        }
        if let Some([minimum, _, maximum]) = self.offer.blocks {
            let minimum = minimum as usize;
            assert!(
                offset % minimum == 0 && len % minimum == 0,
                "{offset} {len}"
            );
            assert!(command > 1 || len <= maximum as usize, "{len}");
        }
        let seen = Seen {
            index: self.requests.fetch_add(1, Ordering::SeqCst),
            command: u16::try_from(command).unwrap(),
        };
        let act = (self.plan)(seen);
        match act {
            Act::Serve | Act::ServeAndHang => {}
            Act::Ignore => return Ok(true),
            Act::Hang => return Ok(false),
            Act::Crash => {
                let mut disk = self.disk.lock().unwrap();
                disk.seen = disk.durable.clone();
                disk.deaths += 1;
                drop(disk);
                self.hang_up();
                return Ok(false);
            }
            Act::Refuse(error) => {
                let cookie = cookie.to_be_bytes();
                let error = error.to_be_bytes();
                if structured && command == 0 {
                    let message = joined(&[&error, &[0, 3], b"bad"]);
                    chunk(stream, 0x8001, &cookie, &message)?;
                } else {
                    stream.write_all(&joined(&[b"\x67\x44\x66\x98", &error, &cookie]))?;
                }
                return Ok(true);
            }
        }
        let (durable, range) = (flags & 1 != 0, offset..offset + len);
        let Some(bytes) = self.carry_out(life, command, durable, range, &data) else {
            return Ok(false);
        };
        if act == Act::ServeAndHang {
            return Ok(false);
        }
        self.reply(stream, structured && command == 0, cookie, offset, &bytes)?;
        Ok(true)
    }

    /// Changes the export, or reads from it; `None` if the server has died since `life`.
    fn carry_out(
        &self,
        life: u64,
        command: u64,
        durable: bool,
        range: Range<usize>,
        data: &[u8],
    ) -> Option<Vec<u8>> {
        let mut disk = self.disk.lock().unwrap();
        if disk.deaths != life {
            return None;
        }
        match command {
            0 => return Some(disk.seen[range].to_vec()),
            1 => disk.seen[range.clone()].copy_from_slice(data),
            3 => disk.durable = disk.seen.clone(),
            // What is trimmed may be anything.
            4 => disk.seen[range.clone()].fill(0xDD),
            6 => disk.seen[range.clone()].fill(0),
            _ => unreachable!("command {command}"),
        }
        if durable {
            let bytes = disk.seen[range.clone()].to_vec();
            disk.durable[range].copy_from_slice(&bytes);
        }
        Some(Vec::new())
    }

    fn reply(
        &self,
        mut stream: &UnixStream,
        structured: bool,
        cookie: u64,
        offset: usize,
        bytes: &[u8],
    ) -> io::Result<()> {
        let cookie = cookie.to_be_bytes();
        if !structured {
            return stream.write_all(&joined(&[b"\x67\x44\x66\x98", &[0; 4], &cookie, bytes]));
        }
        // Two chunks, the second one first; a hole where there are only zeros.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let offset_of = |at: usize| (offset as u64 + at as u64).to_be_bytes();
        for (at, part) in [(first.len(), second), (0, first)] {
            if part.is_empty() {
                continue;
            }
            if part.iter().all(|&byte| byte == 0) {
                let len = u32::try_from(part.len()).unwrap().to_be_bytes();
                chunk(stream, 2, &cookie, &joined(&[&offset_of(at), &len]))?;
            } else {
                chunk(stream, 1, &cookie, &joined(&[&offset_of(at), part]))?;
            }
        }
        stream.write_all(&joined(&[
            b"\x66\x8e\x33\xef\x00\x01\x00\x00",
            &cookie,
            &[0; 4],
        ]))
    }
}

/// One chunk of a structured reply; that of an error is the last.
fn chunk(mut stream: &UnixStream, kind: u16, cookie: &[u8], payload: &[u8]) -> io::Result<()> {
    let done = u16::from(kind & 0x8000 != 0).to_be_bytes();
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    let head = [
        b"\x66\x8e\x33\xef",
        &done[..],
        &kind.to_be_bytes(),
        cookie,
        &len,
    ];
    stream.write_all(&joined(&[&head.concat(), payload]))
}
