//! Reading values in inodes of their own (feature `ea_inode`).
//!
//! Such an inode is a regular file with a flag and without a name. Its time of access holds the
//! crc32c of the value, and the hash of the attribute follows from that.

use extant_disk::xattr::{ValueInode, XATTR_VALUE_MAX, XattrName};
use extant_units::{Ino, Lblk, exact_u32};

use crate::inode::InodeFlags;
use crate::map;
use crate::state::inode::Inode;
use crate::state::map::MapState;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The value of the attribute `name` of `owner`.
///
/// # Errors
/// Damage: the inode is none of a value, or holds another one; a failed read.
pub(super) fn read(
    fs: &Fs,
    owner: &Inode,
    name: &XattrName<'_>,
    at: &ValueInode,
) -> Result<Vec<u8>> {
    let read = value_of(fs, at).and_then(|value| {
        let crc = fs.layout.value_seed.feed(&value).raw();
        match at.is_hash_of(name, crc) {
            true => {
                if let Some(ino) = Ino::new(at.inode) {
                    fs.xattr_blocks.values.lock().add(crc, ino);
                }
                Ok(value)
            }
            false => Err(damaged(owner, at)),
        }
    });
    read.map_err(|error| match error {
        Error::Stale => damaged(owner, at),
        other => other,
    })
    .inspect_err(|error| fs.fault.report(fs, error))
}

fn damaged(owner: &Inode, at: &ValueInode) -> Error {
    Error::corrupt(Location::Inode(owner.ino), at.damage())
}

/// The bytes of the inode; [`Error::Stale`] if it is none of a value of this size.
fn value_of(fs: &Fs, at: &ValueInode) -> Result<Vec<u8>> {
    let ino = Ino::new(at.inode).ok_or(Error::Stale)?;
    let inode = fs.iget_value(ino)?;
    content(fs, &inode, at.size as usize)
}

/// The `size` bytes of the value in `inode`; [`Error::Stale`] if it is none of a value of this
/// size.
pub(super) fn content(fs: &Fs, inode: &Inode, size: usize) -> Result<Vec<u8>> {
    let fits = inode.kind == FileKind::Regular
        && inode.flags().contains(InodeFlags::EA_INODE)
        && inode.size() == size as u64
        && size <= XATTR_VALUE_MAX;
    if !fits {
        return Err(Error::Stale);
    }
    let block_size = fs.layout.block_size.bytes();
    let mut value = Vec::with_capacity(size);
    while value.len() < size {
        let lblk = Lblk::new(exact_u32((value.len() / block_size) as u64));
        let MapState::Written(pblk) = map::lookup(fs, inode, lblk, 1)?.state else {
            return Err(Error::Stale);
        };
        let block = fs.cache.read_unchecked(pblk)?;
        let bytes = block.data();
        let left = (size - value.len()).min(block_size);
        value.extend_from_slice(&bytes[..left]);
    }
    Ok(value)
}
