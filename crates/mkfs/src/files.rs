//! The inodes that a new volume has, and where their blocks lie.
//!
//! In the order in which their blocks are taken: the root directory, lost+found, the resize inode,
//! the journal, the block of multiple mount protection, the files of quotas, the orphan file.

use std::ops::Range;

use extant_disk::extent::{MAX_WRITTEN, ROOT_CAPACITY};
use extant_disk::features::{Compat, Incompat};
use extant_disk::geometry::Geometry;
use extant_disk::orphan;

use crate::error::{Error, Result};
use crate::file_map::Map;
use crate::geometry::FIRST_INO;
use crate::options::Options;
use crate::quotas::{QuotaFile, Quotas};
use crate::tables::Ground;

/// The root directory's inode.
pub(crate) const ROOT_INO: u32 = 2;
/// The resize inode.
pub(crate) const RESIZE_INO: u32 = 7;
/// The journal's inode.
pub(crate) const JOURNAL_INO: u32 = 8;
/// The inode of lost+found: the first that is not the format's own.
pub(crate) const LOST_FOUND_INO: u32 = FIRST_INO;
/// Numbers of blocks that an inode holds itself.
const DIRECT: u64 = 12;
/// Bytes that lost+found has room for at once, in at most twelve blocks.
const LOST_FOUND_BYTES: u64 = 16 * 1024;
/// The least and the most blocks of a journal.
const JOURNAL_BLOCKS: Range<u64> = 1024..10_240_001;
/// The area for fast commits has a block for so many of the log.
const LOG_BLOCKS_PER_FAST: u64 = 64;

/// The inodes of a new volume.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Files {
    pub(crate) root: Map,
    pub(crate) lost_found: Map,
    /// The double indirect block of the resize inode.
    pub(crate) resize: Option<u64>,
    pub(crate) journal: Option<Map>,
    pub(crate) mmp: Option<u64>,
    pub(crate) quotas: Vec<QuotaFile>,
    pub(crate) orphans: Option<Map>,
}

impl Files {
    /// Allocates all of them. `journal` is the journal's length in blocks.
    pub(crate) fn allocate(
        ground: &mut Ground<'_>,
        journal: u64,
        wanted: &Quotas,
        bytes: u64,
    ) -> Result<Self> {
        let geometry = ground.geometry;
        let features = geometry.features;
        let no_room = |what| Error::TooSmall { bytes, what };
        let root = allocate(ground, goal_of(geometry, ROOT_INO), 1);
        let root = root.ok_or(no_room("the root directory"))?;
        let lost_found = allocate_directory(ground, lost_found_blocks(geometry));
        let lost_found = lost_found.ok_or(no_room("lost+found"))?;
        let mut resize = None;
        if features.has_compat(Compat::RESIZE_INODE) {
            // Behind the tables, if those of group 0 alone lie in front of it.
            let table = u64::from(geometry.itable_blocks);
            let goal = geometry.superblock_block() + geometry.super_blocks() + 1 + table;
            let block = ground.take_one(goal);
            resize = Some(block.ok_or(no_room("the resize inode"))?);
        }
        let mut log = None;
        if journal > 0 {
            let goal = if features.has_incompat(Incompat::EXTENTS) {
                middle(ground)
            } else {
                goal_of(geometry, JOURNAL_INO)
            };
            log = Some(allocate(ground, goal, journal).ok_or(no_room("the journal"))?);
        }
        let mut mmp = None;
        if features.has_incompat(Incompat::MMP) {
            let block = ground.take_one(geometry.first_block());
            mmp = Some(block.ok_or(no_room("the block of multiple mount protection"))?);
        }
        let quotas = wanted.allocate(ground, [&root, &lost_found], bytes)?;
        let mut orphans = None;
        if features.has_compat(Compat::ORPHAN_FILE) {
            let goal = goal_of(geometry, orphan_ino(&quotas));
            let map = allocate(ground, goal, orphan_blocks(geometry));
            orphans = Some(map.ok_or(no_room("the orphan file"))?);
        }
        Ok(Self {
            root,
            lost_found,
            resize,
            journal: log,
            mmp,
            quotas,
            orphans,
        })
    }

    /// Blocks of all of them, in whole clusters, but for those of the resize inode beside its
    /// double indirect block.
    pub(crate) fn blocks(&self, geometry: &Geometry) -> u64 {
        let maps = [
            Some(&self.root),
            Some(&self.lost_found),
            self.journal.as_ref(),
            self.orphans.as_ref(),
        ];
        let quotas = self.quotas.iter().map(|file| &file.map);
        let maps = maps.into_iter().flatten().chain(quotas);
        let single = u64::from(self.resize.is_some()) + u64::from(self.mmp.is_some());
        maps.map(|map| map.blocks(geometry)).sum::<u64>() + single * geometry.cluster_blocks()
    }

