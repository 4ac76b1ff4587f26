//! Open regular files of the host, as source and as target of a copy.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::handle::Handle;
use crate::copy::sides::{Change, Source, Target, UNKNOWN};
use crate::failure::Failure;

/// An open regular file.
pub(super) struct OpenFile {
    handle: Handle,
    len: u64,
}

impl OpenFile {
    /// An open file, of the length that it has now.
    pub(super) fn new(file: File) -> Result<OpenFile, Failure> {
        let len = file.metadata()?.len();
        let handle = Handle::new(file)?;
        Ok(OpenFile { handle, len })
    }
}

impl Source for OpenFile {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> Result<usize, Failure> {
        Ok(self.handle.file.read_at(buf, pos)?)
    }

    fn next_data(&self, pos: u64) -> Result<Option<(u64, u64)>, Failure> {
        use rustix::fs::SeekFrom::{Data, Hole};
        if self.len == 0 {
            // Of a file of `/proc` only reads tell where it ends.
            return Ok(Some((pos, UNKNOWN)));
        }
        let file = &self.handle.file;
        let found = rustix::fs::seek(file, Data(pos))
            .and_then(|start| Ok((start, rustix::fs::seek(file, Hole(start))?)));
        match found {
            Ok(range) => Ok(Some(range)),
            Err(Errno::NXIO) => Ok(None),
            // Not a file that knows its holes.
            Err(Errno::INVAL | Errno::SPIPE | Errno::OPNOTSUPP) => {
                Ok((pos < self.len).then_some((pos, self.len)))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn len(&self) -> Result<u64, Failure> {
        Ok(match self.len {
            0 => UNKNOWN,
            _ => self.handle.file.metadata()?.len(),
        })
    }
}

impl Target for OpenFile {
    fn write_at(&self, data: &[u8], pos: u64) -> Result<(), Failure> {
        Ok(self.handle.file.write_all_at(data, pos)?)
    }

    fn set_len(&self, len: u64) -> Result<(), Failure> {
        Ok(self.handle.file.set_len(len)?)
    }

    fn change(&self) -> Option<&dyn Change> {
        Some(&self.handle)
    }
}
