//! Why the kernel's io_uring is not used for a file.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::io::Errno;

/// Why the kernel's io_uring is not used for a file.
#[derive(Clone, Debug)]
pub enum RingRefusal {
    /// The kernel made no ring.
    Kernel {
        /// The kernel's error.
        source: Arc<io::Error>,
        /// The value of `kernel.io_uring_disabled`, if it can be read.
        switch: Option<String>,
    },
    /// The path leads to another file than the one that was opened first.
    Replaced,
    /// The file could not be opened a second time, for the ring.
    Reopen(Arc<io::Error>),
}

impl fmt::Display for RingRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kernel { source, switch } => kernel(f, source, switch.as_deref()),
            Self::Replaced => f.write_str("it is being replaced by another file"),
            Self::Reopen(source) => write!(f, "it cannot be opened a second time: {source}"),
        }
    }
}

/// The meaning of the kernel's error.
fn kernel(f: &mut fmt::Formatter<'_>, error: &io::Error, switch: Option<&str>) -> fmt::Result {
    let meaning = match (Errno::from_io_error(error), switch.map(str::trim)) {
        (Some(Errno::NOSYS), _) => "this kernel has no io_uring",
        (Some(Errno::PERM), Some("1")) => {
            "io_uring is for privileged users only (kernel.io_uring_disabled is 1)"
        }
        (Some(Errno::PERM), Some("2")) => {
            "io_uring is switched off (kernel.io_uring_disabled is 2)"
        }
        (Some(Errno::PERM | Errno::ACCESS), _) => {
            "io_uring is not permitted here (a seccomp filter or another security policy)"
        }
        (Some(Errno::NOMEM), _) => {
            "no memory for io_uring (locked memory may be limited: ulimit -l)"
        }
        _ if error.kind() == io::ErrorKind::Unsupported => {
            "this kernel's io_uring lacks what is needed (Linux 5.6 has it)"
        }
        _ => return write!(f, "io_uring: {error}"),
    };
    f.write_str(meaning)
}

impl std::error::Error for RingRefusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Kernel { source, .. } | Self::Reopen(source) => Some(&**source),
            Self::Replaced => None,
        }
    }
}
