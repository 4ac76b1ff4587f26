//! Reading what fs-verity keeps of a file: its digest, tree, descriptor and signature.

use extant_disk::verity::{TreeHash, measured_part, signature_of};
use extant_units::{at_most_usize, index};

use crate::file::verity::{self, FoundTree};
use crate::state::file::Salted;
use crate::state::inode::Inode;
use crate::types::VerityMetadata;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Returns whether fs-verity protects the content of `inode`.
pub(crate) fn is_verity(inode: &Inode) -> bool {
    verity::is_protected(inode.flags())
}

/// The digest of a file that fs-verity protects, and its function: of the descriptor without its
/// signature. It vouches for the content, the size and the parameters.
///
/// # Errors
/// [`Error::NotSupported`] on a volume without the feature; [`Error::NoAttribute`] if the file is
/// not protected; damage; a failed read.
pub(crate) fn measure_verity(fs: &Fs, inode: &Inode) -> Result<(TreeHash, Vec<u8>)> {
    let found = find(fs, inode)?;
    let measured = measured_part(&found.stored);
    let measured = measured.map_err(|error| Error::corrupt(Location::Inode(inode.ino), error))?;
    let hash = found.hash();
    Ok((hash, Salted::new(hash, &[]).digest(&measured)))
}

/// Reads a part of what is kept of a protected file from byte `at` of it on. Returns the number of
/// bytes: fewer than asked for at the end.
///
/// # Errors
/// As [`measure_verity`]; [`Error::NoAttribute`] also where there is no signature.
pub(crate) fn read_verity(
    fs: &Fs,
    inode: &Inode,
    part: VerityMetadata,
    at: u64,
    buf: &mut [u8],
) -> Result<usize> {
    let found = find(fs, inode)?;
    let bytes: &[u8] = match part {
        VerityMetadata::Tree => {
            let left = found.tree_bytes().saturating_sub(at);
            let len = at_most_usize(left).min(buf.len());
            found.read_tree(fs, inode, at, &mut buf[..len])?;
            return Ok(len);
        }
        VerityMetadata::Descriptor => &found.stored[..found.stored.len() - signature(&found).len()],
        VerityMetadata::Signature if signature(&found).is_empty() => {
            return Err(Error::NoAttribute);
        }
        VerityMetadata::Signature => signature(&found),
    };
    let from = index(at.min(bytes.len() as u64));
    let len = (bytes.len() - from).min(buf.len());
    buf[..len].copy_from_slice(&bytes[from..from + len]);
    Ok(len)
}

fn signature(found: &FoundTree) -> &[u8] {
    signature_of(&found.stored)
}

fn find(fs: &Fs, inode: &Inode) -> Result<FoundTree> {
    fs.fault.check_alive()?;
    verity::require_feature(fs)?;
    if !verity::is_protected(inode.flags()) {
        return Err(Error::NoAttribute);
    }
    verity::find(fs, inode).inspect_err(|error| crate::file::latch_if_corrupt(fs, error))
}
