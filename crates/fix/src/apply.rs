//! Making one repair on the private copy.

use extant_check::{DirPlace, Repair};
use extant_disk::extent;
use extant_disk::group_desc::{GroupChecksum, GroupDesc, GroupFlags};
use extant_disk::inode::RawInode;
use extant_disk::quota::{QuotaUsage, set_usage};
use extant_disk::xattr::{BlockHeader, seal_block};
use extant_units::{Blocks, Group, Ino, Pblk};
use zerocopy::FromBytes;

use crate::error::Result;
use crate::image::Image;
use crate::lost_found::LostFound;
use crate::quotas::QuotaFiles;
use crate::{copies, log};

/// Makes a repair. False if there is no way to: then nothing was changed.
pub(crate) fn apply(
    image: &mut Image,
    repair: &Repair,
    lost_found: &mut LostFound,
    quotas: &mut QuotaFiles,
) -> Result<bool> {
    match repair {
        Repair::Totals { blocks, inodes } => image.edit_super(|raw| {
            raw.set_free_blocks_count(Blocks::new(*blocks));
            raw.free_inodes_count.set(*inodes);
        })?,
        Repair::Descriptor(group, _) | Repair::UninitFlags(group) => {
            image.edit_desc(*group, |desc, _, _| {
                let uninit = GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT;
                desc.flags.remove(uninit);
                desc.itable_unused = 0;
            })?;
        }
        Repair::Counts(group, counts) => image.edit_desc(*group, |desc, _, _| {
            desc.free_blocks = counts.blocks;
            desc.free_inodes = counts.inodes;
            desc.used_dirs = counts.dirs;
            desc.itable_unused = counts.unused;
        })?,
        Repair::BlockBitmap(group, bits) => block_bitmap(image, *group, bits)?,
        Repair::InodeBitmap(group, bits) => inode_bitmap(image, *group, bits)?,
        Repair::InodeChecksum(ino) => image.edit_inode(*ino, |_| Some(()))?,
        Repair::Sectors(ino, sectors) => {
            let format = image.format;
            image.edit_inode(*ino, |record| format.store_sectors(*sectors, record))?;
        }
        Repair::Flags(ino, flags) => edit_raw(image, *ino, |raw| raw.flags.set(flags.bits()))?,
        Repair::Links(ino, count) => edit_raw(image, *ino, |raw| raw.links.set(*count))?,
        Repair::ExtentChecksum(ino, pblk) => return reseal_node(image, *ino, *pblk),
        Repair::DirChecksum(place) => return edit_dir(image, *place, |_| Some(())),
        Repair::EntryKind {
            block, at, kind, ..
        } => return edit_kind(image, *block, *at, *kind),
        Repair::Parent { block, parent } => {
            let format = image.dir_format(block.dir)?;
            let dotdot = |bytes: &mut [u8]| format.set_dotdot(bytes, block.index, *parent).ok();
            return Ok(image.edit(block.pblk, dotdot)?.is_some());
        }
        Repair::Reattach { ino, kind, into } => {
            return lost_found.attach(image, *ino, *kind, into);
        }
        Repair::XattrReferences(pblk, count) => return edit_xattr(image, *pblk, Some(*count)),
        Repair::XattrChecksum(pblk) => return edit_xattr(image, *pblk, None),
        Repair::ValueReferences(ino, users) => edit_raw(image, *ino, |raw| {
            let half = |bits: u64| u32::try_from(bits & u64::from(u32::MAX)).unwrap_or(0);
            raw.ctime.set(half(users >> 32));
            raw.version_lo.set(half(*users));
        })?,
        Repair::QuotaUsage {
            block,
            at,
            id,
            usage,
        } => return set_quota(image, *block, *at, *id, *usage),
        Repair::QuotaFile(content) => return quotas.make(image, content, lost_found),
        Repair::JournalError => return log::forget_error(image.device(), image),
        Repair::SuperblockCopies(groups) => copies::superblocks(image, groups)?,
        Repair::DescriptorCopies(groups) => copies::descriptors(image, groups)?,
    }
    Ok(true)
}

