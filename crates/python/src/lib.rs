//! The Python module `extant._extant`: volumes and files by calls of their own.
//!
//! # Responsibility
//! Paths, bytes and numbers go in and out; what Python programs see (paths, file objects, walks,
//! fsspec) is written in Python, in `python/extant`.
//!
//! # Concurrency
//! Each call releases the GIL before it takes a lock or does I/O, and takes the GIL again after it
//! has let go of the lock. So no thread waits for one while it holds the other.
//!
//! # Errors
//! `OSError` with the errno that Linux would return and the path; `ValueError` for what was closed,
//! and for options that no volume can have.
#![forbid(unsafe_code)]

mod failure;
mod file;
mod filesystem;
mod making;
mod stat;

use pyo3::prelude::*;

#[pymodule]
fn _extant(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<filesystem::Volume>()?;
    module.add_class::<file::File>()?;
    module.add_class::<stat::Stat>()?;
    module.add_function(wrap_pyfunction!(making::mkfs, module)?)?;
    module.add_function(wrap_pyfunction!(making::build, module)?)?;
    module.add_function(wrap_pyfunction!(making::refuse_in_use, module)?)?;
    module.add_function(wrap_pyfunction!(making::check, module)?)
}
