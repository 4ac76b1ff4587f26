//! Names in directories: the calls that the metadata cases time.

use extant_host::Result;

/// Calls on names, from any thread. Files are named by a directory and a number.
pub(crate) trait Names: Sync {
    /// Makes a directory.
    fn make_dir(&self, dir: &str) -> Result<()>;
    /// Returns whether there is such a directory.
    fn has_dir(&self, dir: &str) -> bool;
    /// Removes an empty directory.
    fn remove_dir(&self, dir: &str) -> Result<()>;
    /// Makes an empty file.
    fn create(&self, file: &str) -> Result<()>;
    /// Writes `bytes` to a file that is there.
    fn write(&self, file: &str, bytes: &[u8]) -> Result<()>;
    /// Looks at a file's attributes; returns its length in bytes.
    fn stat(&self, file: &str) -> Result<u64>;
    /// Opens a file for reading and closes it.
    fn open(&self, file: &str) -> Result<()>;
    /// Sets a file's permissions.
    fn chmod(&self, file: &str, bits: u16) -> Result<()>;
    /// Lists a directory; returns the number of entries.
    fn list(&self, dir: &str) -> Result<u64>;
    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    /// Removes a file.
    fn unlink(&self, file: &str) -> Result<()>;
    /// Makes all of the file system durable.
    fn sync(&self) -> Result<()>;
}
