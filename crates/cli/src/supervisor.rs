//! The service manager that started this process and waits until it is ready: systemd, with
//! `Type=notify`.

use std::env;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;

/// Its socket.
pub(crate) struct Supervisor(UnixDatagram);

impl Supervisor {
    /// The one that the environment names, if there is one.
    pub(crate) fn of_environment() -> Option<Supervisor> {
        let name = env::var_os("NOTIFY_SOCKET")?;
        let address = match name.as_bytes() {
            [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
            _ => SocketAddr::from_pathname(Path::new(&name)),
        };
        let socket = UnixDatagram::unbound().ok()?;
        socket.connect_addr(&address.ok()?).ok()?;
        Some(Supervisor(socket))
    }

    /// Reports that the mount answers.
    pub(crate) fn ready(self) {
        // A manager that is gone does not wait.
        let _ = self.0.send(b"READY=1");
    }
}
