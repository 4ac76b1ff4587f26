//! Data inside of inodes (`inline_data`): in `i_block`, and behind that in the attribute
//! `system.data`. A directory there has its parent's number and then entries.

use extant_disk::dirent::DirFormat;
use extant_disk::inode::InodeCore;
use extant_disk::xattr::{NameIndex, XattrError, XattrName, area_entries};
use extant_units::{BlockSize, Ino};

/// Bytes of the parent's number.
const PARENT: usize = 4;

/// All bytes that the inode has for data; `None` without the attribute, which there always is.
///
/// # Errors
/// The attributes in front of it cannot be read.
pub(crate) fn data(core: &InodeCore) -> Result<Option<Vec<u8>>, XattrError> {
    let name = XattrName {
        index: NameIndex::SYSTEM,
        rest: b"data",
    };
    let mut bytes = core.i_block.to_vec();
    for entry in area_entries(&core.xattrs)? {
        let entry = entry?;
        if entry.name == name {
            bytes.extend_from_slice(entry.value);
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// The layout of the block that the entries of a directory would fill: without a checksum, and with
/// room for all that an inode holds.
pub(crate) fn format(of: DirFormat) -> DirFormat {
    let larger = BlockSize::from_log2(of.block_size.log2() + 1);
    DirFormat {
        seed: None,
        block_size: larger.unwrap_or(of.block_size),
        ..of
    }
}

/// That block, for the directory `own` with the data `data`. `None` if there is no parent, or no
/// room.
pub(crate) fn as_block(format: &DirFormat, own: Ino, data: &[u8]) -> Option<Box<[u8]>> {
    let (parent, entries) = data.split_first_chunk::<PARENT>()?;
    let parent = Ino::new(u32::from_le_bytes(*parent))?;
    let mut block = vec![0; format.block_size.bytes()];
    format.init_first(&mut block, own, parent);
    format
        .follow_dots(&mut block, entries)
        .then(|| block.into_boxed_slice())
}
