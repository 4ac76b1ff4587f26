//! Attributes, by the names of `os.stat_result`.

use extant::{Attr, Timestamp};
use pyo3::prelude::*;

/// The result of `stat`.
#[pyclass(frozen, get_all, module = "extant._extant", name = "Stat")]
pub(crate) struct Stat {
    st_mode: u32,
    st_ino: u32,
    st_nlink: u32,
    st_uid: u32,
    st_gid: u32,
    st_size: u64,
    st_blocks: u64,
    st_blksize: u32,
    st_rdev: u32,
    st_atime_ns: i128,
    st_mtime_ns: i128,
    st_ctime_ns: i128,
    st_birthtime_ns: Option<i128>,
}

/// Nanoseconds since 1970.
fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.secs) * 1_000_000_000 + i128::from(time.nanos)
}

/// Seconds since 1970, as far as a float has them.
fn seconds(nanoseconds: i128) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "Python's times in seconds are floats"
    )]
    let nanoseconds = nanoseconds as f64;
    nanoseconds / 1e9
}

impl From<&Attr> for Stat {
    fn from(attr: &Attr) -> Stat {
        Stat {
            st_mode: u32::from(attr.mode()),
            st_ino: attr.ino.get(),
            st_nlink: attr.nlink,
            st_uid: attr.uid,
            st_gid: attr.gid,
            st_size: attr.size,
            st_blocks: attr.blocks,
            st_blksize: attr.blksize,
            st_rdev: attr.rdev,
            st_atime_ns: nanoseconds(attr.atime),
            st_mtime_ns: nanoseconds(attr.mtime),
            st_ctime_ns: nanoseconds(attr.ctime),
            st_birthtime_ns: attr.crtime.map(nanoseconds),
        }
    }
}

#[pymethods]
impl Stat {
    #[getter]
    fn st_atime(&self) -> f64 {
        seconds(self.st_atime_ns)
    }

    #[getter]
    fn st_mtime(&self) -> f64 {
        seconds(self.st_mtime_ns)
    }

    #[getter]
    fn st_ctime(&self) -> f64 {
        seconds(self.st_ctime_ns)
    }

    fn __repr__(&self) -> String {
        let Stat {
            st_mode, st_size, ..
        } = self;
        format!("Stat(st_mode={st_mode:#o}, st_size={st_size})")
    }
}
