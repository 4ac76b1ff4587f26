//! Moving names.

use std::path::Path;

use extant_engine::{Error, FileKind, Node, RenameFlags, Result};

use crate::filesystem::Filesystem;
use crate::last_name::{ends_in_slash, parent};

/// A path that a rename names: the directory, the name in it, and whether a slash follows.
struct RenamedName<'p> {
    dir: Node,
    name: &'p [u8],
    slash: bool,
}

impl Filesystem {
    /// Moves `from` to `to`, and replaces an entry that is there, as rename(2).
    ///
    /// # Errors
    /// As rename(2).
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        self.rename_with(from, to, RenameFlags::empty())
    }

    /// As renameat2(2).
    ///
    /// # Errors
    /// As renameat2(2).
    pub fn rename_with(
        &self,
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        flags: RenameFlags,
    ) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (old_dir, old) = parent(self.volume(), from)?;
        let (new_dir, new) = parent(self.volume(), to)?;
        let taken = match flags.contains(RenameFlags::NOREPLACE) {
            true => Error::Exists,
            false => Error::Busy,
        };
        let old = RenamedName {
            dir: old_dir,
            name: old.name_or(Error::Busy)?,
            slash: ends_in_slash(from),
        };
        let new = RenamedName {
            dir: new_dir,
            name: new.name_or(taken)?,
            slash: ends_in_slash(to),
        };
        if old.slash || new.slash {
            self.check_slashes(&old, &new, flags)?;
        }
        let cred = self.cred();
        self.volume()
            .rename(&old.dir, old.name, &new.dir, new.name, flags, cred)
    }

    /// Refuses a slash behind what is no directory, in the order of renameat2(2).
    fn check_slashes(
        &self,
        old: &RenamedName<'_>,
        new: &RenamedName<'_>,
        flags: RenameFlags,
    ) -> Result<()> {
        let kind = |at: &RenamedName<'_>| Ok(self.volume().lookup(&at.dir, at.name)?.kind());
        let old_is_dir = kind(old)? == FileKind::Directory;
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if flags.contains(RenameFlags::NOREPLACE) {
            match kind(new) {
                Ok(_) => return Err(Error::Exists),
                Err(Error::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        if exchange && kind(new)? != FileKind::Directory && new.slash {
            return Err(Error::NotDir);
        }
        // A slash behind the new name means what takes it, but for an exchange.
        if !old_is_dir && (old.slash || (new.slash && !exchange)) {
            return Err(Error::NotDir);
        }
        Ok(())
    }
}
