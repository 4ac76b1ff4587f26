//! Marks of a file of the host, by which a change of its content shows.
//!
//! A change in the same tick of the host's clock as the last one before the marks were taken may
//! leave them as they are, on file systems without finer times.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use rustix::fs::Stat;

/// The identity, the length and the times of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Stamp {
    file: (u64, u64),
    len: u64,
    modified: (i64, i64),
    /// Of any change: a program can set the other back, but not this one.
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of an open file.
    pub(crate) fn of(found: &Metadata) -> Self {
        Self {
            file: (found.dev(), found.ino()),
            len: found.len(),
            modified: (found.mtime(), found.mtime_nsec()),
            changed: (found.ctime(), found.ctime_nsec()),
        }
    }

    /// The stamp of an entry of a directory.
    pub(crate) fn of_entry(found: &Stat) -> Self {
        Self {
            file: (found.st_dev, found.st_ino),
            len: found.st_size.cast_unsigned(),
            modified: (found.st_mtime, found.st_mtime_nsec.cast_signed()),
            changed: (found.st_ctime, found.st_ctime_nsec.cast_signed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use extant_testkit::TempDir;
    use rustix::fs::stat;

    use super::*;

    #[test]
    fn both_kinds_of_stamps_agree_and_show_changes() {
        let dir = TempDir::new("stamp").unwrap();
        let path = dir.join("file");
        fs::write(&path, b"one").unwrap();
        let stamp = Stamp::of(&fs::metadata(&path).unwrap());
        assert_eq!(Stamp::of_entry(&stat(&path).unwrap()), stamp);
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        // The times of some hosts have ticks.
        std::thread::sleep(std::time::Duration::from_millis(20));
        fs::write(&path, b"two").unwrap();
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.set_modified(modified).unwrap();
        assert_ne!(Stamp::of(&fs::metadata(&path).unwrap()), stamp);
    }
}
