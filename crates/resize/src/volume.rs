//! The private copy of a volume that is resized: superblock, descriptors, blocks and inodes.
//!
//! # Invariants
//! - Changes stay in the copy. Only what lies in blocks that the volume on the device does not use
//!   goes to the device at once: the blocks of files, moved.
//! - Descriptors and bitmaps stand here, as they become, and stored by [`Volume::store`].

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, CowDevice};
use extant_disk::csum::Crc32c;
use extant_disk::features::{Incompat, RoCompat};
use extant_disk::geometry::Geometry;
use extant_disk::group_desc::{GroupChecksum, GroupDesc};
use extant_disk::inode::{InodeCore, InodeFormat};
use extant_disk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_jbd2::LogMap;
use extant_units::{DevOff, Group, Ino, Pblk, exact_u16, index};
use zerocopy::IntoBytes;

use crate::bits::Bits;
use crate::error::{Error, Result};

/// A device with its changes in memory.
pub(crate) type Overlay = Arc<CowDevice<Arc<dyn BlockDevice>>>;

/// Bytes that the files of an id take more than before, by the index of its kind and the id.
type UsageChanges = BTreeMap<(usize, u32), i128>;

/// Bytes that a copy from block to block takes at once.
const COPY_BYTES: u64 = 1 << 20;

/// The superblock on `dev`.
pub(crate) fn read_super(dev: &dyn BlockDevice) -> Result<Superblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if dev.len() < SUPERBLOCK_OFFSET + SUPERBLOCK_SIZE as u64 {
        return Err(extant_check::Error::TooShort.into());
    }
    dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
    let sb = Superblock::parse(&bytes)?;
    if sb.features().has_incompat(Incompat::JOURNAL_DEV) {
        return Err(Error::Unsupported("it is a journal, without a file system"));
    }
    sb.check_device_len(dev.len())?;
    Ok(sb)
}

/// Changes the superblock on `dev`, seals it and makes it durable.
pub(crate) fn edit_super(
    dev: &dyn BlockDevice,
    change: impl FnOnce(&mut RawSuperblock),
) -> Result<()> {
    let mut raw = read_super(dev)?.raw().clone();
    change(&mut raw);
    raw.seal();
    Ok(dev.write_durable(DevOff::new(SUPERBLOCK_OFFSET), raw.as_bytes())?)
}

/// The copy.
pub(crate) struct Volume {
    pub(crate) dev: Overlay,
    /// As it was.
    pub(crate) old: Geometry,
    /// As it becomes.
    pub(crate) new: Geometry,
    /// The superblock, as it becomes.
    pub(crate) raw: RawSuperblock,
    pub(crate) checksum: GroupChecksum,
    pub(crate) format: InodeFormat,
    /// The descriptors as they were.
    pub(crate) was: Vec<GroupDesc>,
    /// The runs that the descriptors as they were lead to, in order.
    placed: Vec<Range<u64>>,
    /// The descriptors of all groups, those of the old volume and those of the new one.
    pub(crate) groups: Vec<GroupDesc>,
    /// The block bitmaps that were needed so far.
    pub(crate) bits: BTreeMap<u32, Bits>,
    /// The inode bitmaps that have changed.
    pub(crate) inode_bits: BTreeMap<u32, Vec<u8>>,
    /// The group where the next search for free blocks begins.
    pub(crate) cursor: u32,
    /// The blocks of the log, as they become; `None` without a journal.
    pub(crate) log: Option<LogMap>,
    /// Set once the log has other blocks than before.
    pub(crate) log_moved: bool,
    /// The byte from which on the device is known to hold zeros.
    pub(crate) zeros_from: u64,
    /// Blocks that maps and the journal have beyond those that they had.
    pub(crate) blocks_added: i128,
    pub(crate) blocks_moved: u64,
    pub(crate) inodes_moved: u64,
    /// Metadata of groups that was moved or cut off: its clusters are free unless other metadata
    /// lies in them.
    pub(crate) loose: Vec<Range<u64>>,
    /// Changes of usage that the files of quotas do not say yet.
    pub(crate) usage_changes: UsageChanges,
}

