//! Reading the descriptor table at mount.

use extant_sync::atomic::AtomicU32;

use extant_disk::damage::{GroupDamage, GroupPart};
use extant_disk::group_desc::{GroupChecksum, GroupDesc, GroupFlags};
use extant_jbd2::BlockCache;
use extant_units::{Blocks, Group, Pblk, exact_u32};

use super::group_cells::{GroupCell, GroupCells};
use super::group_state::LostSpace;
use super::group_table::GroupTable;
use crate::state::volume::{Layout, SystemZones, Zone};
use crate::types::error::{Error, Location, Result};

/// Memory for the free maps of all groups.
const MAP_BYTES: u32 = 32 << 20;
/// Blocks of the descriptor table that are read at once.
const READAHEAD: u32 = 64;

/// Sums over all groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Totals {
    /// Free blocks, in whole clusters.
    pub(crate) free_blocks: u64,
    /// Free inodes.
    pub(crate) free_inodes: u64,
    /// Directories.
    pub(crate) dirs: u64,
}

impl GroupTable {
    /// Reads and checks every group descriptor. `more` are further blocks of the format (the
    /// journal's); with the descriptors' they become the system zones. For a volume that is only
    /// read, descriptors may have bad checksums and wrong counts, as in Linux: they are logged.
    ///
    /// # Errors
    /// A descriptor that cannot be read, has a bad checksum, counts more than its group has, or
    /// points outside of the volume or into another part of the format. The error names the group.
    pub(crate) fn load(
        cache: &BlockCache,
        layout: &Layout,
        more: Vec<Zone>,
        read_only: bool,
    ) -> Result<(Self, SystemZones, Totals)> {
        let mut totals = Totals::default();
        let mut parts = more;
        let mut groups = Vec::new();
        let mut table_block: Option<(Pblk, extant_jbd2::BlockData)> = None;
        for group in layout.all_groups() {
            let (at, offset) = layout.desc_location(group);
            let bytes = match &table_block {
                Some((loaded, bytes)) if *loaded == at => bytes,
                _ => {
                    let index = groups.len() / (layout.block_size.bytes() / layout.desc_size);
                    if index.is_multiple_of(READAHEAD as usize) {
                        // A hint: with `meta_bg` the table ends before the groups do.
                        let left = layout.desc_blocks.saturating_sub(exact_u32(index as u64));
                        cache.readahead(at, left.min(READAHEAD));
                    }
                    let bytes = cache.read_unchecked(at)?.data();
                    &table_block.insert((at, bytes)).1
                }
            };
            let bytes = bytes
                .get(offset..offset + layout.desc_size)
                .unwrap_or_default();
            let desc = parse(layout, group, bytes).or_else(|error| match read_only {
                true => parse_damaged(layout, group, bytes, &error),
                false => Err(error),
            })?;
            claim(layout, group, &desc, &mut parts);
            totals.free_blocks += u64::from(desc.free_blocks) << layout.cluster_bits;
            totals.free_inodes += u64::from(desc.free_inodes);
            totals.dirs += u64::from(desc.used_dirs);
            groups.push(GroupCell::new(desc));
        }
        debug_assert_eq!(groups.len(), layout.groups() as usize);
        debug_assert!(
            totals.free_blocks <= layout.in_whole_clusters(layout.end().get()),
            "{totals:?}"
        );
        let zones = SystemZones::build(parts, layout.end())
            .map_err(|overlap| overlap_error(layout, overlap.at))?;
        let map_bytes = layout.clusters_per_group().div_ceil(8).max(1);
        let table = Self {
            cells: GroupCells::new(groups),
            loaded: AtomicU32::new(0),
            map_budget: (MAP_BYTES / map_bytes).max(64),
            sweep: AtomicU32::new(0),
            lost: LostSpace::default(),
        };
        Ok((table, zones, totals))
    }
}

