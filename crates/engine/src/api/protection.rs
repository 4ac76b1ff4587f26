//! Files whose content fs-verity fixes, and openers that write, which there are none of meanwhile.

use std::fmt;

use extant_disk::verity::{TreeHash, VerityParams};

use super::node::Node;
use super::volume::Volume;
use crate::types::{FileKind, VerityMetadata};
use crate::{Cred, Error, Result, file};

/// An opener that may write a file, for as long as this exists: see [`Volume::open_for_writing`].
#[must_use]
pub struct WriteAccess(Node);

impl Volume {
    /// Counts an opener that may write `node`, a regular file, until the result is dropped. A front
    /// end that opens files does this at each open for writing. Other writes are not refused before
    /// the file's content is fixed: they wait until that has succeeded or failed.
    ///
    /// # Errors
    /// [`Error::NotPermitted`] if fs-verity protects the file; [`Error::TextBusy`] while
    /// [`Volume::enable_verity`] is under way. Nothing else that open(2) refuses.
    pub fn open_for_writing(&self, node: &Node) -> Result<WriteAccess> {
        let inode = node.inode();
        if !inode.writers.admit() {
            return Err(Error::TextBusy);
        }
        let access = WriteAccess(node.clone());
        // No protection begins as long as the opener is counted.
        match file::is_verity(inode) {
            true => Err(Error::NotPermitted),
            false => Ok(access),
        }
    }

    /// Fixes the content of a file by fs-verity: a Merkle tree is made of it and stored behind its
    /// end. From here on it cannot be opened for writing, and whatever is read is checked: bytes
    /// that were altered below the file system are [`Error::Io`], never data. There is no way back
    /// but to remove the file. Attributes and names change as before.
    ///
    /// The caller checks the permission to write. A signature is stored and not judged: on Linux a
    /// keyring does that.
    ///
    /// # Errors
    /// [`Error::NotSupported`] on a volume without the feature `verity`, and for a file without
    /// extents; [`Error::Invalid`] for parameters that there cannot be, and anything but a file or
    /// directory; [`Error::IsDir`]; [`Error::Exists`] if it is done already; [`Error::TextBusy`]
    /// while an opener may write; [`Error::NotPermitted`] for immutable and append-only files;
    /// [`Error::FileTooBig`], [`Error::NoSpace`] and [`Error::OverQuota`] if there is no room for
    /// the tree; [`Error::ReadOnly`]; [`Error::NoKey`] for encrypted files; [`Error::Io`] if data
    /// of the file was lost. The content is not fixed then, and nothing of the tree is left.
    pub fn enable_verity(&self, node: &Node, params: &VerityParams, cred: &Cred) -> Result<()> {
        file::enable_verity(self.fs(), node.inode(), params, cred)
    }

    /// Notes that a front end has lost data of a file that it had accepted, and tells its openers
    /// of that. Until the next [`Volume::fsync`] of the file, or a refused
    /// [`Volume::enable_verity`], its content is not fixed.
    pub fn note_lost_data(&self, node: &Node) {
        file::note_lost_above(self.fs(), node.inode());
    }

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

impl Drop for WriteAccess {
    fn drop(&mut self) {
        self.0.inode().writers.leave();
    }
}

impl fmt::Debug for WriteAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriteAccess").field(&self.0).finish()
    }
}
