//! Mounting and unmounting as an ordinary user: `fusermount3`.
//!
//! The helper is started with one end of a socket pair, mounts, and passes the descriptor of
//! `/dev/fuse` back through it. If it refuses, its standard error says why.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::mount::UnmountFlags;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::MountOptions;
use crate::fd_passing::receive;

/// The helper's name, found through `PATH`.
const HELPER: &str = "fusermount3";
/// The variable with the descriptor of the program's end of the socket.
const SOCKET_VARIABLE: &str = "_FUSE_COMMFD";

pub(super) fn mount(source: &str, dir: &Path, options: &MountOptions) -> io::Result<OwnedFd> {
    let kind = SocketType::STREAM;
    let (ours, theirs) = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    // Inherited by the helper; closed here as soon as it runs.
    fcntl_setfd(&theirs, FdFlags::empty())?;
    let child = Command::new(HELPER)
        .arg("-o")
        .arg(options.helper_words(source))
        .arg("--")
        .arg(dir)
        .env(SOCKET_VARIABLE, theirs.as_raw_fd().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(missing)?;
    drop(theirs);
    let received = receive(&ours, &mut [0]);
    let output = child.wait_with_output()?;
    match received {
        Ok((_, Some(fd))) => Ok(fd),
        // It has closed the socket without sending one.
        Ok((_, None)) => Err(refusal(&output.stderr)),
        Err(error) => Err(error.into()),
    }
}

/// Detaches as an unmount of the same mount would, for a mount of any process.
pub fn detach(dir: &Path, lazy: bool, by_helper: bool) -> io::Result<()> {
    if by_helper {
        return unmount(dir, lazy);
    }
    let flags = if lazy {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    Ok(rustix::mount::unmount(dir, flags | UnmountFlags::NOFOLLOW)?)
}

fn unmount(dir: &Path, lazy: bool) -> io::Result<()> {
    let mut command = Command::new(HELPER);
    command.arg("-u");
    if lazy {
        command.arg("-z");
    }
    let output = command
        .arg("--")
        .arg(dir)
        .stdin(Stdio::null())
        .output()
        .map_err(missing)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(refusal(&output.stderr))
    }
}

fn missing(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::NotFound => io::Error::new(
            error.kind(),
            format!("{HELPER} is needed to mount as an ordinary user (package fuse3)"),
        ),
        _ => error,
    }
}

/// What the helper said, without its name in front.
fn refusal(stderr: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(stderr);
    let text = text
        .lines()
        .map(|line| line.trim_start_matches("fusermount3: "));
    let text = text.collect::<Vec<_>>().join("; ");
    let kind = match () {
        () if text.contains("busy") => io::ErrorKind::ResourceBusy,
        () if text.contains("ermission") || text.contains("user_allow_other") => {
            io::ErrorKind::PermissionDenied
        }
        () => io::ErrorKind::Other,
    };
    let text = if text.is_empty() {
        format!("{HELPER} failed and did not say why")
    } else {
        text
    };
    io::Error::new(kind, text)
}
