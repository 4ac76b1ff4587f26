//! Whole contents of files: reading, writing and copying them by paths.

use std::path::Path;

use extant_engine::{Error, Result};

use crate::filesystem::Filesystem;

/// Bytes that one step of a copy asks for.
const STEP: u64 = 1 << 30;

impl Filesystem {
    /// The whole content of a file.
    ///
    /// # Errors
    /// Those of opening and reading; [`Error::FileTooBig`] if it does not fit the memory of the
    /// host.
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let file = self.open_file(path)?;
        let len = usize::try_from(file.metadata()?.len()).map_err(|_| Error::FileTooBig)?;
        let mut content = Vec::new();
        content
            .try_reserve_exact(len)
            .map_err(|_| Error::FileTooBig)?;
        content.resize(len, 0);
        let done = file.fill_at(&mut content, 0)?;
        content.truncate(done);
        Ok(content)
    }

    /// The whole content of a file that is text.
    ///
    /// # Errors
    /// As [`Filesystem::read`]; [`std::io::ErrorKind::InvalidData`] if it is not UTF-8.
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> std::io::Result<String> {
        let content = self.read(path)?;
        String::from_utf8(content)
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))
    }

    /// Writes a whole file, replacing what was there.
    ///
    /// # Errors
    /// Those of creating and writing.
    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<()> {
        self.create(path)?.write_all_at(content.as_ref(), 0)
    }

    /// Copies content and permission bits of a file to another one, which is made or replaced.
    /// Holes stay holes. Returns the number of bytes.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fs = extant::testing::filesystem(16 << 20)?;
    /// fs.write("/one", "content")?;
    /// assert_eq!(fs.copy("/one", "/two")?, 7);
    /// assert_eq!(fs.read_to_string("/two")?, "content");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if both are the same file, which stays as it is; those of opening,
    /// reading and writing.
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open_file(from)?;
        let like = source.metadata()?;
        let mut options = self.open_options();
        options.write(true).create(true).mode(like.mode());
        let target = options.open(to)?;
        if target.node().ino() == source.node().ino() {
            return Err(Error::Invalid);
        }
        target.set_len(0)?;
        target.set_permissions(like.permissions())?;
        let mut done = 0;
        while done < like.len() {
            match source.copy_range(done, &target, done, STEP.min(like.len() - done))? {
                0 => break,
                copied => done += copied,
            }
        }
        // A hole at the end is no data, and the size reaches past it.
        if target.metadata()?.len() != done {
            target.set_len(done)?;
        }
        Ok(done)
    }
}
