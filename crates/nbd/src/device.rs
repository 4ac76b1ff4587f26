//! The device over an export.

use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use extant_blockdev::{BlockDevice, OpenMode, Queueing};
use extant_units::DevOff;

use crate::address::Address;
use crate::error::NbdError;
use crate::link::Link;
use crate::protocol::flag;
use crate::queue::NbdQueue;
use crate::remote::Remote;
use crate::socket::Socket;
use crate::tls;

/// An export of an NBD server as a block device.
///
/// When a connection is lost, the device connects again, writes again what the server may have
/// lost, and goes on; requests wait meanwhile. Nothing keeps another client of the server from
/// writing to the same export: only multiple mount protection (`mmp`) of the volume does.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use extant_blockdev::{BlockDevice, OpenMode};
/// use extant_nbd::NbdDevice;
///
/// let address = "nbd+unix:///?socket=/run/disk.sock".parse()?;
/// let device = NbdDevice::connect(address, OpenMode::ReadWrite)?;
/// println!("{} bytes", device.len());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct NbdDevice {
    remote: Arc<Remote>,
}

/// Reads the certificates of `address`, for good: a process that confines itself afterwards needs
/// no files for them.
///
/// # Errors
/// A certificate or a key cannot be used.
pub fn read_certificates(address: &mut Address) -> Result<(), NbdError> {
    let config = |wanted| tls::config(wanted).map(Arc::new);
    address.prepared.tls = address.tls.as_ref().map(config).transpose()?;
    Ok(())
}

/// Connects to the server of `address` for another process, and says nothing to it. Takes as long
/// as `patience` at most, and as the longest time that the address names.
///
/// # Errors
/// The name has no address; what the host said of the last of its addresses.
pub fn dial(address: &Address, patience: Duration) -> io::Result<OwnedFd> {
    let longest = address.timeout.max(address.reconnect);
    let deadline = Instant::now() + patience.min(longest);
    Socket::connect(&address.endpoint, deadline).map(OwnedFd::from)
}

impl NbdDevice {
    /// Connects to the export of `address`.
    ///
    /// # Errors
    /// See [`NbdError`]. An export that is read-only, or that could not be made durable, is refused
    /// for writing.
    pub fn connect(address: Address, mode: OpenMode) -> Result<NbdDevice, NbdError> {
        let link = Link::open(address)?;
        let read_only = mode == OpenMode::ReadOnly;
        if !read_only && link.export.has(flag::READ_ONLY) {
            return Err(NbdError::ReadOnly);
        }
        if !read_only && !link.export.can_be_durable() {
            return Err(NbdError::NoDurability);
        }
        let remote = Arc::new(Remote::new(link, read_only));
        Ok(NbdDevice { remote })
    }
}

impl BlockDevice for NbdDevice {
    fn len(&self) -> u64 {
        self.remote.len()
    }

    fn is_read_only(&self) -> bool {
        self.remote.read_only
    }

    fn read_at(&self, offset: DevOff, buf: &mut [u8]) -> io::Result<()> {
        self.remote.read(offset.get(), buf)
    }

    fn read_vectored_at(&self, offset: DevOff, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut joined = vec![0; bufs.iter().map(|buf| buf.len()).sum()];
        self.remote.read(offset.get(), &mut joined)?;
        let mut rest = joined.as_slice();
        for buf in bufs {
            let (piece, behind) = rest.split_at(buf.len());
            buf.copy_from_slice(piece);
            rest = behind;
        }
        Ok(())
    }

    fn write_at(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.remote.write(offset.get(), buf, false)
    }

    fn write_vectored_at(&self, offset: DevOff, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut joined = Vec::with_capacity(bufs.iter().map(|buf| buf.len()).sum());
        for buf in bufs {
            joined.extend_from_slice(buf);
        }
        self.remote.write(offset.get(), &joined, false)
    }

    fn flush(&self) -> io::Result<()> {
        self.remote.flush()
    }

    fn write_durable(&self, offset: DevOff, buf: &[u8]) -> io::Result<()> {
        self.remote.write_durable(offset.get(), buf)
    }

    fn discard(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.remote.discard(offset.get(), len)
    }

    fn write_zeroes(&self, offset: DevOff, len: u64) -> io::Result<()> {
        self.remote.write_zeroes(offset.get(), len)
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let link = &self.remote.link;
        let mut all = link.counters.list();
        all.push(("nbd_connections", link.connections() as u64));
        all.push(("nbd_unflushed_bytes", link.log.held() as u64));
        all
    }

    fn queueing(&self, depth: usize) -> Queueing {
        Queueing::Own(Box::new(NbdQueue::new(&self.remote, depth)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_testkit::TempDir;
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, listen, socket};

    /// The process that asks may be foreign code.
    #[test]
    fn a_dial_takes_no_longer_than_the_address_says() {
        let dir = TempDir::new("dial").unwrap();
        let path = dir.join("socket");
        // A server that accepts nothing.
        let server = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
        bind(&server, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        listen(&server, 0).unwrap();
        let path = path.display();
        let address = format!("nbd+unix:///?socket={path}&timeout=1&reconnect=0");
        let address: Address = address.parse().unwrap();
        // Its queue takes the first.
        let mut waiting = Vec::new();
        let error = loop {
            match dial(&address, Duration::MAX) {
                Ok(fd) => waiting.push(fd),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
