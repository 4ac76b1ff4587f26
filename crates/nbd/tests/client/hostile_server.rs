//! Servers that break the protocol: each ends in a plain error, soon, and whatever it says.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread;

use extant_blockdev::{BlockDevice, OpenMode};
use extant_nbd::{Address, NbdDevice};
use extant_testkit::{Rng, TempDir};
use extant_units::DevOff;

use crate::server::{brief_timeout, joined, option_reply};

/// Bytes of the export that hostile servers claim.
const LEN: u64 = 1 << 20;
const GREETING: &[u8] = b"NBDMAGICIHAVEOPT\x00\x03";

/// A server that sends `bytes` to each client, whatever it asks.
struct Hostile {
    dir: TempDir,
    timeout: String,
}

impl Hostile {
    /// With `stay`, connections stay open after the last byte.
    fn start(bytes: Vec<u8>, stay: bool) -> Hostile {
        let dir = TempDir::new("hostile").unwrap();
        let listener = UnixListener::bind(dir.join("socket")).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, bytes) = (stream.unwrap(), bytes.clone());
                thread::spawn(move || {
                    let mut asks = stream.try_clone().unwrap();
                    // A client that has gone is the end of both.
                    let sent = stream.write_all(&bytes);
                    if !stay {
                        let _ = stream.shutdown(std::net::Shutdown::Write);
                    }
                    let mut sink = [0; 4096];
                    while sent.is_ok() && asks.read(&mut sink).is_ok_and(|len| len > 0) {}
                });
            }
        });
        // The end of a connection is noticed without a time-out.
        let timeout = if stay { "timeout=1" } else { "timeout=60" };
        let timeout = timeout.to_owned();
        Hostile { dir, timeout }
    }

    /// Is given time for its handshake on a machine that runs many suites.
    fn in_time(mut self) -> Hostile {
        self.timeout = brief_timeout();
        self
    }

    fn address(&self) -> Address {
        let socket = self.dir.join("socket");
        let text = format!(
            "nbd+unix:///?socket={}&{}&reconnect=0&connections=1",
            socket.display(),
            self.timeout
        );
        text.parse().unwrap()
    }

    fn connect(&self) -> Result<NbdDevice, String> {
        let device = NbdDevice::connect(self.address(), OpenMode::ReadWrite);
        device.map_err(|error| error.to_string())
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        let _ = UnixStream::connect(self.dir.join("socket"));
    }
}

/// The bytes that a sound server sends until requests may be sent.
fn handshake(structured: bool) -> Vec<u8> {
    let kind = if structured { 1 } else { 1 << 31 | 1 };
    let export = joined(&[&[0, 0], &LEN.to_be_bytes(), &[1, 0x6D]]);
    joined(&[
        GREETING,
        &option_reply(8, kind, &[]),
        &option_reply(7, 3, &export),
        &option_reply(7, 1, &[]),
    ])
}

