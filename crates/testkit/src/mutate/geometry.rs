//! The geometry of an image as its superblock says it, cut to the image's length.
//!
//! A mutated image may say anything. The numbers kept here are cut to what the image's bytes have
//! room for, so that every loop over them ends soon.

use super::bytes::{be32, get, index, le16, le32, part};

/// Offset of the superblock.
pub(super) const SUPERBLOCK: usize = 1024;
/// The most groups, inodes and blocks of one file that are looked at.
pub(super) const MAX_GROUPS: u32 = 512;
pub(super) const MAX_INODES: u32 = 1 << 15;

pub(super) const HAS_JOURNAL: u64 = 0x4;
const SPARSE_SUPER2: u64 = 0x200;
const ORPHAN_FILE: u64 = 0x1000;
const META_BG: u64 = 0x10;
const WIDE: u64 = 0x80;
const CSUM_SEED: u64 = 0x2000;
const SPARSE_SUPER: u64 = 0x1;
const QUOTA: u64 = 0x100;
const GDT_CSUM: u64 = 0x10;
const METADATA_CSUM: u64 = 0x400;

/// The layout of an image.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    pub(super) block_size: usize,
    /// Blocks that the image's bytes hold.
    pub(super) blocks: u64,
    pub(super) first_data_block: u64,
    pub(super) blocks_per_group: u64,
    pub(super) clusters_per_group: u64,
    pub(super) inodes_per_group: u32,
    pub(super) inode_size: usize,
    pub(super) desc_size: usize,
    /// At most [`MAX_GROUPS`].
    pub(super) groups: u32,
    pub(super) compat: u64,
    pub(super) incompat: u64,
    pub(super) ro_compat: u64,
    pub(super) first_meta_bg: u64,
    backup_groups: [u64; 2],
    pub(super) journal: Option<u32>,
    pub(super) orphan_file: Option<u32>,
    /// Inodes of the files of quotas.
    pub(super) quotas: [Option<u32>; 3],
    /// The raw crc32c that starts the checksums of metadata.
    pub(super) seed: u32,
    pub(super) uuid: [u8; 16],
}

impl Geometry {
    /// Reads the superblock; `None` if not even a block size can be had from it.
    pub(super) fn of(image: &[u8]) -> Option<Geometry> {
        let sb = part(image, SUPERBLOCK, 1024);
        let block_size = 1024usize
            .checked_shl(u32::try_from(le32(sb, 0x18)).ok()?)
            .filter(|size| (1024..=65536).contains(size))?;
        let blocks = (image.len() / block_size) as u64;
        let incompat = le32(sb, 0x60);
        let desc_size = match le16(sb, 0xfe) {
            size @ 64..=1024 if incompat & WIDE != 0 => index(size),
            _ => 32,
        };
        let inode_size = match le16(sb, 0x58) {
            size if size >= 128 && index(size) <= block_size && le32(sb, 0x4c) > 0 => index(size),
            _ => 128,
        };
        let blocks_per_group = le32(sb, 0x20).clamp(8, 8 * block_size as u64 * 16);
        let first_data_block = le32(sb, 0x14).min(1);
        let groups = blocks
            .saturating_sub(first_data_block)
            .div_ceil(blocks_per_group);
        let mut uuid = [0; 16];
        for (to, from) in uuid.iter_mut().zip(part(sb, 0x68, 16)) {
            *to = *from;
        }
        let seed = if incompat & CSUM_SEED != 0 {
            super::bytes::low32(le32(sb, 0x270))
        } else {
            super::checksum::feed(!0, &uuid)
        };
        let compat = le32(sb, 0x5c);
        let inode = |at, on: bool| {
            let ino = u32::try_from(le32(sb, at)).ok()?;
            (on && ino != 0).then_some(ino)
        };
        Some(Geometry {
            block_size,
            blocks,
            first_data_block,
            blocks_per_group,
            clusters_per_group: le32(sb, 0x24).min(8 * block_size as u64),
            inodes_per_group: u32::try_from(le32(sb, 0x28)).unwrap_or(0).min(MAX_INODES),
            inode_size,
            desc_size,
            groups: u32::try_from(groups).unwrap_or(MAX_GROUPS).min(MAX_GROUPS),
            compat,
            incompat,
            ro_compat: le32(sb, 0x64),
            first_meta_bg: le32(sb, 0x104),
            backup_groups: [le32(sb, 0x24c), le32(sb, 0x250)],
            journal: inode(0xe0, compat & HAS_JOURNAL != 0),
            orphan_file: inode(0x280, compat & ORPHAN_FILE != 0),
            quotas: [0x240, 0x244, 0x26c].map(|at| inode(at, le32(sb, 0x64) & QUOTA != 0)),
            seed,
            uuid,
        })
    }

    /// Returns whether metadata carries crc32c.
    pub(super) fn metadata_csum(&self) -> bool {
        self.ro_compat & METADATA_CSUM != 0
    }

    /// Returns whether descriptors carry crc16.
    pub(super) fn gdt_csum(&self) -> bool {
        self.ro_compat & GDT_CSUM != 0 && !self.metadata_csum()
    }

    /// The byte of a block; past the image for one that it does not have.
    pub(super) fn byte(&self, block: u64) -> usize {
        index(block.saturating_mul(self.block_size as u64))
    }

