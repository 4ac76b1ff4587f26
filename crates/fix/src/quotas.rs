//! Files of quotas that are made anew.
//!
//! # Invariants
//! - A file takes the blocks that it has, if they suffice. Else it gets new ones while every bitmap
//!   agrees with the maps: a block that is free there has no owner. The next round finds the
//!   bitmaps that know neither of the new blocks nor of the old ones yet.
//! - At most one structure gets new blocks in a round.

use std::sync::Arc;

use extant_check::QuotaContent;
use extant_disk::extent::{Extent, Node, store_tree};
use extant_disk::inode::{InodeCore, InodeFlags};
use extant_disk::quota::MemoryQuotas;
use extant_units::{Lblk, Pblk, exact_u32};

use crate::error::Result;
use crate::image::Image;
use crate::lost_found::{LostFound, free_run};

/// Pointers in an inode that lead to data, and the one behind them that leads to more.
const DIRECT: usize = 12;
/// Levels of a tree that are followed.
const MAX_DEPTH: u16 = 5;

/// The files that one round makes.
#[derive(Default)]
pub(crate) struct QuotaFiles {
    made: Vec<Arc<QuotaContent>>,
}

impl QuotaFiles {
    /// Makes the file of `content`, once for all findings that ask for it. False if there is no
    /// room: then nothing was changed.
    pub(crate) fn make(
        &mut self,
        image: &Image,
        content: &Arc<QuotaContent>,
        lost_found: &mut LostFound,
    ) -> Result<bool> {
        if self.made.iter().any(|made| Arc::ptr_eq(made, content)) {
            return Ok(true);
        }
        let entries = content.entries.iter().copied();
        let Ok(file) = MemoryQuotas::new(content.kind, content.times, entries) else {
            return Ok(false);
        };
        let stored = store(image, content, file.bytes(), lost_found)?;
        if stored {
            self.made.push(Arc::clone(content));
        }
        Ok(stored)
    }
}

/// Stores `bytes` as the file.
fn store(
    image: &Image,
    content: &QuotaContent,
    bytes: &[u8],
    lost_found: &mut LostFound,
) -> Result<bool> {
    let (ino, bs) = (content.ino, image.sb.block_size().bytes());
    let mut record = image.inode_record(ino)?;
    let Ok(mut core) = InodeCore::decode(&image.format, ino, &record) else {
        return Ok(false);
    };
    if core.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(false);
    }
    let needed = bytes.len().div_ceil(bs);
    let mut blocks = blocks_of(image, &core)?;
    if blocks.len() >= needed {
        // Blocks behind the content stay the file's.
        core.disk_size = match blocks.len() == needed {
            true => bytes.len() as u64,
            false => (blocks.len() * bs) as u64,
        };
        blocks.truncate(needed);
    } else {
        let Some(new) = replace(image, &mut core, needed, lost_found)? else {
            return Ok(false);
        };
        blocks = new;
        core.disk_size = bytes.len() as u64;
    }
    if core.encode(&image.format, ino, &mut record).is_err() {
        return Ok(false);
    }
    for (pblk, piece) in blocks.into_iter().zip(bytes.chunks(bs)) {
        let mut block = piece.to_vec();
        block.resize(bs, 0);
        image.put(pblk, &block)?;
    }
    image.edit_inode(ino, |stored| {
        stored.copy_from_slice(&record);
        Some(())
    })?;
    Ok(true)
}

