//! Errors as Python knows them.

use std::path::Path;

use extant::{CopyError, build, mkfs};
use pyo3::PyErr;
use pyo3::exceptions::{PyOSError, PyValueError};

/// The `OSError` of a call about a path; its class follows from the errno.
pub(crate) fn at(path: &Path, error: &extant::Error) -> PyErr {
    let path = path.as_os_str().to_owned();
    PyOSError::new_err((error.errno(), error.to_string(), path))
}

/// The `OSError` of a call about an open file.
pub(crate) fn of(error: &extant::Error) -> PyErr {
    PyOSError::new_err((error.errno(), error.to_string()))
}

/// The error of an object that is used after it was closed.
pub(crate) fn closed(what: &str) -> PyErr {
    PyValueError::new_err(format!("I/O operation on closed {what}"))
}

/// An error of the host about a path.
fn of_host(path: &Path, error: &std::io::Error) -> PyErr {
    let text = error.to_string();
    match extant::Error::errno_of(error) {
        Some(errno) => PyOSError::new_err((errno, text, path.as_os_str().to_owned())),
        None => PyOSError::new_err(format!("{}: {text}", path.display())),
    }
}

/// Why a file was not copied.
pub(crate) fn of_copy(error: &CopyError) -> PyErr {
    of_host(error.path(), error.error())
}

/// The error that Linux would report of a path, in words of its own.
fn like(error: &extant::Error, path: &Path, text: String) -> PyErr {
    PyOSError::new_err((error.errno(), text, path.as_os_str().to_owned()))
}

/// Why no volume was made.
pub(crate) fn of_mkfs(path: &Path, error: mkfs::Error) -> PyErr {
    use mkfs::Error as E;
    let text = error.to_string();
    match error {
        E::NoSize => like(&extant::Error::NotFound, path, text),
        E::Occupied { .. } => like(&extant::Error::Exists, path, text),
        E::Open(error) => at(path, &error.into()),
        E::Io(error) => of_host(path, &error),
        _ => PyValueError::new_err(format!("{}: {text}", path.display())),
    }
}

/// Why no volume was built.
pub(crate) fn of_build(path: &Path, error: build::Error) -> PyErr {
    use build::Error as E;
    match error {
        E::Mkfs(error) => of_mkfs(path, error),
        E::Occupied { .. } => like(&extant::Error::Exists, path, error.to_string()),
        E::Io { place, error } => of_host(Path::new(&place), &error),
        E::NoRoom { .. } => like(&extant::Error::NoSpace, path, error.to_string()),
        E::Entry { place, what } => like(&extant::Error::Invalid, Path::new(&place), what),
        E::Stopped => like(&extant::Error::Interrupted, path, error.to_string()),
        E::Options(_) => PyValueError::new_err(error.to_string()),
    }
}
