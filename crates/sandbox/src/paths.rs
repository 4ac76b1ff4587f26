//! Landlock: no path, no port, no signal and no abstract socket of others.

use landlock::{
    ABI, Access, AccessFs, AccessNet, Ruleset, RulesetAttr, RulesetError, RulesetStatus, Scope,
};

/// Versions of Landlock, from the latest one with rights that are asked for here.
const VERSIONS: [(ABI, u32); 6] = [
    (ABI::V6, 6),
    (ABI::V5, 5),
    (ABI::V4, 4),
    (ABI::V3, 3),
    (ABI::V2, 2),
    (ABI::V1, 1),
];

/// Takes all that Landlock knows of, and returns the version that is in force, or 0 if the kernel
/// has none.
pub(crate) fn close() -> Result<u32, RulesetError> {
    let asked = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V6))?
        .handle_access(AccessNet::from_all(ABI::V6))?
        .scope(Scope::from_all(ABI::V6))?;
    match asked.create()?.restrict_self()?.ruleset {
        RulesetStatus::NotEnforced => Ok(0),
        _ => Ok(version()),
    }
}

/// The latest version whose rights the kernel takes without leaving one out.
fn version() -> u32 {
    let whole = |abi: ABI| -> Result<(), RulesetError> {
        use landlock::{CompatLevel, Compatible};
        let mut asked = Ruleset::default()
            .set_compatibility(CompatLevel::HardRequirement)
            .handle_access(AccessFs::from_all(abi))?;
        if !AccessNet::from_all(abi).is_empty() {
            asked = asked.handle_access(AccessNet::from_all(abi))?;
        }
        if !Scope::from_all(abi).is_empty() {
            asked = asked.scope(Scope::from_all(abi))?;
        }
        asked.create().map(drop)
    };
    let found = VERSIONS.iter().find(|(abi, _)| whole(*abi).is_ok());
    found.map_or(0, |&(_, number)| number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io;
    use std::net::{TcpListener, TcpStream};
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    use std::thread;

    /// Landlock by itself, without the filter of calls, in a thread of its own.
    #[test]
    fn nothing_is_left_to_the_thread() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap();
        let name = SocketAddr::from_abstract_name(format!("extant-{}", port.port())).unwrap();
        let _unix = UnixListener::bind_addr(&name).unwrap();
        let connected = thread::spawn(move || {
            let refused = |outcome: io::Result<()>| {
                let kind = outcome.map_err(|error| error.kind());
                kind == Err(io::ErrorKind::PermissionDenied)
            };
            (
                close().unwrap(),
                refused(TcpStream::connect(port).map(drop)),
                refused(UnixStream::connect_addr(&name).map(drop)),
            )
        });
        let (version, no_port, no_abstract_socket) = connected.join().unwrap();
        assert_eq!(no_port, version >= 4);
        assert_eq!(no_abstract_socket, version >= 6);
        let opened = thread::spawn(|| {
            let version = close().unwrap();
            let inner = thread::spawn(|| File::open("/etc/passwd").map_err(|e| e.kind()));
            let inner = inner.join().unwrap().map(drop);
            (
                version,
                File::open("/etc/passwd").map_err(|e| e.kind()).map(drop),
                inner,
            )
        });
        let (version, own, inner) = opened.join().unwrap();
        if version > 0 {
            let refused = Err(std::io::ErrorKind::PermissionDenied);
            assert_eq!((own, inner), (refused, refused));
        }
        // The other threads keep theirs: this is why a process confines itself with one thread.
        assert!(File::open("/etc/passwd").is_ok());
    }
}
