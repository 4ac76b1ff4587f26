//! An open file: reads and writes at positions.

use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::failure;
use crate::stat::Stat;

/// An open regular file, without a position.
#[pyclass(frozen, module = "extant._extant")]
pub(crate) struct File {
    /// None once it is closed.
    open: RwLock<Option<extant::File>>,
}

/// Fills `buf` from `pos` on as far as the file has bytes.
fn fill(file: &extant::File, buf: &mut [u8], pos: u64) -> extant::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, pos + done as u64)? {
            0 => break,
            n => done += n,
        }
    }
    Ok(done)
}

impl File {
    pub(crate) fn new(file: extant::File) -> File {
        File {
            open: RwLock::new(Some(file)),
        }
    }

    /// A call of the file, without the GIL.
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&extant::File) -> extant::Result<T> + Send,
    ) -> PyResult<T> {
        let done = py.detach(|| self.open.read().as_ref().map(call));
        match done {
            Some(done) => done.map_err(|error| failure::of(&error)),
            None => Err(failure::closed("file")),
        }
    }
}

#[pymethods]
impl File {
    /// Up to `len` bytes from `pos`: fewer only at the end of the file.
    fn pread<'py>(&self, py: Python<'py>, len: u64, pos: u64) -> PyResult<Bound<'py, PyBytes>> {
        let size = self.with(py, |file| Ok(file.metadata()?.len()))?;
        let len = usize::try_from(len.min(size.saturating_sub(pos)))?;
        let mut done = 0;
        let bytes = PyBytes::new_with(py, len, |buf| {
            done = self.with(py, |file| fill(file, buf, pos))?;
            Ok(())
        })?;
        match bytes.as_bytes().get(..done) {
            Some(read) if done < len => Ok(PyBytes::new(py, read)),
            _ => Ok(bytes),
        }
    }

    /// Writes at `pos`, and returns how many bytes were written.
    fn pwrite(&self, py: Python<'_>, data: &[u8], pos: u64) -> PyResult<usize> {
        self.with(py, |file| file.write_at(data, pos))
    }

    /// Writes at the end, and returns the position behind it and how many bytes were written.
    fn append(&self, py: Python<'_>, data: &[u8]) -> PyResult<(u64, usize)> {
        let (pos, done) = self.with(py, |file| file.append(data))?;
        Ok((pos + done as u64, done))
    }

    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |file| Ok(file.metadata()?.len()))
    }

    /// The beginning and the end of the next data from `pos` on; `None` if only a hole follows.
    fn next_data(&self, py: Python<'_>, pos: u64) -> PyResult<Option<(u64, u64)>> {
        self.with(py, |file| match file.seek_data(pos) {
            Err(extant::Error::NoSuchAddress) => Ok(None),
            start => {
                let start = start?;
                Ok(Some((start, file.seek_hole(start)?)))
            }
        })
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        self.with(py, |file| Ok(Stat::from(file.metadata()?.attr())))
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.with(py, |file| file.set_len(size))
    }

    /// Makes what was written durable.
    #[pyo3(signature = (data_only = false))]
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.with(py, |file| match data_only {
            true => file.sync_data(),
            false => file.sync_all(),
        })
    }

    fn close(&self, py: Python<'_>) {
        py.detach(|| drop(self.open.write().take()));
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        py.detach(|| self.open.read().is_none())
    }
}
