//! The location of a symbolic link's target, and its checks. [`crate::symlink`] reads
//! and sets targets.

use extant_disk::damage::InodeDamage;
use extant_disk::features::Incompat;
use extant_disk::inode::BLOCK_AREA;
use extant_units::Ino;

use super::{InodeCore, InodeFlags};
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// Returns whether the target is inside the inode: no blocks but those of attributes. (Values of
/// attributes may have any number of blocks, where they are in inodes of their own.)
pub(crate) fn is_fast(fs: &Fs, core: &InodeCore) -> bool {
    if fs.layout.features.has_incompat(Incompat::EA_INODE) {
        return core.disk_size < BLOCK_AREA as u64;
    }
    let attributes = if core.file_acl.get() == 0 {
        0
    } else {
        fs.layout.cluster_sectors()
    };
    core.sectors <= attributes
}

/// Returns whether the inode's content is in blocks that a map names. False for data inside of the
/// inode, short links, device nodes, pipes and sockets.
pub(crate) fn has_blocks(fs: &Fs, inode: &Inode) -> bool {
    match inode.kind {
        _ if inode.flags().contains(InodeFlags::INLINE_DATA) => false,
        FileKind::Regular | FileKind::Directory => true,
        FileKind::Symlink => !is_fast(fs, &inode.core.read()),
        _ => false,
    }
}

/// Checks the length of a link's target.
pub(super) fn judge(fs: &Fs, ino: Ino, core: &InodeCore) -> Result<()> {
    let damaged = |damage: InodeDamage| Err(Error::corrupt(Location::Inode(ino), damage));
    if core.links == 0 && core.disk_size == 0 {
        // Already truncated, on its way to eviction.
        return Ok(());
    }
    if core
        .flags
        .intersects(InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT)
    {
        // They are checked where they are read.
        return Ok(());
    }
    if is_fast(fs, core) {
        let Some(target) = fast_target(core) else {
            return damaged(InodeDamage::SymlinkPastInode);
        };
        if target.is_empty() || target.contains(&0) {
            return damaged(InodeDamage::SymlinkTarget);
        }
    } else if core.disk_size >= fs.layout.block_size.bytes_u64() || core.disk_size == 0 {
        return damaged(InodeDamage::SymlinkPastBlock);
    }
    Ok(())
}

/// The target of a link that has it inside the inode.
pub(crate) fn fast_target(core: &InodeCore) -> Option<&[u8]> {
    let len = usize::try_from(core.disk_size).ok()?;
    core.i_block.get(..len).filter(|_| len < BLOCK_AREA)
}
