//! The export that a server gives to its clients: the device, and how it may be used.
//!
//! # Invariants
//! - All clients share one device object. So a flush of one connection makes durable what was
//!   acknowledged on any, and the export can say that several connections are safe.
//! - A flush that failed is remembered ([`LatchedDevice`]): no later flush of any client succeeds.

use std::io;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, LatchedDevice};

use crate::export::Export;
use crate::protocol::flag;

/// Threads of a connection, unless the options say otherwise.
const THREADS: usize = 4;

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

    /// Makes durable what clients were told is written.
    pub(super) fn flush(&self) -> io::Result<()> {
        if self.export.has(flag::READ_ONLY) {
            return Ok(());
        }
        self.device.flush()
    }
}
