//! Messages of HTTP/1.1 as they are on the line: a head, and a body that ends where the head says.

use std::io::{self, BufRead, Read};

/// The most bytes of a head.
const LONGEST_HEAD: u64 = 64 << 10;

/// The most bytes of a body: the longest chunk, and room for a manifest.
const LONGEST_BODY: u64 = 600 << 20;

/// A request or an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Message {
    /// With the empty line at its end.
    pub(crate) head: String,
    /// As it is on the line: in pieces with their lengths where the head says so.
    pub(crate) body: Vec<u8>,
    /// It has no other end than that of its connection.
    is_last: bool,
}

fn bad(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Message {
    /// The next request; `None` at the end of the connection.
    pub(crate) fn read_request(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(head) = read_head(from)? else {
            return Ok(None);
        };
        let mut request = Self::of_head(head);
        if request.header("transfer-encoding").is_some() || request.length()?.is_some() {
            request.read_body(from)?;
        }
        Ok(Some(request))
    }

    /// The answer to a request with this method.
    pub(crate) fn read_answer(from: &mut impl BufRead, method: &str) -> io::Result<Self> {
        let head = read_head(from)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut answer = Self::of_head(head);
        let status = answer.word(1);
        let is_bare = status.starts_with('1') || status == "204" || status == "304";
        if method != "HEAD" && !is_bare {
            answer.read_body(from)?;
        }
        Ok(answer)
    }

    /// An answer that ends its connection.
    pub(crate) fn answer(status: u16, headers: &str, body: &[u8]) -> Self {
        let length = body.len();
        Self {
            head: format!("HTTP/1.1 {status} -\r\nContent-Length: {length}\r\n{headers}\r\n"),
            body: body.to_vec(),
            is_last: false,
        }
    }

    fn of_head(head: String) -> Self {
        Self {
            head,
            body: Vec::new(),
            is_last: false,
        }
    }

    fn read_body(&mut self, from: &mut impl BufRead) -> io::Result<()> {
        if self.header("transfer-encoding").is_some() {
            return read_pieces(from, &mut self.body);
        }
        match self.length()? {
            Some(length) => {
                from.take(length).read_to_end(&mut self.body)?;
                if (self.body.len() as u64) < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            None => {
                self.is_last = true;
                from.take(LONGEST_BODY).read_to_end(&mut self.body)?;
            }
        }
        Ok(())
    }

    /// A word of the first line.
    pub(crate) fn word(&self, nth: usize) -> &str {
        let line = self.head.lines().next().unwrap_or_default();
        line.split(' ').nth(nth).unwrap_or_default()
    }

    /// The value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().skip(1);
        lines.find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn length(&self) -> io::Result<Option<u64>> {
        let Some(value) = self.header("content-length") else {
            return Ok(None);
        };
        let length = value.parse().ok().filter(|&length| length <= LONGEST_BODY);
        length.map(Some).ok_or_else(|| bad("a body of no length"))
    }

    /// Returns whether no other message follows on its connection.
    pub(crate) fn is_last(&self) -> bool {
        let asked = self.header("connection");
        self.is_last || asked.is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// Bytes on the line.
    pub(crate) fn len(&self) -> u64 {
        (self.head.len() + self.body.len()) as u64
    }
}

/// The lines up to an empty one; `None` at the end of the connection.
fn read_head(from: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut head = String::new();
    loop {
        let left = LONGEST_HEAD - head.len() as u64;
        let read = from.take(left).read_line(&mut head)?;
        match read {
            0 if head.is_empty() => return Ok(None),
            0 => return Err(bad("a head without an end")),
            _ if head.ends_with("\r\n\r\n") => return Ok(Some(head)),
            _ => {}
        }
    }
}

/// A body in pieces, each behind a line with its length; one of no length ends it.
fn read_pieces(from: &mut impl BufRead, body: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let mut line = String::new();
        from.take(1024).read_line(&mut line)?;
        let digits = line.split([';', '\r']).next().unwrap_or_default();
        let length = u64::from_str_radix(digits, 16).map_err(|_| bad("a piece of no length"))?;
        body.extend(line.as_bytes());
        let end = body.len() as u64 + length + 2;
        if end > LONGEST_BODY {
            return Err(bad("a body that is too long"));
        }
        from.take(length + 2).read_to_end(body)?;
        if (body.len() as u64) < end {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if length == 0 {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_end_where_their_heads_say() {
        let mut line: &[u8] = b"PUT /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc\
            GET /b HTTP/1.1\r\nHost: x\r\n\r\n";
        let put = Message::read_request(&mut line).unwrap().unwrap();
        assert_eq!((put.word(0), put.word(1)), ("PUT", "/a"));
        assert_eq!(put.body, b"abc");
        let get = Message::read_request(&mut line).unwrap().unwrap();
        assert_eq!((get.header("host"), get.body.len()), (Some("x"), 0));
        assert_eq!(Message::read_request(&mut line).unwrap(), None);

        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let all = format!("{head}3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\nuntil the end");
        let mut line = all.as_bytes();
        let pieces = Message::read_answer(&mut line, "GET").unwrap();
        assert_eq!(pieces.body, b"3\r\nabc\r\n0\r\n\r\n");
        let last = Message::read_answer(&mut line, "GET").unwrap();
        assert!(last.is_last() && last.body == b"until the end");
        for at in 1..head.len() + 13 {
            let torn = Message::read_answer(&mut &all.as_bytes()[..at], "GET");
            assert!(torn.is_err(), "{at} bytes");
        }
    }

    #[test]
    fn lengths_that_no_body_has_are_refused() {
        for length in ["-1", "x", "99999999999999999999", "700000000"] {
            let line = format!("PUT / HTTP/1.1\r\nContent-Length: {length}\r\n\r\n");
            assert!(Message::read_request(&mut line.as_bytes()).is_err());
        }
        let long = vec![b'x'; 70_000];
        assert!(Message::read_request(&mut &long[..]).is_err());
    }
}