    /// The orphan file's inode: the first that is free.
    pub(crate) fn orphan_ino(&self) -> u32 {
        orphan_ino(&self.quotas)
    }

    /// The last inode in use.
    pub(crate) fn last_inode(&self) -> u32 {
        match self.orphans {
            Some(_) => self.orphan_ino(),
            None => self.orphan_ino() - 1,
        }
    }
}

/// The first inode behind lost+found and the file of projects, which no number is reserved for.
fn orphan_ino(quotas: &[QuotaFile]) -> u32 {
    let last = quotas.iter().map(|file| file.ino).max();
    last.map_or(LOST_FOUND_INO, |last| last.max(LOST_FOUND_INO)) + 1
}

/// The block from which blocks for inode `ino` are looked for: that of its flex group.
fn goal_of(geometry: &Geometry, ino: u32) -> u64 {
    let group = (ino - 1) / geometry.inodes_per_group;
    geometry.group_blocks(geometry.flex_start(group)).start
}

/// The block from which the journal is looked for: that of the emptiest group in the middle of the
/// volume, so that no block is far from it.
fn middle(ground: &Ground<'_>) -> u64 {
    let geometry = ground.geometry;
    let free = |group| ground.free_as_counted(group);
    let blocks = geometry.blocks - geometry.first_block();
    let mut group = geometry.group_of(blocks / 2);
    let last = geometry.groups - 1;
    let flex = 1_u32 << geometry.log_groups_per_flex;
    let start = if flex > 1 && group > flex {
        group = geometry.flex_start(group);
        while group <= last && free(group) == 0 {
            group += 1;
        }
        if group > last {
            group = 0;
        }
        group
    } else {
        group.saturating_sub(1)
    };
    let end = (group + 1).min(last);
    let mut best = start;
    for other in start + 1..=end {
        if free(other) > free(best) {
            best = other;
        }
    }
    geometry.group_blocks(best).start
}

/// Blocks of lost+found: two at least, so that one of them is empty. With `inline_data` one less,
/// as mke2fs has it there.
fn lost_found_blocks(geometry: &Geometry) -> u64 {
    let inside = geometry.features.has_incompat(Incompat::INLINE_DATA);
    let blocks = LOST_FOUND_BYTES / geometry.block_size.bytes_u64();
    blocks.clamp(2, DIRECT) - u64::from(inside)
}

/// Blocks of the orphan file: for volumes of 512 MiB to 8 GiB (blocks of 4 KiB) in proportion, in
/// whole clusters. mke2fs makes as many where a cluster has more than Linux takes.
fn orphan_blocks(geometry: &Geometry) -> u64 {
    let blocks = match geometry.blocks {
        0..=0x1_FFFF => 32,
        blocks @ 0x2_0000..=0x1F_FFFF => blocks / 4096,
        _ => orphan::MAX_BLOCKS,
    };
    geometry.in_whole_clusters(blocks).min(orphan::MAX_BLOCKS)
}

/// The journal's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JournalSize {
    /// All of them; zero where there is no room for a journal.
    pub(crate) blocks: u64,
    /// Those of the area for fast commits, at its end.
    pub(crate) fast_commits: u32,
}

impl JournalSize {
    /// No journal.
    pub(crate) const NONE: Self = Self {
        blocks: 0,
        fast_commits: 0,
    };

    /// The size that `options` ask for, or that the volume's calls for.
    pub(crate) fn of(geometry: &Geometry, options: &Options) -> Result<Self> {
        let log = journal_blocks(geometry, options.journal_mib)?;
        if !geometry.features.has_compat(Compat::FAST_COMMIT) {
            return match options.fast_commit_kib {
                Some(_) => Err(Error::Conflict(
                    "an area for fast commits needs fast_commit",
                )),
                None => Ok(Self {
                    blocks: log,
                    fast_commits: 0,
                }),
            };
        }
        if log == 0 {
            return Ok(Self::NONE);
        }
        let kib = u64::from(options.fast_commit_kib.unwrap_or(0));
        let fast = match (kib << 10) >> geometry.block_size.log2() {
            0 => usual_journal(geometry).max(JOURNAL_BLOCKS.start) / LOG_BLOCKS_PER_FAST,
            blocks => blocks,
        };
        let fast_commits = u32::try_from(fast).ok().filter(|_| fast <= log);
        let fast_commits = fast_commits.ok_or_else(|| {
            let why = "it has at most as many blocks as the log in front of it";
            Error::bad("the area for fast commits in KiB", kib, why)
        })?;
        Ok(Self {
            blocks: log + fast,
            fast_commits,
        })
    }
}

