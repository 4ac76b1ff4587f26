//! A small server of S3: objects in memory, one bucket or many, and no signatures.
//!
//! It knows GET with a range, HEAD, PUT with `If-None-Match: *`, DELETE, and lists by version 2 in
//! pages. A real server is the judge of the client; this one stands in where there is none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::acceptor::Acceptor;
use crate::message::Message;

/// Objects of a page of a list.
const PAGE: usize = 100;

/// The time of every object.
const TIME: &str = "2026-01-01T00:00:00.000Z";

/// Objects, by their paths with the bucket in front.
type Objects = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A server of objects in memory, which end with it.
#[derive(Debug)]
pub struct MemoryStore {
    acceptor: Acceptor,
    objects: Objects,
}

impl MemoryStore {
    /// A server without objects.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn start() -> io::Result<Self> {
        let objects = Objects::default();
        let all = Arc::clone(&objects);
        let acceptor = Acceptor::start(move |client| {
            let _ = serve(&client, &all);
        })?;
        Ok(Self { acceptor, objects })
    }

    /// The address that it listens at.
    pub fn address(&self) -> SocketAddr {
        self.acceptor.address()
    }

    /// The paths of all objects, with the bucket in front.
    pub fn paths(&self) -> Vec<String> {
        self.objects.lock().keys().cloned().collect()
    }

    /// Calls `change` with the content of an object, if it is there.
    pub fn change(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) {
        if let Some(content) = self.objects.lock().get_mut(path) {
            change(content);
        }
    }
}

fn serve(mut client: &TcpStream, objects: &Objects) -> io::Result<()> {
    let mut from = BufReader::new(client);
    while let Some(request) = Message::read_request(&mut from)? {
        let answer = carry_out(&request, objects);
        client.write_all(answer.head.as_bytes())?;
        if request.word(0) != "HEAD" {
            client.write_all(&answer.body)?;
        }
        if request.is_last() {
            break;
        }
    }
    Ok(())
}

fn carry_out(request: &Message, objects: &Objects) -> Message {
    let (path, query) = request.word(1).split_once('?').unwrap_or_default();
    let path = if path.is_empty() {
        request.word(1)
    } else {
        path
    };
    let path = decoded(path.trim_start_matches('/'));
    let mut objects = objects.lock();
    match request.word(0) {
        "GET" if query.contains("list-type=2") => list(&path, query, &objects),
        "GET" | "HEAD" => match objects.get(&path) {
            Some(content) => found(content, request.header("range")),
            None => refused(404, "NoSuchKey"),
        },
        "PUT" if request.header("if-none-match").is_some() && objects.contains_key(&path) => {
            refused(412, "PreconditionFailed")
        }
        "PUT" => {
            let tag = tag(&request.body);
            objects.insert(path, request.body.clone());
            Message::answer(200, &tag, b"")
        }
        "DELETE" => {
            objects.remove(&path);
            Message::answer(204, "", b"")
        }
        _ => refused(501, "NotImplemented"),
    }
}

fn refused(status: u16, code: &str) -> Message {
    let body = format!("<Error><Code>{code}</Code><Message>{code}</Message></Error>");
    Message::answer(status, "Content-Type: application/xml\r\n", body.as_bytes())
}

/// The header with the tag of a content.
fn tag(content: &[u8]) -> String {
    let sum = content.iter().fold(content.len() as u64, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("ETag: \"{sum:016x}\"\r\n")
}

/// An object, or the part of it from a byte on.
fn found(content: &[u8], range: Option<&str>) -> Message {
    let mut headers = tag(content);
    headers += "Last-Modified: Thu, 01 Jan 2026 00:00:00 GMT\r\nAccept-Ranges: bytes\r\n";
    let range = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let from = range.and_then(|(from, _)| from.parse::<usize>().ok());
    let Some(from) = from.filter(|&from| from < content.len()) else {
        return Message::answer(200, &headers, content);
    };
    let last = range.and_then(|(_, last)| last.parse::<usize>().ok());
    let last = last.unwrap_or(usize::MAX).min(content.len() - 1).max(from);
    let _ = write!(
        headers,
        "Content-Range: bytes {from}-{last}/{}\r\n",
        content.len()
    );
    Message::answer(206, &headers, &content[from..=last])
}

/// A page of the objects of a bucket.
fn list(bucket: &str, query: &str, objects: &BTreeMap<String, Vec<u8>>) -> Message {
    let parameter = |name: &str| {
        let mut all = query.split('&').filter_map(|part| part.split_once('='));
        let value = all.find(|(found, _)| *found == name);
        value.map(|(_, value)| decoded(value))
    };
    let root = format!("{}/", bucket.trim_end_matches('/'));
    let prefix = root.clone() + &parameter("prefix").unwrap_or_default();
    let from = match parameter("continuation-token") {
        Some(last) => Bound::Excluded(root.clone() + &last),
        None => Bound::Included(prefix.clone()),
    };
    let mut all = objects
        .range((from, Bound::Unbounded))
        .take_while(|(path, _)| path.starts_with(&prefix));
    let page: Vec<_> = all.by_ref().take(PAGE).collect();
    let more = all.next().is_some();
    let mut xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult>".to_owned();
    for (path, content) in &page {
        let (key, size) = (&path[root.len()..], content.len());
        let _ = write!(
            xml,
            "<Contents><Key>{key}</Key><LastModified>{TIME}</LastModified><ETag>\"0\"</ETag>\
             <Size>{size}</Size></Contents>"
        );
    }
    if let Some((last, _)) = page.last().filter(|_| more) {
        let token = &last[root.len()..];
        let _ = write!(
            xml,
            "<NextContinuationToken>{token}</NextContinuationToken>"
        );
    }
    let _ = write!(
        xml,
        "<KeyCount>{}</KeyCount><IsTruncated>{more}</IsTruncated></ListBucketResult>",
        page.len()
    );
    Message::answer(200, "Content-Type: application/xml\r\n", xml.as_bytes())
}

/// A text without its percent signs.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, behind)) = rest.split_first() {
        let code = behind.get(..2).filter(|_| byte == b'%');
        let code = code.and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(code) => {
                bytes.push(code);
                rest = &behind[2..];
            }
            None => {
                bytes.push(byte);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
