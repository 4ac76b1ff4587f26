//! A layout on its way to a device.
//!
//! # Invariants
//! The order is the crash safety: (1) the bytes of the primary superblock are zeroed and flushed;
//! (2) all else is written; (3) a flush; (4) the primary superblock, durably. A cut before 4 leaves
//! no magic number where a mount looks for one.

use std::io;
use std::ops::Range;

use extant_blockdev::BlockDevice;
use extant_disk::bitmap;
use extant_disk::csum::Crc32c;
use extant_disk::group_desc::{GroupChecksum, GroupDesc, GroupFlags};
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use extant_units::{DevOff, Group, Ino, Pblk, exact_u32};
use zerocopy::IntoBytes;

use crate::error::{Error, Result};
use crate::identity::Identity;
use crate::inodes::Contents;
use crate::layout::Layout;
use crate::population::{Empty, Population};
use crate::superblock;

/// The most bytes that are gathered for one write.
const BATCH: usize = 1 << 20;
/// Bytes at the device's beginning that are zeroed: the boot block, the superblock, and what other
/// file systems store there.
const HEAD: u64 = 4096;
/// Bytes at its end that are zeroed: other file systems and volume managers store labels there.
const TAIL: u64 = 1 << 16;

/// Content of a device before the first write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Zeros, all of it.
    Zeros,
    /// Anything.
    Unknown,
}

/// Writes `layout` to `device`, whatever it held.
///
/// # Errors
/// Those of the device. There is no file system on it then.
pub fn write(device: &dyn BlockDevice, layout: &Layout, identity: &Identity) -> Result<()> {
    write_over(device, layout, identity, Before::Unknown)
}

/// Writes `layout` to `device`.
pub(crate) fn write_over(
    device: &dyn BlockDevice,
    layout: &Layout,
    identity: &Identity,
    before: Before,
) -> Result<()> {
    write_populated(device, layout, identity, before, &Empty)
}

/// Writes `layout` with the files of `population`, whose data the caller has written.
///
/// # Errors
/// Those of the device, and content that an inode cannot hold. There is no file system on it then.
pub fn write_populated(
    device: &dyn BlockDevice,
    layout: &Layout,
    identity: &Identity,
    before: Before,
    population: &dyn Population,
) -> Result<()> {
    if !layout.files.quotas.is_empty() && layout.root_owner != identity.root_owner {
        let why = "the files of quotas were planned for another owner of the root directory";
        return Err(Error::Conflict(why));
    }
    let seed = identity.seed(layout.geometry.features);
    let contents = Contents::of(layout, identity)?;
    let mut writer = Writer {
        device,
        layout,
        blank: before == Before::Zeros,
        batch: Vec::new(),
        start: 0,
        written: 0,
    };
    writer.wipe()?;
    if let Some(journal) = &layout.external_journal {
        // Without a user Linux refuses the journal; a user that never comes does no harm.
        journal.serve(identity.uuid)?;
    }
    writer.zero()?;
    let mut blocks: Vec<_> = contents.blocks.iter().collect();
    blocks.sort_by_key(|(block, _)| *block);
    // Nothing is harmed: the device holds no file system until the end.
    assert!(
        blocks.is_sorted_by(|one, next| one.0 < next.0),
        "each block of the plan is written once"
    );
    for (block, bytes) in blocks {
        writer.put(*block, bytes)?;
    }
    population.blocks(&mut |block, bytes| writer.put(block, bytes))?;
    writer.inodes(&contents.records, population)?;
    let descriptors = writer.groups(seed, identity)?;
    writer.supers(identity, &contents, &descriptors)
}

struct Writer<'a> {
    device: &'a dyn BlockDevice,
    layout: &'a Layout,
    /// Set if the device reads as zeros where nothing was written.
    blank: bool,
    /// Bytes that were not written yet, and their offset on the device.
    batch: Vec<u8>,
    start: u64,
    /// Bytes that were.
    written: u64,
}

