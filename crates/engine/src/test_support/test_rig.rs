//! For unit tests: the allocators over a real image, without the rest of the file system; and
//! `dumpe2fs` as the second opinion.

use std::ops::Range;
use std::sync::Arc;

use extant_blockdev::{BlockDevice, FileDevice, OpenMode};
use extant_disk::superblock::{SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use extant_jbd2::{BlockCache, Config, Journal};
use extant_testkit::{Cmd, Image};
use extant_units::{BlockSize, Blocks, DevOff};

use crate::inode::{InodeCore, InodeFormat};
use crate::state::alloc::{Allocator, Parts, SpaceCounts};
use crate::state::group::{GroupTable, Totals};
use crate::state::volume::{Layout, Stats, SystemZones};
use crate::types::error::Result;

/// The allocators over an image.
pub(crate) struct Rig {
    pub(crate) dev: Arc<dyn BlockDevice>,
    pub(crate) layout: Layout,
    pub(crate) cache: Arc<BlockCache>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) groups: Arc<GroupTable>,
    pub(crate) zones: Arc<SystemZones>,
    pub(crate) totals: Totals,
    pub(crate) stats: Arc<Stats>,
    pub(crate) alloc: Allocator,
}

impl Rig {
    /// Opens `image`, whose journal is ignored.
    pub(crate) fn open(image: &Image) -> Result<Self> {
        let dev = FileDevice::open(image.path(), OpenMode::ReadWrite).unwrap();
        Self::over(Arc::new(dev))
    }

    /// The same over any device.
    pub(crate) fn over(dev: Arc<dyn BlockDevice>) -> Result<Self> {
        let mut bytes = [0; SUPERBLOCK_SIZE];
        dev.read_at(DevOff::new(SUPERBLOCK_OFFSET), &mut bytes)?;
        let sb = Superblock::parse(&bytes).unwrap();
        let layout = Layout::new(&sb);
        let cache = BlockCache::new(Arc::clone(&dev), layout.block_size, 8 << 20);
        let (groups, zones, totals) = GroupTable::load(&cache, &layout, Vec::new(), false)?;
        let (groups, zones) = (Arc::new(groups), Arc::new(zones));
        let journal = Journal::without_log(Arc::clone(&cache), Config::default());
        let stats = Arc::new(Stats::default());
        let counts = Arc::new(SpaceCounts::new(
            Blocks::new(layout.end().get()),
            Blocks::new(totals.free_blocks),
            layout.root_reserved,
            totals.free_inodes,
            totals.dirs,
        ));
        let alloc = Allocator::new(Parts {
            failpoint: extant_failpoint::ActiveFailpoint::default(),
            layout: layout.clone(),
            cache: Arc::clone(&cache),
            discard: None,
            groups: Arc::clone(&groups),
            zones: Arc::clone(&zones),
            counts,
            stats: Arc::clone(&stats),
        });
        Ok(Self {
            dev,
            layout,
            cache,
            journal,
            groups,
            zones,
            totals,
            stats,
            alloc,
        })
    }
}

/// A group as `dumpe2fs` shows it.
#[derive(Debug, Default)]
pub(crate) struct DumpedGroup {
    pub(crate) blocks: Range<u64>,
    pub(crate) block_bitmap: u64,
    pub(crate) inode_bitmap: u64,
    pub(crate) inode_table: Range<u64>,
    pub(crate) free_blocks: u32,
    pub(crate) free_inodes: u32,
    pub(crate) dirs: u32,
    pub(crate) unused_inodes: u32,
    pub(crate) flags: String,
    pub(crate) backup: bool,
    pub(crate) free: Vec<Range<u64>>,
    pub(crate) free_inode_numbers: Vec<Range<u64>>,
}

/// All groups of `image` as `dumpe2fs` sees them.
pub(crate) fn dump(image: &Image) -> Vec<DumpedGroup> {
    let output = Cmd::new("dumpe2fs").arg(image.path()).ok().unwrap();
    assert!(
        !output.out.contains("EXPECTED"),
        "bad checksums: {}",
        output.out
    );
    let mut groups: Vec<DumpedGroup> = Vec::new();
    for line in output.out.lines() {
        let group_line = line
            .strip_prefix("Group ")
            .and_then(|rest| rest.split_once(": (Blocks "));
        if let Some((_, blocks)) = group_line {
            let flags = blocks.rsplit_once('[').map_or("", |(_, flags)| flags);
            groups.push(DumpedGroup {
                blocks: range(blocks.split_once(')').unwrap().0),
                flags: flags.to_owned(),
                ..DumpedGroup::default()
            });
            continue;
        }
        let (Some(group), line) = (groups.last_mut(), line.trim()) else {
            continue;
        };
        if let Some(rest) = line.strip_prefix("Block bitmap at ") {
            group.block_bitmap = number(rest);
            if let Some((_, rest)) = rest.split_once("Inode bitmap at ") {
                group.inode_bitmap = number(rest);
            }
        } else if let Some(rest) = line.strip_prefix("Inode bitmap at ") {
            group.inode_bitmap = number(rest);
        } else if let Some(rest) = line.strip_prefix("Inode table at ") {
            group.inode_table = range(rest.split(' ').next().unwrap());
        } else if line.contains("superblock at") {
            group.backup = true;
        } else if let Some(rest) = line.strip_prefix("Free blocks: ") {
            group.free = ranges(rest);
        } else if let Some(rest) = line.strip_prefix("Free inodes: ") {
            group.free_inode_numbers = ranges(rest);
        } else if line.contains(" free blocks, ") {
            let mut counts = line
                .split(", ")
                .map(|part| u32::try_from(number(part)).unwrap());
            group.free_blocks = counts.next().unwrap();
            group.free_inodes = counts.next().unwrap();
            group.dirs = counts.next().unwrap();
            group.unused_inodes = counts.next().unwrap_or(0);
        }
    }
    groups
}

fn number(text: &str) -> u64 {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap()
}

fn range(text: &str) -> Range<u64> {
    match text.split_once('-') {
        Some((first, last)) => number(first)..number(last) + 1,
        None => number(text)..number(text) + 1,
    }
}

fn ranges(text: &str) -> Vec<Range<u64>> {
    text.split(", ")
        .filter(|part| !part.is_empty())
        .map(range)
        .collect()
}

/// An inode's fields before anything is set, with room for wide times.
pub(crate) fn blank_core() -> InodeCore {
    let format = InodeFormat {
        inode_size: 256,
        block_size: BlockSize::KIB4,
        huge_file: true,
        wide_blocks: true,
        large_dir: false,
        csum_seed: None,
    };
    InodeCore::blank(&format, 32)
}