impl Volume {
    /// Reads superblock and descriptors of the copy `dev`, which becomes `new`.
    pub(crate) fn open(
        dev: &Overlay,
        sb: &Superblock,
        new: Geometry,
        zeros_from: u64,
    ) -> Result<Self> {
        let features = sb.features();
        let mut volume = Self {
            dev: Arc::clone(dev),
            old: Geometry::of(sb),
            raw: sb.raw().clone(),
            checksum: GroupChecksum::of(sb),
            format: InodeFormat {
                inode_size: exact_u16(sb.inode_size() as u64),
                block_size: sb.block_size(),
                huge_file: features.has_ro_compat(RoCompat::HUGE_FILE),
                wide_blocks: features.has_incompat(Incompat::SIXTY_FOUR_BIT),
                large_dir: features.has_incompat(Incompat::LARGEDIR),
                csum_seed: features.metadata_csum().then(|| sb.checksum_seed()),
            },
            was: Vec::new(),
            placed: Vec::new(),
            groups: Vec::new(),
            bits: BTreeMap::new(),
            inode_bits: BTreeMap::new(),
            cursor: 0,
            log: None,
            log_moved: false,
            zeros_from,
            blocks_added: 0,
            blocks_moved: 0,
            inodes_moved: 0,
            loose: Vec::new(),
            usage_changes: UsageChanges::new(),
            new,
        };
        let size = sb.desc_size();
        let per_block = sb.block_size().bytes() / size;
        for at in 0..volume.old.desc_blocks {
            let block = volume.block(volume.old.desc_block(at))?;
            let left = volume.old.groups as usize - volume.groups.len();
            for bytes in block.chunks_exact(size).take(per_block.min(left)) {
                let group = Group::new(extant_units::at_most_u32(volume.groups.len() as u64));
                let desc = GroupDesc::parse(bytes, group, &volume.checksum);
                volume.groups.push(desc.map_err(Error::unreadable)?);
            }
        }
        assert_eq!(
            volume.groups.len(),
            volume.old.groups as usize,
            "each group has a descriptor"
        );
        volume.was.clone_from(&volume.groups);
        let table = volume.old.itable_blocks.into();
        let parts = |desc: &GroupDesc| {
            // Places from disk may be anything.
            let run = |at: Pblk, len| at.get()..at.get().saturating_add(len);
            [
                run(desc.block_bitmap, 1),
                run(desc.inode_bitmap, 1),
                run(desc.inode_table, table),
            ]
        };
        volume.placed = volume.was.iter().flat_map(parts).collect();
        volume.placed.sort_unstable_by_key(|run| run.start);
        Ok(volume)
    }

    /// The blocks of bitmaps and inode tables, as they were, that lie in `range`.
    pub(crate) fn placed_in(&self, range: &Range<u64>) -> impl Iterator<Item = &Range<u64>> {
        // Sound volumes have no two parts in one block, so the ends are in order too.
        let first = self.placed.partition_point(|run| run.end <= range.start);
        let (behind, end) = (self.placed.iter().skip(first), range.end);
        behind.take_while(move |run| run.start < end)
    }

    pub(crate) fn block_bytes(&self) -> usize {
        self.old.block_size.bytes()
    }

    /// The block's offset on the device; blocks of both the old and the new volume have one.
    pub(crate) fn at(&self, block: u64) -> Result<DevOff> {
        let end = self.old.blocks.max(self.new.blocks);
        match block < end {
            true => Ok(DevOff::new(block << self.old.block_size.log2())),
            false => Err(Error::unreadable(format_args!(
                "block {block} lies past the end"
            ))),
        }
    }

