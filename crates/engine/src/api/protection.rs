//! Files whose content fs-verity fixes.

use extant_disk::verity::TreeHash;

use super::node::Node;
use super::volume::Volume;
use crate::types::{FileKind, VerityMetadata};
use crate::{Error, Result, file};

impl Volume {
    /// The digest of a file that fs-verity protects, and its function: the number that a trusted
    /// source vouches for. It is read from the file's descriptor; the content is checked against it
    /// as it is read.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a volume without the feature `verity`; [`Error::NoAttribute`] if
    /// the file is not protected; damage; a failed read.
    pub fn measure_verity(&self, node: &Node) -> Result<(TreeHash, Vec<u8>)> {
        self.require_file(node)?;
        file::measure_verity(self.fs(), node.inode())
    }

    /// Reads a part of what fs-verity keeps of a file, from byte `pos` of that part on. Returns the
    /// number of bytes: fewer than asked for at the end.
    ///
    /// # Errors
    /// As [`Volume::measure_verity`]; [`Error::NoAttribute`] also if there is no signature.
    pub fn read_verity(
        &self,
        node: &Node,
        part: VerityMetadata,
        pos: u64,
        buf: &mut [u8],
    ) -> Result<usize> {
        self.require_file(node)?;
        file::read_verity(self.fs(), node.inode(), part, pos, buf)
    }

    /// Nothing but a file is protected.
    fn require_file(&self, node: &Node) -> Result<()> {
        match node.kind() {
            FileKind::Regular => Ok(()),
            _ => Err(Error::NoAttribute),
        }
    }
}
