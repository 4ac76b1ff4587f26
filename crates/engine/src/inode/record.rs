//! Reading an inode's record and checking it; writing it back.

use extant_disk::damage::InodeDamage;
use extant_disk::features::{Incompat, RoCompat};
use extant_jbd2::{Block, Handle};
use extant_units::{Blocks, Ino, Pblk};

use super::recorded_change::RecordChange;
use super::{InodeCore, InodeFlags, counted_usage, format};
use crate::state::group::InodeLocation;
use crate::state::inode::Inode;
use crate::types::FileKind;
use crate::types::error::{Error, Location, Result};
use crate::volume::Fs;

/// The owner whose number has more bits than there is room for, as Linux's `overflowuid`.
const OVERFLOW_ID: u32 = 65534;

/// The purpose of a request for an inode. Decides which numbers and which inodes are valid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// A directory entry: the root, or an inode that is not reserved, with a link.
    User,
    /// The same for a number that a user was given, and that may have another use by now.
    Handle,
    /// The engine, for one of its own inodes.
    Internal,
    /// Orphan processing: an inode that may have no link.
    Orphans,
    /// An attribute, for the inode of its value.
    Attribute,
}

/// Fails for numbers that `asker` must not get: reserved ones and the orphan file for users, any
/// past the last.
pub(super) fn check_number(fs: &Fs, ino: Ino, asker: Asker) -> Result<()> {
    let layout = &fs.layout;
    let fine = match asker {
        Asker::User | Asker::Handle | Asker::Orphans | Asker::Attribute => {
            layout.is_user_inode(ino) && !layout.is_internal(ino)
        }
        Asker::Internal => ino.get() <= layout.inodes_count(),
    };
    if fine {
        Ok(())
    } else {
        Err(Error::corrupt(
            Location::Inode(ino),
            InodeDamage::NotForNames,
        ))
    }
}

/// Reads and checks inode `ino`.
pub(super) fn load(fs: &Fs, ino: Ino, asker: Asker) -> Result<Inode> {
    let core = read(fs, ino)?;
    let kind = kind_of(fs, ino, asker, &core)?;
    let quota = counted_usage::attach(fs, ino, &core)?;
    Ok(Inode::new(fs.inodes.home_of(ino), ino, kind, core, quota))
}

/// Result of `show` for what the table says of inode `ino` but for attributes in the record, if its
/// block is in memory, and checked as [`load`] does for a user. `None` if anything is wrong with
/// it.
pub(super) fn peek<R>(
    fs: &Fs,
    ino: Ino,
    show: impl FnOnce(FileKind, &InodeCore) -> R,
) -> Option<R> {
    check_number(fs, ino, Asker::User).ok()?;
    let location = fs.groups.inode_location(&fs.layout, ino).ok()?;
    let block = fs.cache.cached(location.block)?;
    let bytes = block.data();
    let record = record_at(fs, location, &bytes).ok()?;
    let mut core = InodeCore::decode_without_xattrs(&format(&fs.layout), ino, record).ok()?;
    if fs.options.narrow_ids() {
        take_low_halves(&mut core);
    }
    let kind = kind_of(fs, ino, Asker::User, &core).ok()?;
    if kind == FileKind::Symlink && core.flags.contains(InodeFlags::ENCRYPT) {
        // Its size as callers see it is that of the target.
        return None;
    }
    Some(show(kind, &core))
}

/// The kind of a decoded inode, checked against its number, its asker and the rest of the file
/// system.
fn kind_of(fs: &Fs, ino: Ino, asker: Asker, core: &InodeCore) -> Result<FileKind> {
    // A free or unlinked inode is no damage of the inode: the entry that led here is wrong.
    let by_link = matches!(asker, Asker::User | Asker::Handle | Asker::Attribute);
    if core.mode == 0 || (core.links == 0 && by_link) {
        return Err(Error::Stale);
    }
    if asker == Asker::Handle && is_value(fs, core) {
        return Err(Error::Stale);
    }
    let kind = FileKind::from_mode(core.mode).ok_or_else(|| {
        let damage = InodeDamage::Mode { mode: core.mode };
        Error::corrupt(Location::Inode(ino), damage)
    })?;
    judge(fs, ino, asker, kind, core)?;
    Ok(kind)
}

