//! Geometry and features: the superblock's fields that do not change while mounted, but for the
//! volume's size.
//!
//! A [`Layout`] is made once, from a checked superblock, after the journal was replayed. It is
//! plain data without locks. Its copies share the size, which a grow raises ([`GrowingSize`]).
//!
//! # Invariants
//! Those of [`Superblock`]. No method divides by zero or overflows for any block, group or inode
//! number, valid or not; numbers out of range give `None`.

use std::sync::Arc;

use extant_disk::csum::Crc32c;
use extant_disk::features::{FeatureSets, Incompat, RoCompat};
use extant_disk::geometry::Geometry;
use extant_disk::group_desc::GroupChecksum;
use extant_disk::quota::QuotaKind;
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SuperFlags, Superblock};
use extant_units::{BlockSize, Blocks, Group, Ino, Pblk, exact_u16, exact_u32, index};

use crate::state::volume::GrowingSize;

/// The fixed shape of the file system.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    /// Block size.
    pub(crate) block_size: BlockSize,
    /// Blocks, groups and inodes.
    pub(crate) size: Arc<GrowingSize>,
    /// First block of group 0: 1 with 1 KiB blocks, else 0.
    pub(crate) first_data_block: Pblk,
    /// The first block of the primary descriptor table.
    pub(crate) descriptor_start: Pblk,
    /// Blocks in a full group.
    pub(crate) blocks_per_group: u32,
    /// log2 of the blocks of a cluster, the unit of allocation: 0 without bigalloc.
    pub(crate) cluster_bits: u32,
    /// Inodes in a group.
    pub(crate) inodes_per_group: u32,
    /// Bytes of an inode in the table.
    pub(crate) inode_size: u16,
    /// The seed of all metadata checksums; `None` without metadata_csum.
    pub(crate) csum_seed: Option<Crc32c>,
    /// The seed of the hashes of values in inodes of their own.
    pub(crate) value_seed: Crc32c,
    /// The feature bits.
    pub(crate) features: FeatureSets,
    /// First inode that is not reserved.
    pub(crate) first_inode: u32,
    /// Blocks of each group's inode table.
    pub(crate) itable_blocks: u32,
    /// Inodes in a block of the inode table, at least one.
    pub(crate) inodes_per_block: u32,
    /// Bytes that new inodes reserve for fields past 128; zero for inodes of 128 bytes.
    pub(crate) want_extra_isize: u16,
    /// Bytes of a group descriptor: 32, or 64 and more.
    pub(crate) desc_size: usize,
    /// Blocks of the descriptor table at the mount. A grow takes them from the reserve: the sum
    /// stays.
    pub(crate) desc_blocks: u32,
    /// With `meta_bg`: the first meta group whose descriptors lie in its own groups.
    pub(crate) first_meta_bg: Option<u32>,
    /// Blocks reserved behind the descriptor table for its growth, at the mount.
    pub(crate) reserved_gdt_blocks: u32,
    /// log2 of the groups per flex group; 0 without flex_bg.
    pub(crate) flex_bits: u32,
    /// How descriptors and bitmaps are protected.
    pub(crate) group_checksum: GroupChecksum,
    /// The volume's UUID.
    pub(crate) uuid: [u8; 16],
    /// Seed of directory hashes.
    pub(crate) hash_seed: [u32; 4],
    /// Hash version of new hash trees (`s_def_hash_version`): 0 legacy, 1 half MD4, 2 TEA; see
    /// [`Layout::hash_unsigned`].
    pub(crate) hash_version: u8,
    /// Directory hashes treat bytes as unsigned (`s_flags`).
    pub(crate) hash_unsigned: bool,
    /// Names in folded directories must be UTF-8 (`s_encoding_flags`).
    pub(crate) strict_names: bool,
    /// The journal's inode.
    pub(crate) journal_inode: Option<Ino>,
    /// The orphan file's inode.
    pub(crate) orphan_file_inode: Option<Ino>,
    /// Inodes of the files of quotas (`s_*_quota_inum`), by kind; with the feature `quota`.
    pub(crate) quota_inodes: [Option<Ino>; 3],
    /// Blocks reserved for root at the mount.
    pub(crate) root_reserved: Blocks,
    /// The superblock at the mount, for rules about its fixed fields.
    superblock: Arc<Superblock>,
}