    /// The bytes of a block.
    pub(crate) fn block(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_bytes()];
        self.dev.read_at(self.at(block)?, &mut bytes)?;
        Ok(bytes)
    }

    /// The bytes of a block on the device.
    pub(crate) fn old_block(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_bytes()];
        self.dev.base().read_at(self.at(block)?, &mut bytes)?;
        Ok(bytes)
    }

    /// Stores a block in the copy.
    pub(crate) fn put(&self, block: u64, bytes: &[u8]) -> Result<()> {
        assert_eq!(bytes.len(), self.block_bytes(), "a block is stored whole");
        Ok(self.dev.write_at(self.at(block)?, bytes)?)
    }

    /// Copies `len` blocks to others, which the volume on the device does not use: there.
    pub(crate) fn copy(&mut self, from: u64, to: u64, len: u64) -> Result<()> {
        let log2 = self.old.block_size.log2();
        let most = (COPY_BYTES >> log2).max(1);
        self.assert_unused(&(to..to + len))?;
        let mut done = 0;
        while done < len {
            let piece = (len - done).min(most);
            let mut bytes = vec![0; index(piece << log2)];
            self.dev.read_at(self.at(from + done)?, &mut bytes)?;
            let at = self.at(to + done)?;
            let range = at..at.plus(piece << log2);
            self.dev
                .write_through(range, |dev| dev.write_at(at, &bytes))?;
            done += piece;
        }
        debug_assert_eq!(done, len, "all of it is copied");
        self.blocks_moved += len;
        Ok(())
    }

    /// Clears blocks that the volume on the device does not use: there.
    pub(crate) fn clear(&self, run: &Range<u64>) -> Result<()> {
        let len = (run.end - run.start) << self.old.block_size.log2();
        let at = self.at(run.start)?;
        self.assert_unused(run)?;
        let range = at..at.plus(len);
        Ok(self
            .dev
            .write_through(range, |dev| dev.write_zeroes(at, len))?)
    }

    /// The descriptor of a group.
    pub(crate) fn desc(&self, group: u32) -> Result<&GroupDesc> {
        let desc = self.groups.get(group as usize);
        desc.ok_or_else(|| Error::unreadable(format_args!("there is no group {group}")))
    }

    /// The descriptor of a group, to be changed.
    pub(crate) fn desc_mut(&mut self, group: u32) -> Result<&mut GroupDesc> {
        let desc = self.groups.get_mut(group as usize);
        desc.ok_or_else(|| Error::unreadable(format_args!("there is no group {group}")))
    }

    /// The block with the record of an inode, and where in it.
    pub(crate) fn record_at(&self, ino: Ino) -> Result<(u64, usize)> {
        let per_group = self.old.inodes_per_group;
        let (group, number) = ((ino.get() - 1) / per_group, (ino.get() - 1) % per_group);
        let byte = number as usize * self.format.record_size();
        let (block, at) = (byte / self.block_bytes(), byte % self.block_bytes());
        Ok((self.desc(group)?.inode_table.get() + block as u64, at))
    }

    /// The same as it was.
    pub(crate) fn old_record_at(&self, ino: Ino) -> Result<(u64, usize)> {
        let table = |groups: &[GroupDesc], group: u32| {
            groups
                .get(group as usize)
                .map(|desc| desc.inode_table.get())
        };
        let group = (ino.get() - 1) / self.old.inodes_per_group;
        let (block, at) = self.record_at(ino)?;
        match (table(&self.was, group), table(&self.groups, group)) {
            (Some(old), Some(new)) => Ok((block - new + old, at)),
            _ => Err(Error::unreadable(format_args!("inode {ino}"))),
        }
    }

    /// The record of an inode.
    pub(crate) fn record(&self, ino: Ino) -> Result<Vec<u8>> {
        let (block, at) = self.record_at(ino)?;
        let bytes = self.block(block)?;
        let record = bytes.get(at..at + self.format.record_size());
        let record = record.map(<[u8]>::to_vec);
        record.ok_or_else(|| Error::unreadable(format_args!("inode {ino}")))
    }

    /// Stores the record of an inode, sealed.
    pub(crate) fn put_record(&self, ino: Ino, record: &[u8]) -> Result<()> {
        let (block, at) = self.record_at(ino)?;
        let mut bytes = self.block(block)?;
        assert_eq!(record.len(), self.format.record_size(), "of this volume");
        if let Some(slot) = bytes.get_mut(at..at + self.format.record_size()) {
            slot.copy_from_slice(record);
            self.format.seal(ino, slot);
        }
        self.put(block, &bytes)
    }

    /// An inode, decoded.
    pub(crate) fn inode(&self, ino: Ino) -> Result<InodeCore> {
        let record = self.record(ino)?;
        let core = InodeCore::decode(&self.format, ino, &record);
        core.map_err(|error| Error::unreadable(format_args!("inode {ino}: {error}")))
    }

    /// An inode whose number is in use, `None` if its record never was: a reserved one.
    pub(crate) fn used_inode(&self, ino: Ino) -> Result<Option<InodeCore>> {
        match self.record(ino)?.iter().all(|byte| *byte == 0) {
            true => Ok(None),
            false => self.inode(ino).map(Some),
        }
    }

    /// Stores an inode.
    pub(crate) fn put_inode(&self, ino: Ino, core: &InodeCore) -> Result<()> {
        let mut record = self.record(ino)?;
        let stored = core.encode(&self.format, ino, &mut record);
        stored.map_err(|error| Error::unreadable(format_args!("inode {ino}: {error}")))?;
        self.put_record(ino, &record)
    }

    /// The seed of checksums of what an inode owns.
    pub(crate) fn seed(&self, ino: Ino, core: &InodeCore) -> Option<Crc32c> {
        self.format.inode_seed(ino, core.generation)
    }

    /// Returns whether a file's run has a block in a cluster that the new volume needs for
    /// something else, or does not have.
    pub(crate) fn must_move(&self, run: &Range<u64>) -> bool {
        !run.is_empty() && self.vacated(run).next().is_some()
    }

    /// The same of metadata of groups, which shares clusters.
    pub(crate) fn must_move_own(&self, run: &Range<u64>) -> bool {
        !run.is_empty() && self.vacated_by(run, Range::clone).next().is_some()
    }

    /// The parts of a file's run that must move, in order.
    pub(crate) fn vacated(&self, run: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        // A cluster that the metadata of groups has a part of already is no file's.
        self.vacated_by(run, |part| {
            let after = |block: u64| self.new.whole_clusters(&(block - 1..block)).end;
            after(part.start)..after(part.end)
        })
    }

    /// The parts of a run that must move, in order: those in what `extent` makes of the blocks by
    /// which the starts of groups grow, and those behind the end.
    fn vacated_by(
        &self,
        run: &Range<u64>,
        extent: impl Fn(&Range<u64>) -> Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> {
        let (old, new) = (&self.old, &self.new);
        let grows = new.head_blocks(0) > old.head_blocks(0);
        let groups = match grows {
            true => old.group_of(run.start)..old.group_of(run.end - 1) + 1,
            false => 0..0,
        };
        let supers = groups.filter(move |group| *group < new.groups && old.has_backup(*group));
        let supers = supers.map(move |group| {
            let start = old.group_start(group);
            extent(&(start + old.head_blocks(group)..start + new.head_blocks(group)))
        });
        let behind = std::iter::once(new.blocks..u64::MAX);
        let run = run.clone();
        supers.chain(behind).filter_map(move |part| {
            let cut = part.start.max(run.start)..part.end.min(run.end);
            (cut.start < cut.end).then_some(cut)
        })
    }
}
