//! Reading the replies of a server.
//!
//! # Invariants
//! The bytes that a server sends go into the buffer of the request that they name, into a header,
//! or into a message of at most [`LONGEST_MESSAGE`] bytes. What fits none of them ends the
//! connection, and so does a reply of more than [`MOST_ERRORS`] errors. One message of a reply is
//! logged.

use std::io::{self, Read};

use crate::in_flight::InFlight;
use crate::loss::{Loss, violation};
use crate::negotiation::shown;
use crate::pending::Pending;
use crate::protocol::{Command, SHUTDOWN, SIMPLE_REPLY, STRUCTURED_REPLY, chunk, server_error};

/// The longest payload of an error: number, length, a string of 4096 bytes, offset.
const LONGEST_MESSAGE: u32 = 8192;
/// The most errors in the reply to one request. Servers send one, or one for each range that could
/// not be read.
const MOST_ERRORS: u32 = 256;

/// Reads replies until the connection is lost; returns how it was.
pub(crate) fn read_replies(input: &mut impl Read, table: &InFlight, structured: bool) -> Loss {
    loop {
        if let Err(error) = read_reply(input, table, structured) {
            return Loss::of(&error);
        }
    }
}

fn read_reply(input: &mut impl Read, table: &InFlight, structured: bool) -> io::Result<()> {
    match u32::from_be_bytes(array(input)?) {
        SIMPLE_REPLY => simple(input, table, structured),
        STRUCTURED_REPLY if structured => read_chunk(input, table),
        magic => Err(violation(format!(
            "a reply with the magic number {magic:#010x}"
        ))),
    }
}