/// Decodes the descriptor of `group` and checks it against the layout.
pub(crate) fn parse(layout: &Layout, group: Group, bytes: &[u8]) -> Result<GroupDesc> {
    let location = Location::GroupDesc(group);
    let mut desc = GroupDesc::parse(bytes, group, &layout.group_checksum)
        .map_err(|error| Error::corrupt(location, error))?;
    if !layout.uninit_groups() {
        // Without a checksum of descriptors these fields mean nothing.
        desc.flags = GroupFlags::ITABLE_ZEROED;
        desc.itable_unused = 0;
    }
    if let Some(damage) = too_many(layout, group, &desc) {
        return Err(Error::corrupt(location, damage));
    }
    check_parts(layout, group, &desc)?;
    Ok(desc)
}

/// A count of `desc` that is larger than the group.
fn too_many(layout: &Layout, group: Group, desc: &GroupDesc) -> Option<GroupDamage> {
    let (clusters, inodes) = (layout.group_clusters(group), layout.inodes_per_group);
    let (free, dirs, unused) = (desc.free_inodes, desc.used_dirs, desc.itable_unused);
    if desc.free_blocks > clusters {
        let (free, blocks) = (desc.free_blocks, clusters);
        Some(GroupDamage::TooManyFreeBlocks { free, blocks })
    } else if free > inodes {
        Some(GroupDamage::TooManyFreeInodes { free, inodes })
    } else if dirs > inodes {
        Some(GroupDamage::TooManyDirectories { dirs, inodes })
    } else if unused > inodes {
        Some(GroupDamage::TooManyUnused { unused, inodes })
    } else {
        None
    }
}

/// Decodes a descriptor that is wrong, as `error` says, for a volume that is only read. The
/// locations of the group's parts must be valid; its counts are cut to what is possible; tables
/// marked as never used are read all the same.
fn parse_damaged(layout: &Layout, group: Group, bytes: &[u8], error: &Error) -> Result<GroupDesc> {
    let mut desc = GroupDesc::parse(bytes, group, &GroupChecksum::None)
        .map_err(|error| Error::corrupt(Location::GroupDesc(group), error))?;
    check_parts(layout, group, &desc)?;
    desc.flags
        .remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
    desc.itable_unused = 0;
    desc.free_blocks = desc.free_blocks.min(layout.group_clusters(group));
    desc.free_inodes = desc.free_inodes.min(layout.inodes_per_group);
    desc.used_dirs = desc.used_dirs.min(layout.inodes_per_group);
    tracing::warn!("{error}: mounted read-only nevertheless; e2fsck must check the volume");
    Ok(desc)
}

fn check_parts(layout: &Layout, group: Group, desc: &GroupDesc) -> Result<()> {
    for (start, len, part) in pieces(layout, desc) {
        if !layout.contains(start, Blocks::new(u64::from(len))) {
            let damage = GroupDamage::Outside { part, start };
            return Err(Error::corrupt(Location::GroupDesc(group), damage));
        }
    }
    Ok(())
}

/// The blocks that `desc` points to.
fn pieces(layout: &Layout, desc: &GroupDesc) -> [(Pblk, u32, GroupPart); 3] {
    [
        (desc.block_bitmap, 1, GroupPart::BlockBitmap),
        (desc.inode_bitmap, 1, GroupPart::InodeBitmap),
        (
            desc.inode_table,
            layout.itable_blocks,
            GroupPart::InodeTable,
        ),
    ]
}

/// Adds everything of the format that lies in `group`, or that its descriptor points to, to
/// `parts`.
pub(crate) fn claim(layout: &Layout, group: Group, desc: &GroupDesc, parts: &mut Vec<Zone>) {
    let mut add = |start: Pblk, len: u32| {
        let zone = Zone {
            start,
            end: start.saturating_add(u64::from(len)),
            owner: None,
        };
        // Flex groups lay the same part of many groups side by side: merging keeps the list short
        // as it grows.
        match parts.last_mut() {
            Some(last) if last.owner.is_none() && last.end == zone.start => last.end = zone.end,
            _ => parts.push(zone),
        }
    };
    add(layout.group_start(group), layout.head_blocks(group));
    for (start, len, _) in pieces(layout, desc) {
        add(start, len);
    }
}

fn overlap_error(layout: &Layout, at: Pblk) -> Error {
    let group = layout
        .group_of_block(at)
        .map_or_else(Group::default, |(group, _)| group);
    Error::corrupt(
        Location::GroupDesc(group),
        GroupDamage::SharedBlock { block: at },
    )
}