impl Writer<'_> {
    fn bs(&self) -> u64 {
        self.layout.geometry.block_size.bytes_u64()
    }

    /// Writes a block's bytes, together with its neighbours'.
    fn put(&mut self, block: u64, bytes: &[u8]) -> io::Result<()> {
        let at = block * self.bs();
        debug_assert_eq!(bytes.len() as u64 % self.bs(), 0, "whole blocks");
        debug_assert_eq!(
            self.layout
                .space
                .free_in(block..block + bytes.len() as u64 / self.bs()),
            0,
            "what is written is planned"
        );
        let next = self.start + self.batch.len() as u64;
        if at != next || self.batch.len() >= BATCH {
            self.send()?;
            self.start = at;
        }
        self.batch.extend_from_slice(bytes);
        Ok(())
    }

    fn send(&mut self) -> io::Result<()> {
        if !self.batch.is_empty() {
            self.device.write_at(DevOff::new(self.start), &self.batch)?;
            self.written += self.batch.len() as u64;
            self.batch.clear();
        }
        Ok(())
    }

    /// Makes blocks read as zeros.
    fn zero_blocks(&self, blocks: Range<u64>) -> io::Result<()> {
        if self.blank || blocks.is_empty() {
            return Ok(());
        }
        let len = (blocks.end - blocks.start) * self.bs();
        self.device
            .write_zeroes(DevOff::new(blocks.start * self.bs()), len)
    }

    /// Step 1: from here on there is no file system.
    fn wipe(&self) -> io::Result<()> {
        let head = HEAD.min(self.device.len());
        self.device.write_zeroes(DevOff::ZERO, head)?;
        self.device.flush()
    }

    /// Zeroes what must read as zeros and is not written below.
    fn zero(&self) -> io::Result<()> {
        if self.blank {
            return Ok(());
        }
        let layout = self.layout;
        let geometry = &layout.geometry;
        // What lies behind the volume is none of its business.
        let end = layout.bytes().min(self.device.len());
        let tail = end.saturating_sub(TAIL).max(HEAD).min(end);
        self.device.write_zeroes(DevOff::new(tail), end - tail)?;
        for group in 0..geometry.groups {
            self.zero_blocks(geometry.head(group))?;
        }
        if let Some(journal) = &layout.files.journal {
            for run in &journal.runs {
                self.zero_blocks(run.clone())?;
            }
        }
        for (group, tables) in (0..).zip(&layout.tables) {
            let all = u64::from(geometry.itable_blocks);
            let blocks = if self.leaves_tables() {
                let used = u64::from(layout.used_inodes(group));
                (used * u64::from(geometry.inode_size)).div_ceil(self.bs())
            } else {
                all
            };
            self.zero_blocks(tables.inode_table..tables.inode_table + blocks)?;
        }
        Ok(())
    }

    /// Returns whether unused parts of inode tables are left as they are.
    fn leaves_tables(&self) -> bool {
        self.layout.lazy_itable_init && self.layout.geometry.features.group_csum() && !self.blank
    }

    /// The inodes, into the tables of the groups that they fall into: `records` are the first.
    fn inodes(&mut self, records: &[u8], population: &dyn Population) -> io::Result<()> {
        let layout = self.layout;
        let geometry = &layout.geometry;
        let size = usize::from(geometry.inode_size);
        let per_group = geometry.inodes_per_group as usize * size;
        let mut first = records.chunks(per_group);
        assert!(
            records.len() <= layout.last_inode() as usize * size,
            "each record is of an inode in use"
        );
        for (group, tables) in (0..geometry.groups).zip(&layout.tables) {
            let used = layout.used_inodes(group) as usize * size;
            if used == 0 {
                break;
            }
            // Behind the records, the inodes are the population's to fill.
            let mut bytes = first.next().unwrap_or_default().to_vec();
            bytes.resize(used, 0);
            let before = group * geometry.inodes_per_group;
            for (ino, record) in (before + 1..).zip(bytes.chunks_mut(size)) {
                if let Some(ino) = Ino::new(ino) {
                    population.inode(ino, record)?;
                }
            }
            bytes.resize(used.next_multiple_of(geometry.block_size.bytes()), 0);
            self.put(tables.inode_table, &bytes)?;
        }
        Ok(())
    }

    /// The bitmaps of all groups that have some; the descriptor table.
    fn groups(&mut self, seed: Option<Crc32c>, identity: &Identity) -> io::Result<Vec<u8>> {
        let layout = self.layout;
        let geometry = &layout.geometry;
        let checksum = match seed {
            Some(seed) => GroupChecksum::Crc32c { seed },
            None if geometry.features.group_csum() => GroupChecksum::Crc16 {
                uuid: identity.uuid,
            },
            None => GroupChecksum::None,
        };
        let bs = geometry.block_size.bytes();
        let mut descriptors = vec![0; geometry.desc_blocks as usize * bs];
        let size = geometry.desc_size;
        let (mut free, mut directories) = ((0, 0), 0);
        for (group, slot) in (0..geometry.groups).zip(descriptors.chunks_mut(size)) {
            let mut desc = self.descriptor(group);
            let Some(tables) = layout.tables.get(group as usize) else {
                continue;
            };
            let stored = |covered: Option<&[u8]>| {
                let sum = covered.and_then(|covered| checksum.of_bitmap(covered));
                // Without `metadata_csum` the field is zero.
                GroupDesc::stored_bitmap_csum(sum.unwrap_or(0), size)
            };
            if !layout.is_block_uninit(group) {
                let bytes = block_bitmap(layout, group);
                let clear = bitmap::count_clear(&bytes, geometry.group_clusters(group));
                debug_assert_eq!(clear, desc.free_blocks, "bitmap and count agree");
                let covered = geometry.clusters_per_group() as usize / 8;
                desc.block_bitmap_csum = stored(bytes.get(..covered));
                self.put(tables.block_bitmap, &bytes)?;
            }
            if !layout.is_inode_uninit(group) {
                let bytes = inode_bitmap(layout, group);
                let clear = bitmap::count_clear(&bytes, geometry.inodes_per_group);
                debug_assert_eq!(clear, desc.free_inodes, "bitmap and count agree");
                let covered = geometry.inodes_per_group as usize / 8;
                desc.inode_bitmap_csum = stored(bytes.get(..covered));
                self.put(tables.inode_bitmap, &bytes)?;
            }
            desc.store(slot, Group::new(group), &checksum);
            free.0 += u64::from(desc.free_blocks) << geometry.cluster_bits;
            free.1 += desc.free_inodes;
            directories += desc.used_dirs;
        }
        // Nothing is harmed: the device holds no file system until the end.
        assert_eq!(
            free,
            (layout.free_blocks(), layout.free_inodes()),
            "the groups have what the volume has"
        );
        assert!(
            directories >= 2 && directories <= layout.last_inode(),
            "the root and lost+found at least, and no more than there are inodes"
        );
        Ok(descriptors)
    }

    fn descriptor(&self, group: u32) -> GroupDesc {
        let layout = self.layout;
        let geometry = &layout.geometry;
        let used = layout.used_inodes(group);
        let mut desc = GroupDesc {
            free_inodes: geometry.inodes_per_group - used,
            used_dirs: layout.directories(group),
            ..GroupDesc::default()
        };
        let free = layout.space.free_in(geometry.group_blocks(group));
        desc.free_blocks = exact_u32(free >> geometry.cluster_bits);
        if let Some(tables) = layout.tables.get(group as usize) {
            desc.block_bitmap = Pblk::new(tables.block_bitmap);
            desc.inode_bitmap = Pblk::new(tables.inode_bitmap);
            desc.inode_table = Pblk::new(tables.inode_table);
        }
        if geometry.features.group_csum() {
            desc.itable_unused = geometry.inodes_per_group - used;
        }
        desc.flags
            .set(GroupFlags::BLOCK_UNINIT, layout.is_block_uninit(group));
        desc.flags
            .set(GroupFlags::INODE_UNINIT, layout.is_inode_uninit(group));
        desc.flags
            .set(GroupFlags::ITABLE_ZEROED, !self.leaves_tables());
        desc
    }

    /// Steps 2 to 4: descriptors and backups, a flush, the primary superblock.
    fn supers(mut self, identity: &Identity, contents: &Contents, table: &[u8]) -> Result<()> {
        self.send()?;
        let geometry = &self.layout.geometry;
        let bs = geometry.block_size.bytes();
        // What is written below: a copy begins with a whole block.
        let supers = geometry.backup_groups().count() as u64 * self.bs();
        let copies = (1..geometry.groups).filter_map(|group| geometry.desc_copy(group));
        let copied: u64 = copies.map(|(_, blocks)| blocks.len() as u64).sum();
        let rest = supers + copied * self.bs() + (table.len() + SUPERBLOCK_SIZE) as u64;
        let kib = (self.written + rest).div_ceil(1024);
        let mut primary = superblock::superblock(self.layout, identity, contents, kib);
        let part =
            |blocks: Range<u32>| &table[blocks.start as usize * bs..blocks.end as usize * bs];
        for group in 1..geometry.groups {
            if geometry.has_backup(group) {
                let mut first = primary.backup(Group::new(group)).as_bytes().to_vec();
                first.resize(bs, 0);
                self.put(geometry.group_start(group), &first)?;
            }
            if let Some((start, blocks)) = geometry.desc_copy(group) {
                self.put(start, part(blocks))?;
            }
        }
        for (at, block) in (0..).zip(geometry.desc_block_numbers()) {
            self.put(block, part(at..at + 1))?;
        }
        self.send()?;
        primary.seal();
        assert!(
            self.batch.is_empty(),
            "all else is written before the superblock"
        );
        let at = DevOff::new(SUPERBLOCK_OFFSET);
        self.device.write_durable(at, primary.as_bytes())?;
        Ok(())
    }
}

