//! One connection to a client, from the greeting to its end.
//!
//! # Concurrency
//! The calling thread reads requests; as many threads as the options say carry them out and send
//! the replies, in any order. A reply is sent whole, under the lock of the sender. When the client
//! disconnects, or what it sends ends, the requests that were read are carried out and answered.
//!
//! # Errors
//! A client that breaks the protocol loses its connection. A client that does not read its replies
//! loses it after [`SEND_LIMIT`]. Neither is noticed by another client.

use std::io::{self, Read};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use extant_blockdev::IoBuf;
use parking_lot::Mutex;

use crate::channel::{Channel, Receiver};
use crate::export::LONGEST;
use crate::loss::violation;
use crate::protocol::{Command, Request, RequestHeader, SIMPLE_REPLY, STRUCTURED_REPLY, chunk};
use crate::server::agreement::{Agreement, agree};
use crate::server::backlog::{Backlog, Job};
use crate::server::service::Service;

/// The time in which a client reads some bytes of a reply.
const SEND_LIMIT: Duration = Duration::from_secs(60);

/// Serves one client, which is through with the handshake in this time, until its connection
/// ends. `agreed` is called when it begins to send requests.
///
/// # Errors
/// The connection did not end as the protocol has it; the error says how.
pub(super) fn serve(
    service: &Service,
    channel: &Arc<Channel>,
    handshake: Duration,
    agreed: impl FnOnce(),
) -> io::Result<()> {
    let mut input = Receiver::until(channel, Instant::now() + handshake);
    let structured = match agree(service, channel, &mut input)? {
        Agreement::Serve { structured } => structured,
        Agreement::Leave => return Ok(()),
    };
    channel.leave_handshake(SEND_LIMIT)?;
    agreed();
    let client = Client {
        service,
        channel,
        structured,
        sending: Mutex::new(()),
        backlog: Arc::default(),
        lost: OnceLock::new(),
    };
    client.run(&mut input.without_deadline())
}

struct Client<'a> {
    service: &'a Service,
    channel: &'a Channel,
    structured: bool,
    /// Held while a reply is sent.
    sending: Mutex<()>,
    backlog: Arc<Backlog>,
    /// The first reply that could not be sent.
    lost: OnceLock<io::Error>,
}

/// Ends the connection if its thread panics: the others would wait for it.
struct EndOnPanic<'a>(&'a Client<'a>);

impl Drop for EndOnPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.channel.shut();
        }
    }
}