impl Layout {
    /// The layout that `sb` describes.
    pub(crate) fn new(sb: &Superblock) -> Self {
        let block_size = sb.block_size();
        // 32 KiB at most: the field has 16 bits, and the size is a power of two.
        let inode_size = exact_u16(sb.inode_size() as u64);
        let inodes_per_block = exact_u32((block_size.bytes() / sb.inode_size()) as u64);
        debug_assert!(
            inodes_per_block > 0 && sb.blocks_per_group() > 0 && sb.group_count() > 0,
            "a checked superblock"
        );
        let group_checksum = GroupChecksum::of(sb);
        Self {
            block_size,
            size: Arc::new(GrowingSize::new(
                Pblk::new(sb.blocks_count().get()),
                sb.group_count(),
                sb.inodes_count(),
            )),
            first_data_block: sb.first_data_block(),
            descriptor_start: sb.descriptor_start(),
            blocks_per_group: sb.blocks_per_group(),
            cluster_bits: sb.cluster_bits(),
            inodes_per_group: sb.inodes_per_group(),
            inode_size,
            csum_seed: sb.features().metadata_csum().then(|| sb.checksum_seed()),
            value_seed: sb.checksum_seed(),
            features: sb.features(),
            first_inode: sb.first_inode(),
            itable_blocks: sb.inodes_per_group().div_ceil(inodes_per_block),
            inodes_per_block,
            want_extra_isize: sb.want_extra_isize(),
            desc_size: sb.desc_size(),
            desc_blocks: sb.desc_blocks(),
            first_meta_bg: sb.first_meta_bg(),
            reserved_gdt_blocks: sb.reserved_gdt_blocks(),
            flex_bits: sb.log_groups_per_flex(),
            group_checksum,
            uuid: sb.raw().uuid,
            hash_seed: sb.hash_seed(),
            hash_version: sb.raw().def_hash_version,
            hash_unsigned: sb.flags().contains(SuperFlags::UNSIGNED_HASH),
            strict_names: sb.strict_names(),
            journal_inode: sb.journal_inode(),
            orphan_file_inode: sb.orphan_file_inode(),
            quota_inodes: quota_inodes(sb),
            root_reserved: sb.reserved_blocks(),
            superblock: Arc::new(sb.clone()),
        }
    }

    /// One past the last block.
    #[inline]
    pub(crate) fn end(&self) -> Pblk {
        self.size.end()
    }

    /// Number of groups.
    #[inline]
    pub(crate) fn groups(&self) -> u32 {
        self.size.groups()
    }

    /// Inodes in all.
    #[inline]
    pub(crate) fn inodes_count(&self) -> u32 {
        self.size.inodes()
    }

    /// Returns whether all metadata carries a crc32c.
    #[inline]
    pub(crate) fn metadata_csum(&self) -> bool {
        self.csum_seed.is_some()
    }

    /// Returns whether groups may be uninitialised, so that their flags and `itable_unused` are
    /// valid.
    #[inline]
    pub(crate) fn uninit_groups(&self) -> bool {
        self.features.group_csum()
    }

    /// The largest directory in bytes: as in Linux 2 GiB unless `large_dir` is set, and at most the
    /// volume's size, as each of its blocks is a block of its own.
    pub(crate) fn max_dir_bytes(&self) -> u64 {
        let volume = self.end().get() << self.block_size.log2();
        if self.features.has_incompat(Incompat::LARGEDIR) {
            volume
        } else {
            volume.min(i32::MAX as u64)
        }
    }

    /// Returns whether an inode's block count may use 48 bits, and blocks as its unit
    /// (`huge_file`).
    #[inline]
    pub(crate) fn huge_file(&self) -> bool {
        self.features.has_ro_compat(RoCompat::HUGE_FILE)
    }

    /// The block that holds the primary superblock, and the offset in it.
    pub(crate) fn superblock_location(&self) -> (Pblk, usize) {
        let bytes = self.block_size.bytes_u64();
        let inside = SUPERBLOCK_OFFSET % bytes;
        (Pblk::new(SUPERBLOCK_OFFSET / bytes), index(inside))
    }

    /// All groups, in order.
    pub(crate) fn all_groups(&self) -> impl Iterator<Item = Group> + use<> {
        (0..self.groups()).map(Group::new)
    }

    /// Returns whether `len` blocks from `start`, at least one, lie within the file system.
    #[inline]
    pub(crate) fn contains(&self, start: Pblk, len: Blocks) -> bool {
        !len.is_zero()
            && start >= self.first_data_block
            && start
                .checked_add(len.get())
                .is_some_and(|end| end <= self.end())
    }

    /// The group of block `p` and the block's index in it, or `None` outside of the file system.
    #[inline]
    pub(crate) fn group_of_block(&self, p: Pblk) -> Option<(Group, u32)> {
        if p >= self.end() {
            return None;
        }
        let at = p.distance_from(self.first_data_block)?;
        let per_group = u64::from(self.blocks_per_group);
        let group = u32::try_from(at / per_group).ok()?;
        let index = u32::try_from(at % per_group).ok()?;
        Some((Group::new(group), index))
    }

    /// The first block of `group`. For a group past the last: past the end.
    #[inline]
    pub(crate) fn group_start(&self, group: Group) -> Pblk {
        // 2^32 groups of 2^19 blocks at most: no overflow.
        let offset = u64::from(group.get()) * u64::from(self.blocks_per_group);
        self.first_data_block.plus(offset)
    }

    /// Blocks of `group`: fewer in the last, none past it.
    #[inline]
    pub(crate) fn group_blocks(&self, group: Group) -> u32 {
        // No distance: the group is past the last.
        let left = self
            .end()
            .distance_from(self.group_start(group))
            .unwrap_or_default();
        u32::try_from(left).map_or(self.blocks_per_group, |left| {
            left.min(self.blocks_per_group)
        })
    }