/// Seals a node of an extent tree.
fn reseal_node(image: &Image, ino: Ino, pblk: Pblk) -> Result<bool> {
    let Some(seed) = image.owner_seed(ino)? else {
        return Ok(false);
    };
    let stored = image.edit(pblk, |block| extent::set_checksum(block, seed).ok())?;
    Ok(stored.is_some())
}

/// Sets the usage in an entry of quotas.
fn set_quota(image: &Image, block: Pblk, at: usize, id: u32, usage: QuotaUsage) -> Result<bool> {
    let set = |bytes: &mut [u8]| set_usage(bytes.get_mut(at..)?, id, usage).then_some(());
    Ok(image.edit(block, set)?.is_some())
}

/// Sets the kind of file in an entry of a directory.
fn edit_kind(image: &Image, block: DirPlace, at: usize, kind: u8) -> Result<bool> {
    edit_dir(image, block, |bytes| {
        *bytes.get_mut(at)? = kind;
        Some(())
    })
}

/// Changes the fields that every inode has.
fn edit_raw(image: &Image, ino: Ino, change: impl FnOnce(&mut RawInode)) -> Result<()> {
    image.edit_inode(ino, |record| {
        let (raw, _) = RawInode::mut_from_prefix(record).ok()?;
        change(raw);
        Some(())
    })
}

/// The checksum of a bitmap as a descriptor of `size` bytes stores it.
fn bitmap_checksum(checksum: &GroupChecksum, bits: &[u8], covered: u32, size: usize) -> u32 {
    assert!(
        covered as usize / 8 <= bits.len(),
        "a bitmap has a bit for each"
    );
    // Without `metadata_csum` the field is zero.
    let computed = checksum
        .of_bitmap(&bits[..covered as usize / 8])
        .unwrap_or(0);
    GroupDesc::stored_bitmap_csum(computed, size)
}

fn block_bitmap(image: &Image, group: Group, bits: &[u8]) -> Result<()> {
    image.put(image.desc(group)?.block_bitmap, bits)?;
    let covered = image.geometry().clusters_per_group();
    image.edit_desc(group, |desc, checksum, size| {
        desc.flags.remove(GroupFlags::BLOCK_UNINIT);
        desc.block_bitmap_csum = bitmap_checksum(checksum, bits, covered, size);
    })
}

fn inode_bitmap(image: &Image, group: Group, bits: &[u8]) -> Result<()> {
    image.put(image.desc(group)?.inode_bitmap, bits)?;
    let covered = image.sb.inodes_per_group();
    image.edit_desc(group, |desc, checksum, size| {
        desc.inode_bitmap_csum = bitmap_checksum(checksum, bits, covered, size);
    })
}

/// Changes a block of a directory and seals it.
fn edit_dir(
    image: &Image,
    place: DirPlace,
    change: impl FnOnce(&mut [u8]) -> Option<()>,
) -> Result<bool> {
    let format = image.dir_format(place.dir)?;
    let changed = image.edit(place.pblk, |bytes| {
        change(bytes)?;
        match place.index {
            Some(kind) => format.reseal_index(bytes, kind).ok(),
            None => {
                format.seal_leaf(bytes);
                Some(())
            }
        }
    })?;
    Ok(changed.is_some())
}

/// Seals an attribute block, with another reference count if one is given.
fn edit_xattr(image: &Image, pblk: Pblk, references: Option<u32>) -> Result<bool> {
    let seed = image.seed;
    let changed = image.edit(pblk, |block| {
        let header = BlockHeader::of_mut(block)?;
        if let Some(count) = references {
            header.refcount.set(count);
        }
        seal_block(seed, pblk, block);
        Some(())
    })?;
    Ok(changed.is_some())
}
