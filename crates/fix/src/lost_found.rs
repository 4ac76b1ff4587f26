//! Names in lost+found for inodes without one, and more blocks for them.
//!
//! # Invariants
//! - The directory grows only while every bitmap agrees with the maps: a block that is free there
//!   has no owner. The next round finds the bitmaps that do not know of the new blocks yet.
//! - It grows once in a round, by what all lost inodes of the report need, and no other structure
//!   does in the same round.

use extant_check::{DirPlace, Remedy, Repair, Report};
use extant_disk::bitmap;
use extant_disk::dir_edit::NewEntry;
use extant_disk::dirent::{DirTail, FileType, rec_len_for};
use extant_disk::extent::{Extent, Node, NodeMut};
use extant_disk::group_desc::GroupFlags;
use extant_disk::inode::{InodeCore, InodeFlags, InodeFormat};
use extant_units::{Group, Ino, Lblk, Pblk, at_most_u32, exact_u32};

use crate::error::Result;
use crate::image::Image;

/// The most blocks that lost+found has after it has grown: those that the check names.
const MOST_BLOCKS: usize = 64;
/// Bytes of the longest name that is given: `#` and ten digits.
const NAME_BYTES: usize = 11;
/// Pointers in an inode that lead to data.
const DIRECT: u32 = 12;

/// The names that one round gives.
pub(crate) struct LostFound {
    /// Inodes without a name.
    lost: usize,
    /// Set while every free block has no owner and nothing has grown.
    may_grow: bool,
    /// The blocks by which it has grown.
    more: Vec<DirPlace>,
}

impl LostFound {
    /// The lost inodes of `report`, and whether its bitmaps agree with the maps.
    pub(crate) fn of(report: &Report) -> LostFound {
        let repairs = report.findings.iter().map(|finding| &finding.remedy);
        let count = |of: fn(&Repair) -> bool| {
            let repairs = repairs.clone();
            let those =
                repairs.filter(|remedy| matches!(remedy, Remedy::Repair(repair) if of(repair)));
            those.count()
        };
        LostFound {
            lost: count(|repair| matches!(repair, Repair::Reattach { .. })),
            may_grow: count(|repair| matches!(repair, Repair::BlockBitmap(..))) == 0,
            more: Vec::new(),
        }
    }

    /// Takes the right to new blocks, which one structure has in a round. False if there is none.
    pub(crate) fn take_growth(&mut self) -> bool {
        std::mem::replace(&mut self.may_grow, false)
    }

    /// Gives an inode the name `#NUMBER` in the first of the blocks `into` that has room, or in a
    /// new one. False if there is none: then nothing was changed.
    pub(crate) fn attach(
        &mut self,
        image: &Image,
        ino: Ino,
        kind: u8,
        into: &[DirPlace],
    ) -> Result<bool> {
        let name = format!("#{ino}");
        debug_assert!(name.len() <= NAME_BYTES, "as long as was planned for");
        let entry = NewEntry {
            name: name.as_bytes(),
            ino,
            file_type: FileType::from_raw(kind),
            hash: None,
        };
        let Some(last) = into.last() else {
            return Ok(false);
        };
        let format = image.dir_format(last.dir)?;
        for place in into {
            let block = image.block(place.pblk)?;
            if !matches!(format.find(&block, entry.name), Ok(None)) {
                return Ok(false);
            }
        }
        let put = |place: &DirPlace| -> Result<bool> {
            let put = |block: &mut [u8]| format.insert(block, &entry).ok().flatten();
            Ok(image.edit(place.pblk, put)?.is_some())
        };
        for place in into.iter().chain(&self.more) {
            if put(place)? {
                return Ok(true);
            }
        }
        if !self.take_growth() {
            return Ok(false);
        }
        self.more = grow(image, *last, into.len(), self.lost)?;
        self.more.first().map_or(Ok(false), put)
    }
}

/// Adds blocks for `lost` names behind the `blocks` of a directory, of which `last` is the last.
fn grow(image: &Image, last: DirPlace, blocks: usize, lost: usize) -> Result<Vec<DirPlace>> {
    let bytes = image.sb.block_size().bytes();
    let names = (bytes - DirTail::SIZE) / rec_len_for(NAME_BYTES);
    // A directory on disk may be larger than this makes one.
    let wanted = lost.div_ceil(names).min(MOST_BLOCKS.saturating_sub(blocks));
    let wanted = exact_u32(wanted as u64);
    let mut record = image.inode_record(last.dir)?;
    let own = rest_of_cluster(image, last.dir, &record);
    let (taken, found) = match own {
        Some(rest) => (0, Some((rest.0, rest.1.min(wanted)))),
        None => (1, free_run(image, last.pblk, wanted)?),
    };
    let Some((first, count)) = found else {
        return Ok(Vec::new());
    };
    let growth = Growth {
        first,
        count,
        taken: taken * image.geometry().in_whole_clusters(count.into()),
    };
    if extend(&image.format, last.dir, &mut record, &growth).is_none() {
        return Ok(Vec::new());
    }
    // Nothing is harmed: this is the private copy.
    assert!(
        count <= wanted && blocks + count as usize <= MOST_BLOCKS.max(blocks),
        "no larger than the check reads"
    );
    let mut empty = vec![0; bytes];
    image.dir_format(last.dir)?.init_leaf(&mut empty);
    let mut more = Vec::new();
    for at in 0..u64::from(count) {
        let pblk = first.plus(at);
        image.put(pblk, &empty)?;
        more.push(DirPlace { pblk, ..last });
    }
    image.edit_inode(last.dir, |stored| {
        stored.copy_from_slice(&record);
        Some(())
    })?;
    Ok(more)
}