    /// Returns whether the image has this block and files may use it.
    pub(super) fn holds(&self, block: u64) -> bool {
        block > self.first_data_block && block < self.blocks
    }

    /// The first block of a group.
    pub(super) fn group_start(&self, group: u32) -> u64 {
        self.first_data_block + u64::from(group) * self.blocks_per_group
    }

    /// Returns whether a group begins with copies of superblock and descriptors.
    pub(super) fn has_backup(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.compat & SPARSE_SUPER2 != 0 {
            return self.backup_groups.contains(&u64::from(group));
        }
        let power = |base: u32| {
            let mut n = base;
            while n < group {
                n = n.saturating_mul(base);
            }
            n == group
        };
        group == 1 || self.ro_compat & SPARSE_SUPER == 0 || power(3) || power(5) || power(7)
    }

    /// The byte of a group's descriptor.
    pub(super) fn descriptor(&self, group: u32) -> usize {
        let per_block = u32::try_from(self.block_size / self.desc_size)
            .unwrap_or(1)
            .max(1);
        let inside = index(u64::from(group % per_block)) * self.desc_size;
        let table = u64::from(group / per_block);
        let first = group - group % per_block;
        // Group 0 may begin with the boot block.
        if first > 0 && self.incompat & META_BG != 0 && table >= self.first_meta_bg {
            let skip = u64::from(self.has_backup(first));
            return self
                .byte(self.group_start(first) + skip)
                .saturating_add(inside);
        }
        let behind_superblock = (SUPERBLOCK / self.block_size) as u64 + 1;
        self.byte(behind_superblock + table).saturating_add(inside)
    }

    /// A block number of a descriptor: its low half at `low`, its high half 0x20 bytes behind.
    pub(super) fn desc_block(&self, image: &[u8], group: u32, low: usize) -> u64 {
        let at = self.descriptor(group);
        let high = if self.desc_size >= 64 {
            le32(image, at + low + 0x20)
        } else {
            0
        };
        high << 32 | le32(image, at + low)
    }

    /// The byte of an inode's record, if the image has it.
    pub(super) fn record(&self, image: &[u8], ino: u32) -> Option<usize> {
        let number = ino.checked_sub(1)?;
        let group = number.checked_div(self.inodes_per_group)?;
        if group >= self.groups {
            return None;
        }
        let inside = index(u64::from(number % self.inodes_per_group)) * self.inode_size;
        let table = self.desc_block(image, group, 0x08);
        let at = self.byte(table).checked_add(inside)?;
        (self.holds(table) && at + self.inode_size <= image.len()).then_some(at)
    }

    /// The seed of the checksums of an inode and of what belongs to it.
    pub(super) fn owner_seed(&self, image: &[u8], ino: u32) -> u32 {
        let generation = self
            .record(image, ino)
            .map_or(0, |at| super::bytes::low32(le32(image, at + 0x64)));
        let seed = super::checksum::feed(self.seed, &ino.to_le_bytes());
        super::checksum::feed(seed, &generation.to_le_bytes())
    }
}

/// Format of a journal's blocks, by its superblock.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogFormat {
    /// Checksums of version 2 or 3.
    pub(super) checksums: bool,
    pub(super) v3: bool,
    pub(super) wide: bool,
    pub(super) uuid_seed: u32,
    /// First block of the ring, and the block behind its last.
    pub(super) first: u64,
    pub(super) end: u64,
    /// Fast-commit blocks at the end.
    pub(super) fast_commit: u64,
}

impl LogFormat {
    /// Reads the journal's superblock at byte `at`.
    pub(super) fn of(image: &[u8], at: usize) -> LogFormat {
        let sb = part(image, at, 1024);
        let incompat = be32(sb, 0x28);
        let end = be32(sb, 0x10);
        let fast_commit = match be32(sb, 0x54) {
            _ if incompat & 0x20 == 0 => 0,
            0 => 256,
            blocks => blocks,
        };
        LogFormat {
            checksums: incompat & 0x18 != 0,
            v3: incompat & 0x10 != 0,
            wide: incompat & 0x2 != 0,
            uuid_seed: super::checksum::feed(!0, part(sb, 0x30, 16)),
            first: be32(sb, 0x14).max(1),
            end: end.saturating_sub(fast_commit).max(2),
            fast_commit: fast_commit.min(end),
        }
    }

    /// Bytes of a descriptor's tag.
    pub(super) fn tag_len(&self) -> usize {
        match (self.v3, self.checksums) {
            (true, _) => 16,
            (false, sums) => 8 + if self.wide { 4 } else { 0 } + if sums { 2 } else { 0 },
        }
    }

    /// The tags of a descriptor block: byte in the block of each, at most as many as fit.
    pub(super) fn tags(&self, block: &[u8]) -> Vec<usize> {
        let mut all = Vec::new();
        let mut at = 12;
        while at + self.tag_len() <= block.len() {
            all.push(at);
            let flags = if self.v3 {
                get(block, at + 4, 4, true)
            } else {
                get(block, at + 6, 2, true)
            };
            at += self.tag_len();
            if flags & 2 == 0 {
                at += 16;
            }
            if flags & 8 != 0 {
                break;
            }
        }
        all
    }
}