impl Client<'_> {
    fn run(mut self, input: &mut Receiver) -> io::Result<()> {
        let served = self.serve(input);
        match self.lost.take() {
            Some(error) => Err(error),
            None => served,
        }
    }

    fn serve(&self, input: &mut Receiver) -> io::Result<()> {
        thread::scope(|scope| {
            let mut workers = Vec::new();
            let mut result = Ok(());
            for _ in 0..self.service.threads() {
                let worker = thread::Builder::new().name("nbd-serve".into());
                match worker.spawn_scoped(scope, || self.work()) {
                    Ok(worker) => workers.push(worker),
                    Err(error) => result = Err(error),
                }
            }
            // With some threads less the client is served all the same.
            if !workers.is_empty() {
                result = self.read_requests(input);
            }
            self.backlog.close();
            for worker in workers {
                if worker.join().is_err() {
                    result = Err(io::Error::other("a thread of the connection has failed"));
                }
            }
            result
        })
    }

    /// Carries out requests until none comes any more.
    fn work(&self) {
        let _end = EndOnPanic(self);
        while let Some(mut job) = self.backlog.next() {
            let done = self.service.carry_out(&job.request, &mut job.data);
            if let Err(error) = self.answer(&job, done) {
                let _ = self.lost.set(error);
                // The thread that reads finds the connection at its end.
                self.channel.shut();
            }
        }
    }

    fn read_requests(&self, input: &mut Receiver) -> io::Result<()> {
        while let Some(header) = next_header(input)? {
            if header.command == Command::Disconnect as u16 {
                return Ok(());
            }
            let is_write = header.command == Command::Write as u16;
            if is_write && header.len > LONGEST {
                return Err(violation(format!("a write of {} bytes", header.len)));
            }
            let checked = self.service.check(&header);
            let with_data = matches!(&checked, Ok(one) if has_data(one));
            let len = if with_data { header.len } else { 0 };
            let room = self.backlog.room(len);
            let mut data = IoBuf::zeroed(len as usize);
            match checked {
                Ok(request) => {
                    if is_write {
                        input.read_exact(&mut data)?;
                    }
                    let job = Job::new(header.cookie, request, data, room);
                    self.backlog.push(job);
                }
                Err(number) => {
                    if is_write {
                        let mut skipped = input.take(header.len.into());
                        io::copy(&mut skipped, &mut io::sink())?;
                    }
                    self.refuse(header.cookie, number)?;
                }
            }
        }
        Ok(())
    }

    fn answer(&self, job: &Job, done: Result<(), u32>) -> io::Result<()> {
        if let Err(number) = done {
            return self.refuse(job.cookie, number);
        }
        let is_read = job.request.command == Command::Read;
        if !self.structured {
            let data: &[u8] = if is_read { &job.data } else { &[] };
            return self.send_simple(job.cookie, 0, data);
        }
        if !is_read || job.data.is_empty() {
            return self.send_chunk(job.cookie, chunk::NONE, &[]);
        }
        let offset = job.request.offset.to_be_bytes();
        if is_zero(&job.data) {
            let len = job.request.len.to_be_bytes();
            return self.send_chunk(job.cookie, chunk::HOLE, &[&offset, &len]);
        }
        self.send_chunk(job.cookie, chunk::DATA, &[&offset, &job.data])
    }

    /// Answers that a request failed.
    fn refuse(&self, cookie: u64, number: u32) -> io::Result<()> {
        if !self.structured {
            return self.send_simple(cookie, number, &[]);
        }
        // No message: its length is zero.
        let payload = [&number.to_be_bytes()[..], &[0, 0]];
        self.send_chunk(cookie, chunk::FAILED, &payload)
    }

    fn send_simple(&self, cookie: u64, number: u32, data: &[u8]) -> io::Result<()> {
        let mut header = [0; 16];
        header[..4].copy_from_slice(&SIMPLE_REPLY.to_be_bytes());
        header[4..8].copy_from_slice(&number.to_be_bytes());
        header[8..].copy_from_slice(&cookie.to_be_bytes());
        let _sending = self.sending.lock();
        self.channel.send(&[&header, data])
    }

    /// Sends the one chunk of a structured reply.
    fn send_chunk(&self, cookie: u64, kind: u16, payload: &[&[u8]]) -> io::Result<()> {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        let len = u32::try_from(len).map_err(|_| violation("a reply is too long"))?;
        let mut header = [0; 20];
        header[..4].copy_from_slice(&STRUCTURED_REPLY.to_be_bytes());
        header[4..6].copy_from_slice(&chunk::DONE.to_be_bytes());
        header[6..8].copy_from_slice(&kind.to_be_bytes());
        header[8..16].copy_from_slice(&cookie.to_be_bytes());
        header[16..].copy_from_slice(&len.to_be_bytes());
        let mut parts: Vec<&[u8]> = vec![&header];
        parts.extend_from_slice(payload);
        let _sending = self.sending.lock();
        self.channel.send(&parts)
    }
}

/// Returns whether data goes with `request`, in one direction or the other.
fn has_data(request: &Request) -> bool {
    matches!(request.command, Command::Read | Command::Write)
}

fn is_zero(data: &[u8]) -> bool {
    data.iter().all(|&byte| byte == 0)
}

/// The next request; nothing where the client's bytes end between two.
fn next_header(input: &mut Receiver) -> io::Result<Option<RequestHeader>> {
    let mut bytes = [0; RequestHeader::LEN];
    let mut read = 0;
    while read < bytes.len() {
        match input.read(&mut bytes[read..]) {
            Ok(0) if read == 0 => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let header = RequestHeader::parse(&bytes);
    let wrong = || violation("a request with the wrong magic number");
    header.ok_or_else(wrong).map(Some)
}