/// The blocks of a directory's last cluster behind its last block: they are its own.
fn rest_of_cluster(image: &Image, dir: Ino, record: &[u8]) -> Option<(Pblk, u32)> {
    let core = InodeCore::decode(&image.format, dir, record).ok()?;
    let geometry = image.geometry();
    let node = Node::open(&core.i_block).ok()?;
    let last = node.len().checked_sub(1).and_then(|at| node.extent(at))?;
    if !core.flags.contains(InodeFlags::EXTENTS) || node.depth() > 0 {
        return None;
    }
    let behind = last.pblk.checked_add(last.len.into())?;
    let used = geometry.offset_in_cluster(behind.get());
    // The last cluster of a volume may be shorter.
    let end = (behind.get() - used + geometry.cluster_blocks()).min(geometry.blocks);
    let left = exact_u32(end.saturating_sub(behind.get()));
    (used > 0 && left > 0).then_some((behind, left))
}

/// At most `wanted` free blocks in a row, of whole clusters from the first on, in the group of
/// `near` if there are so many, else in another; fewer where no group has so many.
pub(crate) fn free_run(image: &Image, near: Pblk, wanted: u32) -> Result<Option<(Pblk, u32)>> {
    let geometry = image.geometry();
    let groups = image.sb.group_count();
    // Only where the search begins: any group will do.
    let home = geometry.group_of(near.get()).min(groups - 1);
    let mut best: Option<(Pblk, u32)> = None;
    for group in (home..groups).chain(0..home).map(Group::new) {
        let desc = image.desc(group)?;
        let checksummed = image.sb.features().group_csum();
        if checksummed && desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            continue;
        }
        let blocks = geometry.group_blocks(group.get());
        let len = geometry.group_clusters(group.get());
        let bits = image.block(desc.block_bitmap)?;
        let first = |cluster: u32| blocks.start + (u64::from(cluster) << geometry.cluster_bits);
        for run in bitmap::clear_runs(&bits, len) {
            debug_assert!(run.end <= len, "within the group");
            // The last cluster of a volume may be shorter.
            let found = first(run.start)..first(run.end).min(blocks.end);
            let count = at_most_u32(found.end - found.start).min(wanted);
            if best.is_none_or(|(_, most)| count > most) {
                best = Some((Pblk::new(found.start), count));
            }
            if count == wanted {
                return Ok(best.filter(|_| wanted > 0));
            }
        }
    }
    Ok(best)
}

/// Blocks that a directory gets.
struct Growth {
    first: Pblk,
    count: u32,
    /// Blocks of the clusters that it has for them and did not have before.
    taken: u64,
}

/// Adds blocks at the end of a directory's map. `None` if the inode itself has no room for them;
/// then the record is as it was.
fn extend(format: &InodeFormat, dir: Ino, record: &mut [u8], growth: &Growth) -> Option<()> {
    let (first, count) = (growth.first, growth.count);
    let mut core = InodeCore::decode(format, dir, record).ok()?;
    let bs = format.block_size.bytes_u64();
    let end = u32::try_from(core.disk_size / bs).ok()?;
    if core.flags.contains(InodeFlags::EXTENTS) {
        let new = Extent {
            lblk: Lblk::new(end),
            len: count,
            pblk: first,
            unwritten: false,
        };
        add_extent(&mut core.i_block, new)?;
    } else {
        let (pointers, _) = core.i_block.as_chunks_mut::<4>();
        for at in 0..count {
            let slot = end.checked_add(at).filter(|slot| *slot < DIRECT)?;
            let pblk = u32::try_from(first.checked_add(u64::from(at))?.get()).ok()?;
            *pointers.get_mut(slot as usize)? = pblk.to_le_bytes();
        }
    }
    core.disk_size += u64::from(count) * bs;
    core.sectors += growth.taken * (bs / 512);
    core.encode(format, dir, record).ok()
}

/// Adds an extent behind the others of a root that has no nodes below it.
fn add_extent(root: &mut [u8], new: Extent) -> Option<()> {
    let (depth, len, last) = {
        let node = Node::open(root).ok()?;
        let last = node.len().checked_sub(1).and_then(|at| node.extent(at));
        (node.depth(), node.len(), last?)
    };
    if depth > 0 || last.end() != u64::from(new.lblk.get()) {
        return None;
    }
    let mut node = NodeMut::open(root).ok()?;
    match last.merges_with(&new) {
        true => {
            let joined = Extent {
                len: last.len + new.len,
                ..last
            };
            node.set(len - 1, joined.encode().ok()?).ok()
        }
        false => node.insert(len, &[new.encode().ok()?]).ok(),
    }
}
