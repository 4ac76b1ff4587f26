//! What a test needs of the machine, and what becomes of it where that is missing.
//!
//! A test that cannot run says so: its name and the reason go to standard error and, for the
//! totals that `cargo xtask test` prints, to the file `$EXTANT_SKIP_LOG`. With `EXTANT_NO_SKIP=1`
//! (as CI sets) a missing need is a failure instead.

use crate::tools;
use std::io::Write;
use std::path::Path;

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
            Need::IoUring => extant_blockdev::io_uring().err(),
            Need::Postgres => tools::postgres().is_none().then(|| {
                "needs PostgreSQL's server and client (Debian's package postgresql)".to_owned()
            }),
            Need::Tool(name) => tools::find(name)
                .is_none()
                .then(|| format!("needs the program `{name}`")),
        }
    }
}

/// Whether this process runs as root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// True if all of `needs` are met. If not, the test is recorded as skipped and should return.
///
/// # Panics
/// If something is missing while `EXTANT_NO_SKIP=1`.
#[must_use]
pub fn need(needs: &[Need]) -> bool {
    let Some(why) = needs.iter().find_map(|n| n.missing()) else {
        return true;
    };
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("?").to_owned();
    assert!(
        std::env::var_os("EXTANT_NO_SKIP").is_none_or(|v| v != "1"),
        "{test} may not be skipped here (EXTANT_NO_SKIP=1), but: {why}"
    );
    eprintln!("SKIPPED {test}: {why}");
    log_line("EXTANT_SKIP_LOG", &format!("{}\t{test}\t{why}", suite()));
    false
}

/// A figure worth a line at the end of the whole run ("pjdfstest: 389 of 389 as on Linux").
pub fn report(line: &str) {
    eprintln!("REPORT {line}");
    log_line("EXTANT_REPORT_LOG", &format!("{}\t{line}", suite()));
}

/// The test binary's name without cargo's hash.
fn suite() -> String {
    let exe = std::env::current_exe().ok();
    let stem = exe
        .as_deref()
        .and_then(Path::file_stem)
        .map(|s| s.to_string_lossy().into_owned());
    let stem = stem.unwrap_or_default();
    stem.rsplit_once('-')
        .map_or(stem.clone(), |(name, _)| name.to_owned())
}

fn log_line(var: &str, line: &str) {
    let Some(path) = std::env::var_os(var) else {
        return;
    };
    let opened = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path);
    // One write per line: several suites may append at once.
    if let Err(e) = opened.and_then(|mut f| f.write_all(format!("{line}\n").as_bytes())) {
        eprintln!("cannot log to ${var}: {e}");
    }
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