/// The blocks of a file from its first on, as far as it has no hole and its map is of the simple
/// kinds: an extent tree, or pointers in the inode.
fn blocks_of(image: &Image, core: &InodeCore) -> Result<Vec<Pblk>> {
    let mut blocks = Vec::new();
    if core.flags.contains(InodeFlags::EXTENTS) {
        let mut extents = Vec::new();
        leaves(image, &core.i_block, MAX_DEPTH, &mut extents)?;
        for extent in extents {
            if extent.unwritten || u64::from(extent.lblk.get()) != blocks.len() as u64 {
                break;
            }
            blocks.extend((0..u64::from(extent.len)).map(|at| extent.pblk.plus(at)));
        }
        return Ok(blocks);
    }
    let (pointers, _) = core.i_block.as_chunks::<4>();
    let (direct, deeper) = pointers.split_at(DIRECT);
    if deeper.iter().any(|pointer| *pointer != [0; 4]) {
        return Ok(blocks);
    }
    let leading = direct.iter().take_while(|pointer| **pointer != [0; 4]);
    blocks.extend(leading.map(|pointer| Pblk::new(u32::from_le_bytes(*pointer).into())));
    Ok(blocks)
}

/// Collects the extents below a node, in the order of the file.
fn leaves(image: &Image, node: &[u8], levels: u16, extents: &mut Vec<Extent>) -> Result<()> {
    let Ok(node) = Node::open(node) else {
        return Ok(());
    };
    if node.depth() == 0 {
        extents.extend(node.extents());
        return Ok(());
    }
    if node.depth() > levels {
        return Ok(());
    }
    for at in 0..node.len() {
        if let Some(child) = node.index(at) {
            let block = image.block(child.child)?;
            leaves(image, &block, node.depth() - 1, extents)?;
        }
    }
    Ok(())
}

/// Gives the file `needed` new blocks in a row for those that it had. Returns them; `None` if there
/// are not so many.
fn replace(
    image: &Image,
    core: &mut InodeCore,
    needed: usize,
    lost_found: &mut LostFound,
) -> Result<Option<Vec<Pblk>>> {
    let bs = image.sb.block_size().bytes();
    let extents = core.flags.contains(InodeFlags::EXTENTS);
    // A block of attributes would have to be counted. Block maps have no clusters.
    let geometry = image.geometry();
    let mapped = extents || (needed <= DIRECT + bs / 4 && geometry.cluster_bits == 0);
    if core.file_acl != Pblk::ZERO || !mapped || !lost_found.take_growth() {
        return Ok(None);
    }
    let tables = usize::from(!extents && needed > DIRECT);
    let wanted = needed + tables;
    let found = free_run(image, Pblk::ZERO, exact_u32(wanted as u64))?;
    let Some((first, _)) = found.filter(|(_, count)| *count as usize == wanted) else {
        return Ok(None);
    };
    let data: Vec<Pblk> = (tables..wanted).map(|at| first.plus(at as u64)).collect();
    if extents {
        let extent = Extent {
            lblk: Lblk::new(0),
            len: exact_u32(needed as u64),
            pblk: first,
            unwritten: false,
        };
        let Ok((root, _)) = store_tree(&[extent], &[], image.sb.block_size(), None) else {
            return Ok(None);
        };
        core.i_block = root;
    } else {
        let Some(root) = pointers(image, first, &data)? else {
            return Ok(None);
        };
        core.i_block = root;
    }
    core.sectors = geometry.in_whole_clusters(wanted as u64) * (bs as u64 / 512);
    Ok(Some(data))
}

/// A block map of `data`; what has no room in the inode is in block `table`.
fn pointers(image: &Image, table: Pblk, data: &[Pblk]) -> Result<Option<[u8; 60]>> {
    let narrow = |block: &Pblk| u32::try_from(block.get()).ok().map(u32::to_le_bytes);
    let (Some(numbers), Some(own)) = (
        data.iter().map(narrow).collect::<Option<Vec<_>>>(),
        narrow(&table),
    ) else {
        return Ok(None);
    };
    let (direct, rest) = numbers.split_at(numbers.len().min(DIRECT));
    let mut root = [0; 60];
    let (slots, _) = root.as_chunks_mut::<4>();
    for (slot, number) in slots.iter_mut().zip(direct) {
        *slot = *number;
    }
    if !rest.is_empty() {
        slots[DIRECT] = own;
        let mut block = rest.concat();
        block.resize(image.sb.block_size().bytes(), 0);
        image.put(table, &block)?;
    }
    Ok(Some(root))
}