/// Returns whether `core` is that of an inode that holds the value of an attribute.
fn is_value(fs: &Fs, core: &InodeCore) -> bool {
    core.flags.contains(InodeFlags::EA_INODE) && fs.layout.features.has_incompat(Incompat::EA_INODE)
}

/// The record of inode `ino`, decoded; [`Error::Stale`] if it was never used.
pub(crate) fn read(fs: &Fs, ino: Ino) -> Result<InodeCore> {
    let location = fs.groups.inode_location(&fs.layout, ino)?;
    let block = match fs.cache.cached(location.block) {
        Some(block) => block,
        None => {
            readahead(fs, ino, location.block);
            fs.cache.read_unchecked(location.block)?
        }
    };
    let bytes = block.data();
    let record = record_at(fs, location, &bytes)?;
    let decoded = InodeCore::decode(&format(&fs.layout), ino, record);
    let mut core = decoded.map_err(|e| Error::corrupt(Location::Inode(ino), e))?;
    if fs.options.narrow_ids() {
        take_low_halves(&mut core);
    }
    Ok(core)
}

/// Keeps the 16 bits of the owners that a mount with `nouid32` reads.
fn take_low_halves(core: &mut InodeCore) {
    core.uid &= u32::from(u16::MAX);
    core.gid &= u32::from(u16::MAX);
}

/// `core` as a mount with `nouid32` stores it: an owner of more than 16 bits is 65534.
fn with_narrow_ids(core: &InodeCore) -> InodeCore {
    let narrow = |id: u32| u16::try_from(id).map_or(OVERFLOW_ID, u32::from);
    InodeCore {
        uid: narrow(core.uid),
        gid: narrow(core.gid),
        ..core.clone()
    }
}

/// The bytes of the record of inode `ino`.
pub(super) fn bytes(fs: &Fs, ino: Ino) -> Result<Vec<u8>> {
    let location = fs.groups.inode_location(&fs.layout, ino)?;
    let block = fs.cache.read_unchecked(location.block)?;
    let bytes = block.data();
    record_at(fs, location, &bytes).map(<[u8]>::to_vec)
}

/// The record at `location` in `bytes`, its block of the table; [`Error::Stale`] if it was never
/// used.
fn record_at<'a>(fs: &Fs, location: InodeLocation, bytes: &'a [u8]) -> Result<&'a [u8]> {
    let end = location.offset + usize::from(fs.layout.inode_size);
    let record = &bytes[location.offset..end];
    if record.iter().all(|byte| *byte == 0) {
        // It has no checksum yet either.
        return Err(Error::Stale);
    }
    Ok(record)
}

/// Reads the part of the inode table around `block` at once: neighbours in a directory are
/// neighbours there.
fn readahead(fs: &Fs, ino: Ino, block: Pblk) {
    const WINDOW: u32 = 16;
    let layout = &fs.layout;
    let Some((_, index)) = layout.group_of_inode(ino) else {
        return;
    };
    let at = index / layout.inodes_per_block;
    let first = at - at % WINDOW;
    if let Some(start) = block.checked_sub(u64::from(at - first)) {
        debug_assert!(first < layout.itable_blocks, "inode {ino} is in the table");
        let len = WINDOW.min(layout.itable_blocks - first);
        fs.cache.readahead(start, len);
    }
}