/// Blocks of the journal that the volume's size calls for; zero where there is no room for one.
fn usual_journal(geometry: &Geometry) -> u64 {
    const KI: u64 = 1024;
    match geometry.blocks {
        0..2048 => 0,
        2048..0x8000 => 1024,
        blocks if blocks < 256 * KI => 4096,
        blocks if blocks < 512 * KI => 8192,
        blocks if blocks < 4096 * KI => 16384,
        blocks if blocks < 8192 * KI => 32768,
        blocks if blocks < 16384 * KI => 65536,
        blocks if blocks < 32768 * KI => 131_072,
        _ => 262_144,
    }
}

/// Blocks of the journal but for an area for fast commits: `mib`, or the usual ones.
fn journal_blocks(geometry: &Geometry, mib: Option<u32>) -> Result<u64> {
    if !geometry.features.has_compat(Compat::HAS_JOURNAL) {
        return match mib {
            Some(_) => Err(Error::Conflict("a journal's size needs has_journal")),
            None => Ok(0),
        };
    }
    let Some(mib) = mib else {
        return Ok(usual_journal(geometry));
    };
    let blocks = (u64::from(mib) << 20) >> geometry.block_size.log2();
    if !JOURNAL_BLOCKS.contains(&blocks) {
        let why = "a journal has from 1024 to 10240000 blocks";
        return Err(Error::bad("the journal's size in MiB", mib, why));
    }
    Ok(blocks)
}

/// Takes `blocks` blocks from `goal` on for the data of a file, and what its map needs. Clusters
/// that have more blocks than an extent are of use for short files only.
fn allocate(ground: &mut Ground<'_>, goal: u64, blocks: u64) -> Option<Map> {
    if !ground.geometry.features.has_incompat(Incompat::EXTENTS) {
        return allocate_by_block(ground, goal, blocks);
    }
    let mut map = Map::default();
    let (mut goal, mut left) = (goal, blocks);
    let cluster = ground.geometry.cluster_blocks();
    let most = (u64::from(MAX_WRITTEN) / cluster * cluster).max(cluster);
    while left > 0 {
        let run = ground.free_run(goal)?;
        let len = (run.end - run.start).min(left).min(most);
        ground.take_clusters(run.start, len);
        map.push(run.start..run.start + len);
        (goal, left) = (run.start + len, left - len);
        if map.runs.len() > usize::from(ROOT_CAPACITY) && map.nodes.is_empty() {
            // The first node lies before the data.
            let goal = map.before_first(ground.geometry)?;
            map.nodes.push(ground.take_one(goal)?);
        }
    }
    map.take_nodes(ground)?;
    assert_eq!(
        map.data_blocks(),
        blocks,
        "the runs are as long as the file"
    );
    Some(map)
}

/// The same for a file with a block map: each indirect block is taken when its first number is.
fn allocate_by_block(ground: &mut Ground<'_>, goal: u64, blocks: u64) -> Option<Map> {
    let per_block = ground.geometry.addresses_per_block();
    let mut map = Map::default();
    let mut goal = goal;
    for lblk in 0..blocks {
        for _ in 0..new_tables(lblk, per_block) {
            goal = ground.take_one(goal)?;
            map.nodes.push(goal);
        }
        goal = ground.take_one(goal)?;
        map.push(goal..goal + 1);
    }
    assert_eq!(map.data_blocks(), blocks, "each block of the file has one");
    Some(map)
}

/// How many indirect blocks a file needs for block `lblk` that it did not need before.
pub(crate) fn new_tables(lblk: u64, per_block: u64) -> u64 {
    let Some(single) = lblk.checked_sub(DIRECT) else {
        return 0;
    };
    let Some(double) = single.checked_sub(per_block) else {
        return u64::from(single == 0);
    };
    if double >= per_block * per_block {
        let triple = double - per_block * per_block;
        let whole = |every: u64| u64::from(triple.is_multiple_of(every));
        return u64::from(triple == 0) + whole(per_block * per_block) + whole(per_block);
    }
    u64::from(double == 0) + u64::from(double.is_multiple_of(per_block))
}

/// Allocates lost+found, which grows a block at a time.
fn allocate_directory(ground: &mut Ground<'_>, blocks: u64) -> Option<Map> {
    allocate(ground, goal_of(ground.geometry, LOST_FOUND_INO), blocks)
}

#[cfg(test)]
mod tests {
    use super::new_tables;

    #[test]
    fn indirect_blocks_are_counted_where_they_begin() {
        for (lblk, tables) in [
            (11, 0),
            (12, 1),
            (13, 0),
            (12 + 256, 2),
            (12 + 256 + 1, 0),
            (12 + 256 + 256, 1),
            (12 + 256 + 65536, 3),
            (12 + 256 + 65536 + 256, 1),
            (12 + 256 + 2 * 65536, 2),
        ] {
            assert_eq!(new_tables(lblk, 256), tables, "{lblk}");
        }
    }
}
