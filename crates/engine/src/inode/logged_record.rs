//! Records of inodes that another system stored in a fast commit: what is taken of them, and what
//! stays.
//!
//! Such a record has the fields of the inode and no attributes. What says where the data is comes
//! by other records, so the map and the count of blocks stay as they are here; only what is in the
//! inode in the place of a map is taken.

use extant_disk::damage::InodeDamage;
use extant_disk::inode::{BLOCK_AREA, InodeCore, InodeFlags, RawInode};
use extant_jbd2::Handle;
use extant_units::{Ino, Pblk};

use super::record::{self, Asker};
use super::{counted_usage, format};
use crate::state::inode::{Inode, InodeRef};
use crate::state::quota::OwnerIds;
use crate::types::error::{Error, Location, Result};
use crate::types::{Cred, FileKind};
use crate::volume::Fs;

/// The identity of a logged record, before it is compared with what the volume has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoggedIdentity {
    pub(crate) ino: Ino,
    pub(crate) links: u16,
    pub(crate) generation: u32,
    pub(crate) kind: FileKind,
    pub(crate) flags: InodeFlags,
}

impl LoggedIdentity {
    /// Those of the record `logged` of inode `ino`, which a name may lead to.
    ///
    /// # Errors
    /// [`Error::Corrupt`]: a reserved number or one past the last, a record that does not fit, or
    /// of no known kind.
    pub(crate) fn of(fs: &Fs, ino: Ino, logged: &[u8]) -> Result<Self> {
        let damaged = |damage| Err(Error::corrupt(Location::Inode(ino), damage));
        record::check_number(fs, ino, Asker::Orphans)?;
        let Some(raw) = RawInode::of(logged).filter(|_| fits(fs, logged)) else {
            return damaged(InodeDamage::Missing);
        };
        let mode = raw.mode.get();
        let Some(kind) = FileKind::from_mode(mode) else {
            return damaged(InodeDamage::Mode { mode });
        };
        Ok(Self {
            ino,
            links: raw.links.get(),
            generation: raw.generation.get(),
            kind,
            flags: InodeFlags::from_bits_retain(raw.flags.get()),
        })
    }
}

fn fits(fs: &Fs, logged: &[u8]) -> bool {
    logged.len() <= usize::from(fs.layout.inode_size)
}

/// The fields of `logged` over the record `base`.
fn over(fs: &Fs, ino: Ino, mut base: Vec<u8>, logged: &[u8]) -> Result<InodeCore> {
    for (to, from) in base.iter_mut().zip(logged) {
        *to = *from;
    }
    let format = format(&fs.layout);
    format.seal(ino, &mut base);
    InodeCore::decode(&format, ino, &base)
        .map_err(|error| Error::corrupt(Location::Inode(ino), error))
}

/// Stores the record `logged` of `inode`, which is in use and has its identity. Starts a handle.
///
/// # Errors
/// The record does not go with the inode's map or attributes; damage; a stopped journal.
pub(crate) fn store_logged(fs: &Fs, inode: &Inode, logged: &[u8]) -> Result<()> {
    let base = record::bytes(fs, inode.ino)?;
    let mut core = over(fs, inode.ino, base, logged)?;
    {
        let old = inode.core.read();
        let fixed = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
        let same = core.generation == old.generation
            && FileKind::from_mode(core.mode) == Some(inode.kind)
            && core.flags & fixed == old.flags & fixed
            && core.file_acl == old.file_acl;
        if !same {
            return Err(Error::corrupt(
                Location::Inode(inode.ino),
                InodeDamage::LoggedOtherwise,
            ));
        }
        if !core.flags.contains(InodeFlags::INLINE_DATA) {
            core.i_block = old.i_block;
        }
        core.sectors = old.sectors;
        core.dtime = old.dtime;
        if old.links == 0 {
            // Only an entry gives it one.
            core.links = 0;
        }
        if inode.kind == FileKind::Directory {
            // Its entries change one by one, and with them these.
            core.links = old.links;
            core.disk_size = old.disk_size;
            core.flags.remove(InodeFlags::INDEX);
            core.flags |= old.flags & InodeFlags::INDEX;
        }
    }
    let mut h = fs.start(crate::volume::credits::INODE_UPDATE)?;
    inode
        .size
        .store(core.disk_size, extant_sync::atomic::Ordering::Release);
    inode.update(fs, &mut h, |old| *old = core)
}

/// Makes the inode of the record `logged`, whose number was just taken under `h`
/// ([`crate::alloc::take_inode`]). `empty_root` is that of an extent tree without extents. A
/// directory has no block yet.
///
/// # Errors
/// As [`store_logged`].
pub(crate) fn store_new_logged(
    fs: &Fs,
    h: &mut Handle,
    identity: &LoggedIdentity,
    logged: &[u8],
    empty_root: [u8; BLOCK_AREA],
) -> Result<InodeRef> {
    let &LoggedIdentity { ino, kind, .. } = identity;
    let mut core = over(fs, ino, vec![0; usize::from(fs.layout.inode_size)], logged)?;
    if core.file_acl != Pblk::ZERO {
        return Err(Error::corrupt(
            Location::Inode(ino),
            InodeDamage::LoggedOtherwise,
        ));
    }
    core.sectors = 0;
    core.dtime = 0;
    if core.flags.contains(InodeFlags::EXTENTS) {
        core.i_block = empty_root;
    } else if maps_blocks(kind, &core) && !core.flags.contains(InodeFlags::INLINE_DATA) {
        // Pointers of blocks that no record claims.
        core.i_block = [0; BLOCK_AREA];
    }
    if kind == FileKind::Directory {
        core.links = 2;
        core.disk_size = 0;
        core.flags.remove(InodeFlags::INDEX);
    }
    let reserved = counted_usage::reserve_inode(fs, OwnerIds::of(&core), &Cred::root())?;
    let inode = fs
        .inodes
        .insert_new(fs, ino, kind, (core, reserved.quota()))?;
    inode.store_new(fs, h)?;
    reserved.keep();
    Ok(inode)
}

/// Returns whether `core` has no value in the inode, but says where the data is.
fn maps_blocks(kind: FileKind, core: &InodeCore) -> bool {
    match kind {
        FileKind::Regular | FileKind::Directory => true,
        FileKind::Symlink => core.disk_size >= BLOCK_AREA as u64,
        _ => false,
    }
}

/// Checks `inode` after all of its logged changes, as when it is loaded.
///
/// # Errors
/// [`Error::Corrupt`].
pub(crate) fn check_logged(fs: &Fs, inode: &Inode) -> Result<()> {
    let core = inode.core.read();
    record::judge(fs, inode.ino, Asker::Orphans, inode.kind, &core)
}