    /// The flex group of `group`.
    #[inline]
    pub(crate) fn flex_of(&self, group: Group) -> u32 {
        group.get() >> self.flex_bits
    }

    /// Number of flex groups.
    pub(crate) fn flex_groups(&self) -> u32 {
        let last = self.groups() - 1;
        (last >> self.flex_bits) + 1
    }

    /// The group of inode `ino` and its index there, or `None` past the last inode.
    #[inline]
    pub(crate) fn group_of_inode(&self, ino: Ino) -> Option<(Group, u32)> {
        if ino.get() > self.inodes_count() {
            return None;
        }
        let at = ino.get() - 1;
        Some((
            Group::new(at / self.inodes_per_group),
            at % self.inodes_per_group,
        ))
    }

    /// The inode at `index` of `group`, or `None` past the last.
    pub(crate) fn inode_at(&self, group: Group, index: u32) -> Option<Ino> {
        let raw = group
            .get()
            .checked_mul(self.inodes_per_group)?
            .checked_add(index)?
            .checked_add(1)?;
        Ino::new(raw).filter(|ino| ino.get() <= self.inodes_count())
    }

    /// Returns whether directory entries may lead to `ino`: the root, or an existing inode that is
    /// not reserved.
    #[inline]
    pub(crate) fn is_user_inode(&self, ino: Ino) -> bool {
        (ino == Ino::ROOT || ino.get() >= self.first_inode) && ino.get() <= self.inodes_count()
    }

    /// Returns whether `group` starts with a superblock and the descriptor table.
    pub(crate) fn has_superblock(&self, group: Group) -> bool {
        self.superblock.has_backup(group)
    }

    /// Blocks at the start of `group` that hold superblock, descriptors and the room for their
    /// growth.
    pub(crate) fn head_blocks(&self, group: Group) -> u32 {
        let superblock = self.has_superblock(group);
        let per_block = self.descs_per_block();
        let (meta_group, index) = (group.get() / per_block, group.get() % per_block);
        let descriptors = match self.first_meta_bg {
            // A copy in the second group of a meta group, and one in its last.
            Some(first) if meta_group >= first => u32::from(index <= 1 || index == per_block - 1),
            _ if superblock => self
                .tabled_desc_blocks()
                .saturating_add(self.reserved_gdt_blocks),
            _ => 0,
        };
        let before = u32::from(superblock) + exact_u32(self.boot_blocks(group));
        before
            .saturating_add(descriptors)
            .min(self.group_blocks(group))
    }

    /// The geometry at the mount, from which that of each later size follows.
    pub(crate) fn geometry_at_mount(&self) -> Geometry {
        Geometry::of(&self.superblock)
    }

    /// Descriptors of a block, which are the groups of a meta group.
    fn descs_per_block(&self) -> u32 {
        exact_u32((self.block_size.bytes() / self.desc_size) as u64)
    }

    /// Returns whether `ino` is one of the file system's own: the journal, the orphan file, a file
    /// of quotas. Some have a number as users' inodes do.
    pub(crate) fn is_internal(&self, ino: Ino) -> bool {
        let files = [self.orphan_file_inode, self.journal_inode];
        files.contains(&Some(ino)) || self.quota_inodes.contains(&Some(ino))
    }

    /// The location of `group`'s descriptor, in the table or in its meta group: block, and offset
    /// in it.
    pub(crate) fn desc_location(&self, group: Group) -> (Pblk, usize) {
        let per_block = self.descs_per_block();
        let (table, index) = (group.get() / per_block, group.get() % per_block);
        // Without `meta_bg` the table goes on into the blocks reserved for it as a mount grows.
        let block = match self.first_meta_bg {
            Some(first_meta_bg) if table >= first_meta_bg => {
                let first = Group::new(group.get() - index);
                let superblock = u64::from(self.has_superblock(first)) + self.boot_blocks(first);
                self.group_start(first).plus(superblock)
            }
            _ => self.descriptor_start.plus(table.into()),
        };
        (block, index as usize * self.desc_size)
    }

    /// Descriptor blocks behind the superblock and each copy of it: all, or with `meta_bg` those
    /// before the first meta group that has its own.
    fn tabled_desc_blocks(&self) -> u32 {
        self.first_meta_bg
            .map_or(self.desc_blocks, |first| first.min(self.desc_blocks))
    }

    /// Blocks before the superblock: the boot block, where `group` begins with it.
    fn boot_blocks(&self, group: Group) -> u64 {
        let start = self.descriptor_start.distance_from(self.first_data_block);
        u64::from(group.get() == 0 && start.is_some_and(|start| start > 1))
    }
}

/// The inodes of the files of quotas, if the volume counts usage.
fn quota_inodes(sb: &Superblock) -> [Option<Ino>; 3] {
    let counts = sb.features().has_ro_compat(RoCompat::QUOTA);
    QuotaKind::ALL.map(|kind| kind.file_of(sb).filter(|_| counts))
}