#[test]
fn a_bad_handshake_is_a_plain_error() {
    let go = |kind, data: &[u8]| {
        joined(&[
            GREETING,
            &option_reply(8, 1, &[]),
            &option_reply(7, kind, data),
        ])
    };
    let long = joined(&[
        &0x0003_E889_0455_65A9_u64.to_be_bytes(),
        &[0, 0, 0, 8, 0, 0, 0, 1],
        &[0xFF; 4],
    ]);
    let endless = joined(&[
        GREETING,
        &option_reply(8, 1, &[]),
        &option_reply(7, 3, &[0, 9]).repeat(100),
    ]);
    let sized = |sizes: [u8; 12]| joined(&[&[0, 3], &sizes]);
    let cases: Vec<(Vec<u8>, &str)> = vec![
        (
            b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(),
            "no NBD server",
        ),
        (
            b"NBDMAGIC\x00\x00\x42\x02\x81\x86\x12\x53".to_vec(),
            "oldstyle",
        ),
        (b"NBDMAGICIHAVEOPT\x00\x02".to_vec(), "fixed newstyle"),
        (joined(&[GREETING, &[0xEE; 20]]), "wrong magic number"),
        (
            joined(&[GREETING, &option_reply(5, 1, &[])]),
            "option 5 instead of 8",
        ),
        (joined(&[GREETING, &option_reply(8, 77, &[])]), "reply 77"),
        (joined(&[GREETING, &long]), "a reply of 4294967295 bytes"),
        (endless, "has no end"),
        (go(1, &[]), "how long it is"),
        (go(3, &[]), "without a kind"),
        (go(3, &[0, 0, 1]), "wrong length"),
        (go(3, &[0; 13]), "wrong length"),
        (go(3, &[0, 3, 1]), "wrong length"),
        (
            go(3, &joined(&[&[0, 0], &[0xFF; 8], &[0, 1]])),
            "an export of",
        ),
        (go(3, &[0; 12]), "flags of the export"),
        (go(1 << 31 | 6, b"gone\x1b[2J"), "no such export: gone?[2J"),
        (go(1 << 31 | 5, b""), "requires TLS"),
        (go(1 << 31 | 1, b""), "NBD_OPT_GO"),
        (GREETING[..9].to_vec(), "closed the connection"),
        (Vec::new(), "closed the connection"),
    ];
    for (bytes, why) in cases {
        let error = Hostile::start(bytes, false).connect().err().unwrap();
        assert!(error.contains(why), "{why}: {error}");
    }
    let export = option_reply(7, 3, &joined(&[&[0, 0], &LEN.to_be_bytes(), &[1, 0x6D]]));
    for sizes in [[0; 12], [0xFF; 12], [0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0, 9]] {
        let bytes = joined(&[
            GREETING,
            &option_reply(8, 1, &[]),
            &export,
            &option_reply(7, 3, &sized(sizes)),
            &option_reply(7, 1, &[]),
        ]);
        let error = Hostile::start(bytes, false).connect().err().unwrap();
        assert!(error.contains("block sizes"), "{error}");
    }
}

/// A server that says nothing, or stops in the middle, does not hang the client.
#[test]
fn a_silent_server_is_given_up() {
    let whole = handshake(true);
    for len in [0, 9, 18, 30, whole.len() - 1] {
        let error = Hostile::start(whole[..len].to_vec(), true).connect();
        let error = error.err().unwrap();
        assert!(error.contains("did not answer in time"), "{len}: {error}");
    }
    let device = Hostile::start(whole, true).in_time();
    let device = device.connect().unwrap();
    let error = device.read_at(DevOff::ZERO, &mut [0; 512]).unwrap_err();
    assert!(error.to_string().contains("not reached again"), "{error}");
}

/// The first request has the cookie 1.
fn simple(error: u32, cookie: u64, data: &[u8]) -> Vec<u8> {
    let head = [b"\x67\x44\x66\x98", &error.to_be_bytes()[..]].concat();
    joined(&[&head, &cookie.to_be_bytes(), data])
}

fn chunk(done: u16, kind: u16, cookie: u64, len: u32, payload: &[u8]) -> Vec<u8> {
    joined(&[
        b"\x66\x8e\x33\xef",
        &done.to_be_bytes(),
        &kind.to_be_bytes(),
        &cookie.to_be_bytes(),
        &len.to_be_bytes(),
        payload,
    ])
}

fn at(offset: u64, rest: &[u8]) -> Vec<u8> {
    joined(&[&offset.to_be_bytes(), rest])
}