/// The block bitmap of `group`: what lies behind its end counts as taken.
fn block_bitmap(layout: &Layout, group: u32) -> Vec<u8> {
    let geometry = &layout.geometry;
    let mut bytes = bitmap::of_free(geometry.block_size, geometry.group_clusters(group));
    for run in layout.space.taken_in(geometry.group_blocks(group)) {
        bitmap::set_range(&mut bytes, geometry.cluster_bits_of(group, &run));
    }
    bytes
}

/// The inode bitmap of `group`.
fn inode_bitmap(layout: &Layout, group: u32) -> Vec<u8> {
    let geometry = &layout.geometry;
    let mut bytes = bitmap::of_free(geometry.block_size, geometry.inodes_per_group);
    bitmap::set_range(&mut bytes, 0..layout.used_inodes(group));
    bytes
}

#[cfg(test)]
mod tests {
    use extant_blockdev::MemoryDevice;
    use extant_disk::superblock::Superblock;
    use extant_testkit::{Event, Recorder};

    use super::*;
    use crate::features::parse_features;
    use crate::options::Options;

    /// `s_kbytes_written` is what the volume has cost its device, without what was zeroed.
    #[test]
    fn the_kib_that_were_written_are_counted() {
        for features in [
            "",
            "^resize_inode",
            "^resize_inode,^sparse_super",
            "^resize_inode,meta_bg",
        ] {
            let options = Options {
                features: parse_features(features).unwrap(),
                ..Options::default()
            };
            let device = Recorder::new(MemoryDevice::new(160 << 20));
            let layout = Layout::plan(&options, device.len()).unwrap();
            let identity = Identity::of(&options).unwrap();
            write_over(&device, &layout, &identity, Before::Zeros).unwrap();
            let length = |event: &Event| match event {
                Event::Write { data, .. } => data.len() as u64,
                _ => 0,
            };
            let written: u64 = device.events().iter().map(length).sum();
            let mut bytes = [0; SUPERBLOCK_SIZE];
            let at = DevOff::new(SUPERBLOCK_OFFSET);
            device.read_at(at, &mut bytes).unwrap();
            let superblock = Superblock::parse(&bytes).unwrap();
            let told = superblock.raw().kbytes_written.get();
            assert_eq!(told, (written - HEAD).div_ceil(1024), "{features}");
        }
    }
}
