//! Needs of a program, and whether the machine has them.

use std::path::Path;

use crate::{Cmd, FuseRings, programs};

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
    /// A kernel of this version or a later one.
    Linux(u32, u32),
    /// A program on the path.
    Tool(&'static str),
    /// nbdkit's plugin of this name.
    NbdkitPlugin(&'static str),
    /// A program or a folder that a variable names: the variable, and the description of what it
    /// names.
    Named(&'static str, &'static str),
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
            Need::Linux(major, minor) => {
                let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
                let release = release.unwrap_or_default();
                let mut numbers = release.split('.').map(|n| n.parse().unwrap_or(0));
                let is_old = (numbers.next(), numbers.next()) < (Some(major), Some(minor));
                is_old.then(|| format!("needs Linux {major}.{minor}"))
            }
            Need::Tool(name) => programs::find(name)
                .is_none()
                .then(|| format!("needs the program `{name}`")),
            Need::NbdkitPlugin(name) => {
                let found = Cmd::new("nbdkit").args([name, "--dump-plugin"]).run();
                let is_there = found.is_ok_and(|output| output.code == Some(0));
                (!is_there).then(|| format!("needs nbdkit's plugin `{name}`"))
            }
            Need::Named(variable, what) => {
                let path = std::env::var_os(variable).unwrap_or_default();
                let is_there = Path::new(&path).exists();
                (!is_there).then(|| format!("needs {what}: {variable} names it"))
            }
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

    #[test]
    fn kernels_are_counted_by_number() {
        assert_eq!(Need::Linux(2, 40).missing(), None);
        let why = Need::Linux(1000, 1).missing();
        assert_eq!(why.as_deref(), Some("needs Linux 1000.1"));
    }

    #[test]
    fn what_no_variable_names_is_missing() {
        let why = Need::Named("EXTANT_NO_SUCH_VARIABLE", "a folder").missing();
        assert_eq!(
            why.as_deref(),
            Some("needs a folder: EXTANT_NO_SUCH_VARIABLE names it")
        );
        assert_eq!(
            Need::Named("CARGO_MANIFEST_DIR", "a folder").missing(),
            None
        );
    }
}
