//! Handshakes of clients of all kinds.

use std::sync::Arc;

use extant_blockdev::MemoryDevice;
use extant_nbd::{ServeOptions, Service};

use crate::raw_client::{DISCONNECT, GREETING, PLAIN, READ, RawClient, named, option, request};

const LEN: u64 = 1 << 16;
/// Flags of an export that is written: flags, flush, FUA, trim, zeroes, several connections.
const FLAGS: u16 = 0b1_0110_1101;

fn service(name: &str) -> Arc<Service> {
    let mut options = ServeOptions::default();
    options.export = name.to_owned();
    Service::new(Arc::new(MemoryDevice::new(LEN)), options).unwrap()
}

fn size_and_flags() -> Vec<u8> {
    let mut bytes = LEN.to_be_bytes().to_vec();
    bytes.extend(FLAGS.to_be_bytes());
    bytes
}

/// A client that has exchanged greetings.
fn greeted(service: &Arc<Service>) -> RawClient {
    let mut client = RawClient::new(service);
    client.take(GREETING);
    client.send(PLAIN);
    client
}

#[test]
fn options_are_answered_one_by_one() {
    let service = service("disk");
    let mut client = greeted(&service);
    let error = |number: u32| (1 << 31) + number;
    for (number, data, kind) in [
        (3, b"x".to_vec(), error(3)),
        (5, vec![], error(1)),
        (7, b"\0".to_vec(), error(3)),
        (6, named("other"), error(6)),
        (8, b"x".to_vec(), error(3)),
        (8, vec![], 1),
        (99, vec![0; 8192], error(1)),
        (99, vec![0; 8193], error(9)),
        (7, vec![0; 1 << 20], error(9)),
    ] {
        client.send(&option(number, &data));
        assert_eq!(client.reply(), (number, kind, vec![]), "{number}");
    }
    client.send(&option(3, b""));
    assert_eq!(client.reply(), (3, 2, b"\0\0\0\x04disk".to_vec()));
    assert_eq!(client.reply(), (3, 1, vec![]));
    let about = |client: &mut RawClient, number| {
        let mut export = vec![0, 0];
        export.extend(size_and_flags());
        assert_eq!(client.reply(), (number, 3, export));
        let blocks = b"\0\x03\0\0\0\x01\0\0\x10\0\x02\0\0\0".to_vec();
        assert_eq!(client.reply(), (number, 3, blocks));
        assert_eq!(client.reply(), (number, 1, vec![]));
    };
    client.send(&option(6, &named("")));
    about(&mut client, 6);
    client.send(&option(7, &named("disk")));
    about(&mut client, 7);
    client.send(&request(READ, 0, 0, 16));
    assert_eq!(client.chunk().0, 2, "a hole");
    client.send(&request(DISCONNECT, 0, 0, 0));
    let (rest, ended) = client.end();
    assert!(rest.is_empty() && ended.is_ok(), "{ended:?}");
}

#[test]
fn a_client_of_the_old_option_gets_zeros_unless_it_refuses_them() {
    let service = service("disk");
    for (flags, zeros) in [(b"\0\0\0\x03", 0), (b"\0\0\0\x01", 124)] {
        let mut client = RawClient::new(&service);
        client.take(GREETING);
        client.send(flags);
        client.send(&option(1, b"disk"));
        client.take(&size_and_flags());
        client.take(&vec![0; zeros]);
        client.send(&request(READ, 0, 0, 3));
        assert_eq!(client.simple(), 0);
        client.take(&[0; 3]);
        assert!(client.end().1.is_ok());
    }
    let mut client = greeted(&service);
    client.send(&option(1, b"other"));
    let (rest, ended) = client.end();
    assert!(rest.is_empty());
    assert!(ended.unwrap_err().to_string().contains("no export"));
}

#[test]
fn a_handshake_that_breaks_the_protocol_ends() {
    let service = service("");
    let endless = option(3, b"").repeat(200);
    for (bytes, why) in [
        (&b"\0\0\0\0"[..], "flags are 0x0"),
        (b"\0\0\0\x07", "flags are 0x7"),
        (b"\0\0\0\x03IHAVEOPS\0\0\0\x07\0\0\0\0", "magic number"),
        (
            b"\0\0\0\x03IHAVEOPT\0\0\0\x07\xff\xff\xff\xff",
            "an option of",
        ),
        (b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\x20\x01", "an option of"),
        (b"\0\0\0\x03IHAVEOPT\0\0\0\x07\0\0\0\x09xx", "fill"),
        (b"\0\0", "fill"),
        (&[&b"\0\0\0\x03"[..], &endless].concat(), "without end"),
    ] {
        let mut client = RawClient::new(&service);
        client.send(bytes);
        let (_, ended) = client.end();
        let error = ended.unwrap_err().to_string();
        assert!(error.contains(why), "{error}, not {why}");
    }
    let mut client = greeted(&service);
    client.send(&option(2, b""));
    assert_eq!(client.reply(), (2, 1, vec![]));
    assert!(client.end().1.is_ok());
}
