//! The export that a server gives to its clients: the device, and how it may be used.
//!
//! # Invariants
//! - All clients share one device object. So a flush of one connection makes durable what was
//!   acknowledged on any, and the export can say that several connections are safe.
//! - A flush that failed is remembered ([`LatchedDevice`]): no later flush of any client succeeds.
//! - A request that leaves the export, or changes one that is only read, does not reach the device.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use extant_blockdev::{BlockDevice, LatchedDevice};
use extant_units::DevOff;
use tracing::{debug, warn};

use crate::export::Export;
use crate::protocol::{
    Command, FORCE_UNIT_ACCESS, NO_HOLE, Request, RequestHeader, flag, number, number_of,
};

/// Threads of a connection, unless the options say otherwise.
const THREADS: usize = 4;
/// The most failed requests that are told of as warnings. A client may ask without end.
const MOST_WARNINGS: u64 = 100;
/// Zeros that are written at a time where a hole is not wanted.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Options of an export that is served.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ServeOptions {
    /// Clients only read, also where the device could be written.
    pub read_only: bool,
    /// The name of the export. Clients find it by the empty name as well.
    pub export: String,
    /// Requests of one connection that are carried out at a time, at least one.
    pub threads: usize,
}

impl Default for ServeOptions {
    fn default() -> ServeOptions {
        ServeOptions {
            read_only: false,
            export: String::new(),
            threads: THREADS,
        }
    }
}

/// A device with the options by which clients use it.
pub struct Service {
    device: LatchedDevice,
    export: Export,
    options: ServeOptions,
    failures: AtomicU64,
}

impl Service {
    /// An export of `device`.
    ///
    /// # Errors
    /// The protocol has no device of that length.
    pub fn new(device: Arc<dyn BlockDevice>, options: ServeOptions) -> io::Result<Arc<Service>> {
        let mut flags = flag::HAS_FLAGS | flag::FLUSH | flag::FUA | flag::MULTI_CONN;
        if options.read_only || device.is_read_only() {
            flags |= flag::READ_ONLY;
        } else {
            flags |= flag::TRIM | flag::WRITE_ZEROES;
        }
        Ok(Arc::new(Service {
            export: Export::new(device.len(), flags)?,
            device: LatchedDevice::new(device),
            options,
            failures: AtomicU64::new(0),
        }))
    }

    /// The export as clients are told of it.
    pub(super) fn export(&self) -> &Export {
        &self.export
    }

    /// Its name.
    pub(super) fn name(&self) -> &str {
        &self.options.export
    }

    /// Returns whether a client that asks for `name` means it.
    pub(super) fn is_named(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.options.export.as_bytes()
    }

    /// Requests of one connection that are carried out at a time.
    pub(super) fn threads(&self) -> usize {
        self.options.threads.max(1)
    }

    /// The request behind `header`, or the number of the error that it gets.
    pub(super) fn check(&self, header: &RequestHeader) -> Result<Request, u32> {
        let command = Command::of(header.command).ok_or(number::INVALID)?;
        let known = match command {
            Command::WriteZeroes => NO_HOLE | FORCE_UNIT_ACCESS,
            _ => FORCE_UNIT_ACCESS,
        };
        if header.flags & !known != 0 {
            return Err(number::INVALID);
        }
        if command.changes() && self.export.has(flag::READ_ONLY) {
            return Err(number::NOT_PERMITTED);
        }
        let request = Request {
            command,
            flags: header.flags,
            offset: header.offset,
            len: header.len,
        };
        if command == Command::Flush {
            return Ok(request);
        }
        let end = header.offset.checked_add(header.len.into());
        if end.is_none_or(|end| end > self.export.size) {
            let adds = matches!(command, Command::Write | Command::WriteZeroes);
            return Err(if adds {
                number::NO_SPACE
            } else {
                number::INVALID
            });
        }
        if command == Command::Read && header.len > self.export.longest {
            return Err(number::OVERFLOW);
        }
        Ok(request)
    }

    /// Carries out `request`, which was checked. `data` has its bytes, or gets them.
    ///
    /// # Errors
    /// The number of the error that the client gets; the log has its cause.
    pub(super) fn carry_out(&self, request: &Request, data: &mut [u8]) -> Result<(), u32> {
        // A bug below is the failure of one request.
        let perform = || self.perform(request, data);
        let performed = catch_unwind(AssertUnwindSafe(perform));
        let performed = performed.unwrap_or_else(|_| Err(io::Error::other("it panicked")));
        performed.map_err(|error| {
            self.tell(request, &error);
            number_of(&error)
        })
    }

    fn perform(&self, request: &Request, data: &mut [u8]) -> io::Result<()> {
        let (device, at) = (&self.device, DevOff::new(request.offset));
        let durable = request.flags & FORCE_UNIT_ACCESS != 0;
        match request.command {
            Command::Read => return device.read_at(at, data),
            Command::Write if durable => return device.write_durable(at, data),
            Command::Write => device.write_at(at, data)?,
            Command::Trim => device.discard(at, request.len.into())?,
            Command::WriteZeroes if request.flags & NO_HOLE != 0 => self.fill(request)?,
            Command::WriteZeroes => device.write_zeroes(at, request.len.into())?,
            Command::Flush => return device.flush(),
            Command::Disconnect => return Ok(()),
        }
        if durable { device.flush() } else { Ok(()) }
    }

    /// Writes the zeros of `request` as data.
    fn fill(&self, request: &Request) -> io::Result<()> {
        let end = request.offset + u64::from(request.len);
        for at in (request.offset..end).step_by(ZEROS.len()) {
            let len = usize::try_from(end - at).unwrap_or(ZEROS.len());
            let zeros = &ZEROS[..len.min(ZEROS.len())];
            self.device.write_at(DevOff::new(at), zeros)?;
        }
        Ok(())
    }

    /// Logs why a request failed.
    fn tell(&self, request: &Request, error: &io::Error) {
        let Request {
            command,
            offset,
            len,
            ..
        } = request;
        let before = self.failures.fetch_add(1, Ordering::Relaxed);
        match before {
            ..MOST_WARNINGS => warn!("NBD: {command:?} of {len} bytes at {offset}: {error}"),
            MOST_WARNINGS => warn!("NBD: more requests fail, and are not told of"),
            _ => debug!("NBD: {command:?} of {len} bytes at {offset}: {error}"),
        }
    }

    /// Makes durable what clients were told is written.
    pub(super) fn flush(&self) -> io::Result<()> {
        if self.export.has(flag::READ_ONLY) {
            return Ok(());
        }
        self.device.flush()
    }
}
