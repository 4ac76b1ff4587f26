//! The copies of superblock and descriptors in other groups.
//!
//! A copy that cannot be used is a note, not a finding: no mount reads it, and e2fsck only if the
//! first superblock cannot be used. Some programs that make images leave copies out. Counters and
//! times in a copy may lag behind.

use extant_disk::damage::SuperblockDamage;
use extant_disk::group_desc::{GroupChecksum, GroupDesc};
use extant_disk::location::Location;
use extant_disk::superblock::{SUPERBLOCK_SIZE, Superblock};
use extant_units::{Group, Pblk};

use crate::error::Result;
use crate::findings::Findings;
use crate::remedy::Repair;
use crate::volume::{Volume, chunks};
use crate::work::Work;

/// Copies that cannot be used, of one kind.
#[derive(Default)]
struct Bad(Vec<Group>);

impl Bad {
    /// The number of bad copies and the group of the first, if there are any.
    fn summary(&self) -> Option<(usize, Group)> {
        Some((self.0.len(), *self.0.first()?))
    }
}

/// Compares all copies with the originals: geometry and locations must be the same.
pub(crate) fn compare(volume: &Volume, findings: &Findings, work: &Work<'_>) -> Result<()> {
    let groups = volume.group_numbers().skip(1);
    let has_copy = |group| volume.sb.has_backup(group) || volume.descriptor_copy(group).is_some();
    let groups: Vec<Group> = groups.filter(|group| has_copy(*group)).collect();
    work.expect(groups.len() as u64);
    let usable = work.spread(&groups, |group, buffer| {
        let superblock = !volume.sb.has_backup(*group) || superblock(volume, *group)?;
        Ok((superblock, table(volume, *group, buffer)?))
    })?;
    let count = |has: &dyn Fn(Group) -> bool| groups.iter().filter(|&&group| has(group)).count();
    let of_superblock = count(&|group| volume.sb.has_backup(group)) as u64;
    let of_descriptors = count(&|group| volume.descriptor_copy(group).is_some()) as u64;
    let (mut superblocks, mut descriptors) = (Bad::default(), Bad::default());
    for (group, (superblock, table)) in groups.into_iter().zip(usable) {
        if !superblock {
            superblocks.0.push(group);
        }
        if !table {
            descriptors.0.push(group);
        }
    }
    if let Some((unusable, first)) = superblocks.summary() {
        let kind = SuperblockDamage::SuperblockCopies {
            unusable,
            copies: of_superblock,
            first,
        };
        let repair = Repair::SuperblockCopies(superblocks.0.into());
        findings.note_repairable(Location::Superblock, kind, repair);
    }
    if let Some((unusable, first)) = descriptors.summary() {
        let kind = SuperblockDamage::DescriptorCopies {
            unusable,
            copies: of_descriptors,
            first,
        };
        let repair = Repair::DescriptorCopies(descriptors.0.into());
        findings.note_repairable(Location::Superblock, kind, repair);
    }
    Ok(())
}

/// Returns whether the copy of the superblock has the geometry of the original.
fn superblock(volume: &Volume, group: Group) -> Result<bool> {
    // A copy begins its block; only the first superblock stands at byte 1024 whatever the block
    // size.
    let block = volume.block(Pblk::new(volume.group_start(group)))?;
    let copy = block.get(..SUPERBLOCK_SIZE).map(Superblock::parse);
    let Some(Ok(copy)) = copy else {
        return Ok(false);
    };
    Ok(copy.blocks_count() == volume.sb.blocks_count()
        && copy.inodes_count() == volume.sb.inodes_count()
        && copy.block_size() == volume.sb.block_size()
        && copy.raw().uuid == volume.sb.raw().uuid)
}

/// Returns whether the copy of descriptors, if there is one, names the locations of the original.
fn table(volume: &Volume, group: Group, buffer: &mut Vec<u8>) -> Result<bool> {
    let size = volume.sb.desc_size();
    let Some((first, blocks, of)) = volume.descriptor_copy(group) else {
        return Ok(true);
    };
    if !volume.holds(first, blocks) {
        return Ok(false);
    }
    let mut groups = volume.groups().skip(of.index());
    for (at, count) in chunks(blocks) {
        volume.read_blocks(first.plus(at), count, buffer)?;
        for bytes in buffer.chunks_exact(size) {
            let Some((of, desc)) = groups.next() else {
                return Ok(true);
            };
            let same = GroupDesc::parse(bytes, of, &GroupChecksum::None).is_ok_and(|copy| {
                (copy.block_bitmap, copy.inode_bitmap, copy.inode_table)
                    == (desc.block_bitmap, desc.inode_bitmap, desc.inode_table)
            });
            if !same {
                return Ok(false);
            }
        }
    }
    Ok(true)
}