/// Bad replies: whether structured ones were agreed on, the bytes, and what is wrong with them.
fn bad_replies() -> Vec<(bool, Vec<u8>, &'static str)> {
    let hole = |offset, len: u32| at(offset, &len.to_be_bytes());
    vec![
        (false, vec![0xAB; 64], "magic number 0xabababab"),
        (false, chunk(1, 0, 1, 0, &[]), "magic number 0x668e33ef"),
        (false, simple(0, 2, &[0; 512]), "not sent (2)"),
        (false, simple(0, u64::MAX, &[]), "not sent"),
        (true, simple(0, 1, &[0; 512]), "a simple reply to a read"),
        (true, chunk(1, 0, 1, 0, &[]), "lacks bytes"),
        (true, chunk(0, 0, 1, 0, &[]), "not the last"),
        (true, chunk(1, 0, 1, 9, &[0; 9]), "not the last"),
        (true, chunk(1, 77, 1, 0, &[]), "unknown kind 77"),
        (true, chunk(1, 1, 1, 8, &at(0, &[])), "without data"),
        (true, chunk(1, 1, 1, 3, &[0; 3]), "without data"),
        (
            true,
            chunk(1, 1, 1, u32::MAX, &at(0, &[])),
            "outside of the range",
        ),
        (
            true,
            chunk(1, 1, 1, 108, &at(450, &[1; 100])),
            "outside of the range",
        ),
        (
            true,
            chunk(1, 1, 1, 9, &at(u64::MAX, &[1])),
            "outside of the range",
        ),
        (true, chunk(1, 1, 1, 108, &at(0, &[1; 100])), "lacks bytes"),
        (true, chunk(1, 2, 1, 12, &hole(0, 0)), "overlap"),
        (
            true,
            chunk(1, 2, 1, 12, &hole(0, u32::MAX)),
            "outside of the range",
        ),
        (true, chunk(1, 2, 1, 13, &[0; 13]), "wrong length"),
        (
            true,
            [
                chunk(0, 2, 1, 12, &hole(0, 300)),
                chunk(1, 2, 1, 12, &hole(299, 213)),
            ]
            .concat(),
            "overlap",
        ),
        (true, chunk(1, 0x8001, 1, 5, &[0; 5]), "an error of 5 bytes"),
        (
            true,
            chunk(1, 0x8001, 1, 1 << 20, &[0; 64]),
            "an error of 1048576 bytes",
        ),
        (
            true,
            chunk(1, 0x8001, 1, 6, &[0, 0, 0, 5, 0, 9]),
            "longer than its chunk",
        ),
    ]
}

#[test]
fn a_bad_reply_is_a_plain_error() {
    for (structured, bytes, why) in bad_replies() {
        // It comes before the request, unless the client is quick: both are tried by this.
        let server = Hostile::start([handshake(structured), bytes].concat(), true).in_time();
        let device = server.connect().unwrap();
        let error = device.read_at(DevOff::ZERO, &mut [0; 512]).unwrap_err();
        let known = error.to_string();
        // A reply before its request is one to a request that was not sent.
        assert!(
            known.contains(why) || known.contains("not sent (1)"),
            "{why}: {known}"
        );
        assert!(known.contains("breaks the protocol"), "{known}");
        assert!(device.write_at(DevOff::ZERO, &[0; 512]).is_err());
    }
}

/// Random bytes after the handshake, and sound replies with random changes.
#[test]
fn random_replies_end() {
    let mut rng = Rng::new(7);
    for round in 0..60 {
        let structured = rng.chance(50);
        let mut bytes = if structured {
            chunk(1, 1, 1, 520, &at(0, &[5; 512]))
        } else {
            simple(0, 1, &[5; 512])
        };
        for _ in 0..rng.below(4) {
            let at = rng.index(bytes.len().min(40));
            bytes[at] ^= 1 << rng.below(8);
        }
        let server = Hostile::start([handshake(structured), bytes].concat(), round % 2 == 0);
        let Ok(device) = server.connect() else {
            continue;
        };
        let mut buf = [0; 512];
        // It ends, with whatever the server wanted it to read.
        let _ = device.read_at(DevOff::ZERO, &mut buf);
        let _ = device.flush();
    }
}
