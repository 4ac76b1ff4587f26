//! Names in directories: the calls that the metadata cases time.

use std::fs::{self, File, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use extant::Filesystem;
use extant_testkit::Result;

use super::Host;

/// Calls on names, from any thread. Files are named by a directory and a number.
pub(crate) trait Names: Sync {
    /// Makes a directory.
    fn make_dir(&self, dir: &str) -> Result<()>;
    /// Whether there is such a directory.
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
}

impl Names for Filesystem {
    fn make_dir(&self, dir: &str) -> Result<()> {
        Ok(self.create_dir(dir)?)
    }

    fn has_dir(&self, dir: &str) -> bool {
        self.symlink_metadata(dir).is_ok()
    }

    fn remove_dir(&self, dir: &str) -> Result<()> {
        Ok(Filesystem::remove_dir(self, dir)?)
    }

    fn create(&self, file: &str) -> Result<()> {
        let mut options = self.open_options();
        drop(options.write(true).create_new(true).open(file)?);
        Ok(())
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Result<()> {
        let opened = self.open_options().write(true).open(file)?;
        opened.write_at(bytes, 0)?;
        Ok(())
    }

    fn stat(&self, file: &str) -> Result<u64> {
        Ok(self.symlink_metadata(file)?.len())
    }

    fn open(&self, file: &str) -> Result<()> {
        drop(self.open_file(file)?);
        Ok(())
    }

    fn chmod(&self, file: &str, bits: u16) -> Result<()> {
        Ok(self.set_permissions(file, extant::Permissions::from_mode(bits.into()))?)
    }

    fn list(&self, dir: &str) -> Result<u64> {
        let mut entries = 0;
        for entry in self.read_dir(dir)? {
            std::hint::black_box(entry?);
            entries += 1;
        }
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(Filesystem::rename(self, from, to)?)
    }

    fn unlink(&self, file: &str) -> Result<()> {
        Ok(self.remove_file(file)?)
    }
}

impl Host {
    /// The path on the host: the leading slash is the mount.
    fn at(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }
}

impl Names for Host {
    fn make_dir(&self, dir: &str) -> Result<()> {
        Ok(fs::create_dir(self.at(dir))?)
    }

    fn has_dir(&self, dir: &str) -> bool {
        self.at(dir).is_dir()
    }

    fn remove_dir(&self, dir: &str) -> Result<()> {
        Ok(fs::remove_dir(self.at(dir))?)
    }

    fn create(&self, file: &str) -> Result<()> {
        drop(File::create_new(self.at(file))?);
        Ok(())
    }

    fn write(&self, file: &str, bytes: &[u8]) -> Result<()> {
        Ok(File::options()
            .write(true)
            .open(self.at(file))?
            .write_all(bytes)?)
    }

    fn stat(&self, file: &str) -> Result<u64> {
        Ok(fs::symlink_metadata(self.at(file))?.len())
    }

    fn open(&self, file: &str) -> Result<()> {
        drop(File::open(self.at(file))?);
        Ok(())
    }

    fn chmod(&self, file: &str, bits: u16) -> Result<()> {
        let permissions = Permissions::from_mode(bits.into());
        Ok(fs::set_permissions(self.at(file), permissions)?)
    }

    fn list(&self, dir: &str) -> Result<u64> {
        let mut entries = 0;
        for entry in fs::read_dir(self.at(dir))? {
            std::hint::black_box(entry?);
            entries += 1;
        }
        Ok(entries)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        Ok(fs::rename(self.at(from), self.at(to))?)
    }

    fn unlink(&self, file: &str) -> Result<()> {
        Ok(fs::remove_file(self.at(file))?)
    }
}
