//! The label of a volume.

use super::volume::Volume;
use crate::Result;
use crate::volume;

impl Volume {
    /// The volume's label; empty if it has none.
    ///
    /// # Errors
    /// The superblock cannot be read.
    pub fn label(&self) -> Result<Vec<u8>> {
        let raw = self.fs().super_block.read(self.fs())?;
        let name = raw.volume_name.split(|&byte| byte == 0).next();
        Ok(name.unwrap_or_default().to_vec())
    }

    /// Changes the label: up to 16 bytes, none of them 0. It is durable with the next commit.
    /// Copies of the superblock in other groups keep the old one.
    ///
    /// # Errors
    /// [`crate::Error::Invalid`] if it is longer, or has a 0; [`crate::Error::ReadOnly`].
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        volume::set_label(self.fs(), label)
    }
}
