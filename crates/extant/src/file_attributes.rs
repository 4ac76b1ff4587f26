//! Attributes of an open file: as of a path, also once its name is removed.

use extant_engine::{Error, Result, SetAttr, XattrMode};

use crate::file::File;
use crate::metadata::{FileTimes, Metadata, Permissions};

impl File {
    /// The attributes.
    ///
    /// # Errors
    /// [`Error::Shutdown`] once the file system is gone.
    pub fn metadata(&self) -> Result<Metadata> {
        let (volume, node, _) = self.parts();
        Ok(Metadata(volume.getattr(node)?))
    }

    /// Sets the permission bits.
    ///
    /// # Errors
    /// Those of changing the inode.
    pub fn set_permissions(&self, permissions: Permissions) -> Result<()> {
        self.change(&SetAttr {
            perm: Some(permissions.bits()),
            ..SetAttr::default()
        })
    }

    /// Sets times.
    ///
    /// # Errors
    /// Those of changing the inode.
    pub fn set_times(&self, times: FileTimes) -> Result<()> {
        self.change(&times.into())
    }

    /// Changes any attributes.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size if the file was not opened for writing; those of the changes.
    pub fn set_attributes(&self, changes: &SetAttr) -> Result<()> {
        if changes.size.is_some() && !self.is_writable() {
            return Err(Error::Invalid);
        }
        self.change(changes)
    }

    /// Sets owner and group; `None` leaves one as it is.
    ///
    /// # Errors
    /// As fchown(2).
    pub fn set_owner(&self, uid: Option<u32>, gid: Option<u32>) -> Result<()> {
        self.change(&SetAttr {
            uid,
            gid,
            ..SetAttr::default()
        })
    }

    /// The value of an extended attribute (`user.note`).
    ///
    /// # Errors
    /// [`Error::NoAttribute`] if there is none.
    pub fn xattr(&self, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let (volume, node, _) = self.parts();
        volume.getxattr(node, name.as_ref())
    }

    /// The names of the extended attributes.
    ///
    /// # Errors
    /// Those of reading them.
    pub fn xattrs(&self) -> Result<Vec<Vec<u8>>> {
        let (volume, node, _) = self.parts();
        volume.listxattr(node)
    }

    /// Sets an extended attribute; `mode` says whether it has to be new, or there.
    ///
    /// # Errors
    /// As [`crate::Filesystem::set_xattr_with`].
    pub fn set_xattr(&self, name: impl AsRef<[u8]>, value: &[u8], mode: XattrMode) -> Result<()> {
        let (volume, node, cred) = self.parts();
        volume.setxattr(node, name.as_ref(), value, mode, cred)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoAttribute`] if there is none.
    pub fn remove_xattr(&self, name: impl AsRef<[u8]>) -> Result<()> {
        let (volume, node, cred) = self.parts();
        volume.removexattr(node, name.as_ref(), cred)
    }

    fn change(&self, changes: &SetAttr) -> Result<()> {
        let (volume, node, cred) = self.parts();
        volume.setattr(node, changes, cred).map(drop)
    }
}