fn array<const N: usize>(input: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    input.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn take(table: &InFlight, cookie: u64) -> io::Result<Pending> {
    let unknown = || violation(format!("a reply to a request that was not sent ({cookie})"));
    table.take(cookie).ok_or_else(unknown)
}

/// The error for a server that says that it shuts down: it carries out nothing more.
fn shutting_down() -> io::Error {
    io::Error::new(
        io::ErrorKind::ConnectionAborted,
        "the server is shutting down",
    )
}

/// A reply that is a header, and the data of a read.
fn simple(input: &mut impl Read, table: &InFlight, structured: bool) -> io::Result<()> {
    let error = u32::from_be_bytes(array(input)?);
    let cookie = u64::from_be_bytes(array(input)?);
    let mut pending = take(table, cookie)?;
    let read = pending.request.command == Command::Read;
    let result = if error == SHUTDOWN {
        Err(shutting_down())
    } else if error != 0 {
        pending.error = Some(server_error(error));
        Ok(())
    } else if read && structured {
        Err(violation(
            "a simple reply to a read, after structured ones were agreed on",
        ))
    } else if read {
        input.read_exact(&mut pending.buf)
    } else {
        Ok(())
    };
    leave(table, pending, result)
}

/// Ends a request that was taken out of the table: with its outcome, or lost with the connection.
fn leave(table: &InFlight, mut pending: Pending, result: io::Result<()>) -> io::Result<()> {
    match result {
        Ok(()) => {
            let outcome = pending.error.take().map_or(Ok(()), Err);
            table.end(|| pending.finish(outcome));
            Ok(())
        }
        Err(error) => {
            // Before the request is lost: its caller looks for the reason.
            table.close(Loss::of(&error));
            table.end(|| pending.lose());
            Err(error)
        }
    }
}

/// One chunk of a structured reply.
fn read_chunk(input: &mut impl Read, table: &InFlight) -> io::Result<()> {
    let flags = u16::from_be_bytes(array(input)?);
    let kind = u16::from_be_bytes(array(input)?);
    let cookie = u64::from_be_bytes(array(input)?);
    let len = u32::from_be_bytes(array(input)?);
    let mut pending = take(table, cookie)?;
    let done = flags & chunk::DONE != 0;
    let payload = match kind {
        chunk::NONE if len == 0 && done => Ok(()),
        chunk::NONE => Err(violation("a chunk of no kind that is not the last")),
        chunk::DATA => data(input, &mut pending, len),
        chunk::HOLE => hole(input, &mut pending, len),
        kind if kind & chunk::ERROR != 0 => failure(input, &mut pending, len),
        kind => Err(violation(format!("a chunk of the unknown kind {kind}"))),
    };
    if payload.is_ok() && !done {
        table.put_back(cookie, pending);
        return Ok(());
    }
    let missing = pending.request.command == Command::Read
        && pending.error.is_none()
        && !pending.coverage.is_whole(pending.request.len);
    let result = match payload {
        Ok(()) if missing => Err(violation("the reply to a read lacks bytes")),
        payload => payload,
    };
    leave(table, pending, result)
}

/// The part of a read's buffer that a chunk of `len` bytes at `offset` fills.
fn part(pending: &mut Pending, offset: u64, len: u32) -> io::Result<&mut [u8]> {
    let request = pending.request;
    let start = offset
        .checked_sub(request.offset)
        .and_then(|start| u32::try_from(start).ok());
    let end = start.and_then(|start| start.checked_add(len));
    let range = start.zip(end).filter(|&(_, end)| end <= request.len);
    let outside = || violation("a chunk outside of the range that was read");
    let (start, end) = range
        .filter(|_| request.command == Command::Read)
        .ok_or_else(outside)?;
    if !pending.coverage.add(start..end) {
        return Err(violation("chunks of a read overlap, or are too many"));
    }
    let part = pending.buf.get_mut(start as usize..end as usize);
    part.ok_or_else(outside)
}

fn data(input: &mut impl Read, pending: &mut Pending, len: u32) -> io::Result<()> {
    let Some(len) = len.checked_sub(8).filter(|&len| len > 0) else {
        return Err(violation("a chunk of data without data"));
    };
    let offset = u64::from_be_bytes(array(input)?);
    input.read_exact(part(pending, offset, len)?)
}

fn hole(input: &mut impl Read, pending: &mut Pending, len: u32) -> io::Result<()> {
    if len != 12 {
        return Err(violation("a hole of the wrong length"));
    }
    let offset = u64::from_be_bytes(array(input)?);
    let len = u32::from_be_bytes(array(input)?);
    part(pending, offset, len)?.fill(0);
    Ok(())
}

/// A chunk that says that the request failed. The first one counts.
fn failure(input: &mut impl Read, pending: &mut Pending, len: u32) -> io::Result<()> {
    if pending.errors == MOST_ERRORS {
        return Err(violation("a reply of errors without end"));
    }
    pending.errors += 1;
    if !(6..=LONGEST_MESSAGE).contains(&len) {
        return Err(violation(format!("an error of {len} bytes")));
    }
    let number = u32::from_be_bytes(array(input)?);
    let message_len = usize::from(u16::from_be_bytes(array(input)?));
    let mut rest = vec![0; len as usize - 6];
    input.read_exact(&mut rest)?;
    let Some(message) = rest.get(..message_len) else {
        return Err(violation(
            "the message of an error is longer than its chunk",
        ));
    };
    if number == SHUTDOWN {
        return Err(shutting_down());
    }
    let message = shown(message);
    if pending.error.is_none() && !message.is_empty() {
        tracing::warn!("the NBD server reports: {message}");
    }
    pending.error.get_or_insert_with(|| server_error(number));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use extant_blockdev::IoBuf;
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use crate::coverage::Coverage;
    use crate::protocol::Request;

    /// Counts what is logged.
    struct Count(Arc<AtomicUsize>);

    impl Subscriber for Count {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn event(&self, _: &Event<'_>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn a_reply_of_errors_without_end_is_one_line_and_a_violation() {
        let table = InFlight::default();
        let sent = Pending {
            request: Request::new(Command::Read, 0, 512),
            buf: IoBuf::default(),
            coverage: Coverage::default(),
            error: None,
            errors: 0,
            mailbox: Arc::default(),
            number: 0,
            logged: None,
        };
        assert!(table.add(1, sent));
        let chunk = *b"\x66\x8e\x33\xef\0\0\x80\x01\0\0\0\0\0\0\0\x01\0\0\0\x08\0\0\0\x05\0\x02no";
        let bytes = chunk.repeat(1000);
        let logged = Arc::<AtomicUsize>::default();
        let count = Count(Arc::clone(&logged));
        let loss = tracing::subscriber::with_default(count, || {
            read_replies(&mut bytes.as_slice(), &table, true)
        });
        assert_eq!(
            loss,
            Loss::Violation("a reply of errors without end".to_owned())
        );
        assert_eq!(logged.load(Ordering::Relaxed), 1);
    }
}
