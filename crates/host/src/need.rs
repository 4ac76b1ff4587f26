//! Needs of a program, and whether the machine has them.

use std::path::Path;

use crate::{FuseRings, programs};

/// Something a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The caller is root.
    Root,
    /// FUSE: the device can be opened and `fusermount3` is there.
    Fuse,
    /// Loop devices and Linux's ext4 (implies root).
    Loop,
    /// The kernel's overlayfs.
    Overlay,
    /// The kernel's io_uring.
    IoUring,
    /// FUSE over io_uring, switched on or for the caller to switch.
    FuseRings,
    /// PostgreSQL's server and clients.
    Postgres,
    /// A program on the path.
    Tool(&'static str),
}

impl Need {
    /// Why this need is not met; `None` if it is.
    pub fn missing(self) -> Option<String> {
        match self {
            Need::Root => (!is_root()).then(|| "needs root".to_owned()),
            Need::Fuse => {
                let open = std::fs::OpenOptions::new()
                    .read(true)
                    .write(true)
                    .open("/dev/fuse")
                    .err();
                if let Some(e) = open {
                    return Some(format!("needs FUSE: /dev/fuse: {e}"));
                }
                Need::Tool("fusermount3").missing()
            }
            Need::Loop => {
                if !is_root() {
                    return Some("needs root for a loop mount".to_owned());
                }
                if !Path::new("/dev/loop-control").exists() {
                    return Some("needs loop devices: no /dev/loop-control".to_owned());
                }
                None
            }
            Need::Overlay => {
                let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
                let missing = !known.lines().any(|line| line.ends_with("\toverlay"));
                missing.then(|| "needs overlayfs".to_owned())
            }
            Need::IoUring => extant_blockdev::io_uring()
                .err()
                .map(|refusal| refusal.to_string()),
            Need::FuseRings => FuseRings::missing(),
            Need::Postgres => programs::postgres().is_none().then(|| {
                "needs PostgreSQL's server and client (Debian's package postgresql)".to_owned()
            }),
            Need::Tool(name) => programs::find(name)
                .is_none()
                .then(|| format!("needs the program `{name}`")),
        }
    }
}

/// Returns whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[cfg(test)]
mod tests {
    use super::Need;

    #[test]
    fn a_missing_program_is_named() {
        let why = Need::Tool("no-such-program-anywhere").missing().unwrap();
        assert!(why.contains("no-such-program-anywhere"));
        assert_eq!(Need::Tool("sh").missing(), None);
    }
}