/// Checks a decoded inode against the rest of the file system.
pub(super) fn judge(
    fs: &Fs,
    ino: Ino,
    asker: Asker,
    kind: FileKind,
    core: &InodeCore,
) -> Result<()> {
    let damaged = |damage: InodeDamage| Err(Error::corrupt(Location::Inode(ino), damage));
    let features = &fs.layout.features;
    let foreign = [
        (
            InodeFlags::INLINE_DATA,
            features.has_incompat(Incompat::INLINE_DATA),
        ),
        (
            InodeFlags::ENCRYPT,
            features.has_incompat(Incompat::ENCRYPT),
        ),
        (
            InodeFlags::CASEFOLD,
            features.has_incompat(Incompat::CASEFOLD),
        ),
        (InodeFlags::VERITY, features.has_ro_compat(RoCompat::VERITY)),
        // Without a name. One whose last attribute is gone is an orphan.
        (
            InodeFlags::EA_INODE,
            is_value(fs, core)
                && (asker == Asker::Attribute || (asker == Asker::Orphans && core.links == 0)),
        ),
    ];
    if foreign
        .iter()
        .any(|(flag, known)| !known && core.flags.contains(*flag))
    {
        return damaged(InodeDamage::ForeignFlags);
    }
    if core
        .flags
        .contains(InodeFlags::INLINE_DATA | InodeFlags::EXTENTS)
    {
        return damaged(InodeDamage::InlineExtents);
    }
    if core
        .flags
        .contains(InodeFlags::INLINE_DATA | InodeFlags::ENCRYPT)
    {
        // What is inside is plain.
        return damaged(InodeDamage::ForeignFlags);
    }
    let acl = core.file_acl;
    if acl.get() != 0
        && !(fs.layout.contains(acl, Blocks::ONE) && fs.zones.may_map(Some(ino), acl, Blocks::ONE))
    {
        return damaged(InodeDamage::AttributesOutside { block: acl });
    }
    match kind {
        FileKind::Regular | FileKind::Directory => {
            let blocks = fs.layout.block_size.blocks_for(core.disk_size);
            if blocks.get() > u64::from(u32::MAX) {
                return damaged(InodeDamage::SizePastLastBlock);
            }
            if kind == FileKind::Directory && core.disk_size > fs.layout.max_dir_bytes() {
                return damaged(InodeDamage::DirectoryTooLarge);
            }
        }
        FileKind::Symlink => super::fast_symlink::judge(fs, ino, core)?,
        _ => {}
    }
    Ok(())
}

/// The record of an inode in its block of the table, which stays in memory: a change of the inode
/// reads nothing meanwhile.
pub(crate) struct HeldRecord {
    ino: Ino,
    block: Block,
    offset: usize,
}

impl HeldRecord {
    /// Reads the block of inode `ino`.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn of(fs: &Fs, ino: Ino) -> Result<Self> {
        let held = || {
            let location = fs.groups.inode_location(&fs.layout, ino)?;
            Ok(Self {
                ino,
                block: fs.cache.read_unchecked(location.block)?,
                offset: location.offset,
            })
        };
        held().inspect_err(|error| fs.fault.report(fs, error))
    }

    /// Returns whether it is that of inode `ino`.
    pub(super) fn is_of(&self, ino: Ino) -> bool {
        self.ino == ino
    }

    /// Encodes `core` into the record under `h`. With `new` the inode was just allocated: what the
    /// record held before is cleared.
    pub(crate) fn store(&self, fs: &Fs, h: &mut Handle, core: &InodeCore, new: bool) -> Result<()> {
        let result = self.encode(fs, h, core, new);
        result.inspect_err(|error| fs.fault.report(fs, error))
    }

    fn encode(&self, fs: &Fs, h: &mut Handle, core: &InodeCore, new: bool) -> Result<()> {
        let end = self.offset + usize::from(fs.layout.inode_size);
        let format = format(&fs.layout);
        let change = |bytes: &mut [u8]| {
            let record = &mut bytes[self.offset..end];
            if new {
                record.fill(0);
            }
            match fs.options.narrow_ids() {
                true => with_narrow_ids(core).encode(&format, self.ino, record),
                false => core.encode(&format, self.ino, record),
            }
        };
        let encoded = match &fs.operations {
            None => h.modify(&self.block, change)?,
            Some(operations) => {
                let before = self.block.data()[self.offset..end].to_vec();
                let encoded = h.telling(|h| h.modify(&self.block, change))?;
                let after = &self.block.data()[self.offset..end];
                let change = match new {
                    true => RecordChange::of_new(&before, after),
                    false => RecordChange::of(Some(&before), after),
                };
                change.note(operations, h, self.ino);
                encoded
            }
        };
        fs.stats.inode_dirty_calls.bump();
        encoded.map_err(|e| Error::corrupt(Location::Inode(self.ino), e))
    }
}
