//! Reading blocks of attributes.

use extant_disk::xattr::check_block;
use extant_jbd2::{Block, CheckKey};
use extant_units::{Group, Ino, Pblk};

use crate::state::volume::CheckKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The key of attribute blocks, which belong to no single inode.
pub(super) fn key() -> CheckKey {
    CheckKind::Xattr.of_group(Group::new(0))
}

/// The attribute block at `pblk`, checked.
pub(super) fn read_block(fs: &Fs, ino: Ino, pblk: Pblk) -> Result<Block> {
    let result = fs.cache.read(pblk, key(), |bytes| {
        check_block(fs.layout.csum_seed, pblk, bytes)
            .map_err(|e| Error::corrupt(Location::XattrBlock(ino, pblk), e))
    });
    if let Err(error) = &result {
        fs.fault.report(fs, error);
    }
    result
}
