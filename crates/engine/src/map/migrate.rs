//! Converting a block map to an extent tree, in one transaction.
//!
//! The data stays in its location. Before the change the whole map is read and the tree planned, so
//! damage, lack of space and a journal too small for it leave the file as it was. A crash shows one
//! map or the other.
//!
//! # Locks
//! `map_lock` exclusively over the change. The caller keeps out every thread that allocates or
//! frees blocks of the file.

use extant_disk::damage::MapDamage;
use extant_disk::extent::{Extent, MAX_END};
use extant_disk::inode::InodeFlags;
use extant_jbd2::Handle;
use extant_units::{Lblk, Pblk, at_most_u32};

use super::disk_nodes::{DiskNodes, has_extents, with_nodes};
use super::extent_tree::{self, NodesMut};
use super::indirect;
use super::locked_map::{ExclusiveMap, SharedMap};
use crate::state::inode::Inode;
use crate::state::map::MapState;
use crate::types::error::{Error, Location, Result};
use crate::volume::{Fs, credits};

/// Contents of a block map.
struct BlockMap {
    extents: Vec<Extent>,
    /// Its indirect blocks.
    numbers: Vec<Pblk>,
}

/// Gives `inode`, which has a block map, an extent tree with the same mappings. Starts a handle.
/// Returns whether there was anything to convert.
///
/// # Errors
/// [`Error::NotSupported`] where the change does not fit into one transaction; [`Error::NoSpace`]
/// for the tree's nodes; damage. Nothing has changed then.
pub(crate) fn to_extents(fs: &Fs, inode: &Inode) -> Result<bool> {
    let old = {
        let map = SharedMap::lock(inode);
        if has_extents(inode) {
            return Ok(false);
        }
        read(fs, &map).inspect_err(|error| fs.fault.report(fs, error))?
    };
    let nodes = extent_tree::nodes_for(fs.layout.block_size, old.extents.len());
    // More than 32 bits are more than a transaction can hold.
    let count = |blocks: usize| at_most_u32(blocks as u64);
    let credits = credits::rebuild(fs, count(nodes), count(old.numbers.len()));
    if credits > fs.journal.max_credits() {
        return Err(Error::NotSupported(
            "a block map of more blocks than a transaction can hold",
        ));
    }
    let mut h = fs.start_with_revokes(credits, count(old.numbers.len()))?;
    let map = ExclusiveMap::lock(inode);
    with_nodes(fs, &mut h, &map, false, |nodes| {
        extent_tree::build(nodes, &old.extents)?;
        old.numbers.iter().for_each(|&at| nodes.release(at));
        Ok(())
    })?;
    set_flag(fs, &mut h, inode)?;
    Ok(true)
}

fn set_flag(fs: &Fs, h: &mut Handle, inode: &Inode) -> Result<()> {
    let set = inode.update(fs, h, |core| core.flags |= InodeFlags::EXTENTS);
    set.inspect_err(|error| {
        let why = format!("storing the kind of an inode's map: {error}");
        fs.journal.abort(&why);
    })
}

/// Reads the whole map. Takes at most as many blocks as the inode counts and the volume has,
/// whatever the pointers say.
fn read(fs: &Fs, map: &SharedMap<'_>) -> Result<BlockMap> {
    let inode = map.inode();
    let (root, sectors) = {
        let core = inode.core.read();
        (core.i_block, core.sectors)
    };
    let disk = DiskNodes::of(fs, map, root);
    let counted = (sectors >> (fs.layout.block_size.log2() - 9)).min(fs.layout.end().get());
    let excess = || Error::corrupt(Location::Inode(inode.ino), MapDamage::PastCount);
    let numbers = indirect::numbers(&disk, counted)?.ok_or_else(excess)?;
    let mut extents: Vec<Extent> = Vec::new();
    let (mut at, mut blocks) = (0, numbers.len() as u64);
    while let Ok(lblk) = u32::try_from(at).map(Lblk::new)
        && at < MAX_END
    {
        let found = indirect::find(&disk, lblk)?;
        let end = found.end();
        if let MapState::Written(mut pblk) = found.state {
            blocks += u64::from(found.len);
            let mut left = Some((found.lblk, found.len));
            while let Some((lblk, len)) = left {
                let part = len.min(Extent::max_len(false));
                push(
                    &mut extents,
                    Extent {
                        lblk,
                        len: part,
                        pblk,
                        unwritten: false,
                    },
                );
                pblk = pblk.plus(u64::from(part));
                left = lblk
                    .checked_add(part)
                    .map(|next| (next, len - part))
                    .filter(|(_, len)| *len > 0);
            }
        }
        if blocks > counted {
            return Err(excess());
        }
        at = end.max(at + 1);
    }
    Ok(BlockMap { extents, numbers })
}

fn push(extents: &mut Vec<Extent>, next: Extent) {
    match extents.last_mut() {
        Some(last) if last.merges_with(&next) => last.len += next.len,
        _ => extents.push(next),
    }
}
