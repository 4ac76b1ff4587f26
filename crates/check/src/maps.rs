//! The maps of inodes: extent trees and block maps, every block of them claimed.
//!
//! # Invariants
//! No block is walked twice: the walk descends into a node, and keeps an extent, only if its blocks
//! had no owner before. This bounds the work on any image.

use std::mem::offset_of;

use extant_disk::csum::Crc32c;
use extant_disk::damage::{MapDamage, ReservedDamage};
use extant_disk::extent::{self, Expect, Extent, ExtentError, Index, Node, RawHeader};
use extant_disk::features::RoCompat;
use extant_disk::file_kind::FileKind;
use extant_disk::inode::{InodeCore, InodeError, InodeFlags};
use extant_disk::location::Location;
use extant_units::{BlockSize, Ino, Lblk, Pblk, at_most_u32};

use crate::error::Result;
use crate::findings::Findings;
use crate::remedy::Repair;
use crate::usage::Usage;
use crate::volume::Volume;

/// Entries by which the capacity of a node may fall short of its room.
const SPARE: u16 = 2;

/// Pointers in an inode that lead to data; the three behind them lead to blocks of pointers.
pub(crate) const DIRECT: usize = 12;

/// The content of a map.
#[derive(Default)]
pub(crate) struct Map {
    /// Runs of blocks in file order.
    pub(crate) runs: Vec<Extent>,
    /// Clusters claimed: of data, and of the map's own blocks.
    pub(crate) claimed: u64,
    /// The cluster in the file of the last block of data, and that on the volume.
    last_cluster: Option<(u64, u64)>,
    /// Other files may have blocks of its data.
    shares: bool,
}

/// Walks the map of one inode.
pub(crate) struct MapWalker<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) usage: &'a Usage,
    pub(crate) findings: &'a Findings,
    pub(crate) ino: Ino,
    pub(crate) generation: u32,
    /// Blocks, in order, that the inode may name although they have an owner: for the list of bad
    /// blocks.
    pub(crate) spare: &'a [u64],
}

impl MapWalker<'_> {
    /// The whole map of an inode that has one.
    pub(crate) fn walk(&self, core: &InodeCore) -> Result<Map> {
        let mut map = Map {
            shares: self.may_share(core),
            ..Map::default()
        };
        if core.flags.contains(InodeFlags::EXTENTS) {
            self.extents(&core.i_block, &mut map)?;
        } else {
            self.pointers(&core.i_block, &mut map)?;
            if map.claimed > 0 && self.needs_extents(core) {
                let place = Location::Inode(self.ino);
                self.findings.add(place, MapDamage::NoClusters);
            }
        }
        Ok(map)
    }

    /// Returns whether blocks of the inode's data may be others' too: those of users' files, on a
    /// volume with `shared_blocks`. The format's own files, directories and maps are written in
    /// place by whatever repairs them, so none of theirs is shared.
    fn may_share(&self, core: &InodeCore) -> bool {
        let sb = &self.volume.sb;
        sb.features().has_ro_compat(RoCompat::SHARED_BLOCKS)
            && sb.cluster_bits() == 0
            && self.ino.get() >= sb.first_inode()
            && FileKind::from_mode(core.mode) == Some(FileKind::Regular)
            && !self.is_own_file()
    }

    /// Returns whether the inode is one of the format's own files among the numbers of users.
    fn is_own_file(&self) -> bool {
        let raw = self.volume.sb.raw();
        let quotas = [
            &raw.usr_quota_inum,
            &raw.grp_quota_inum,
            &raw.prj_quota_inum,
        ];
        let mut own = quotas
            .into_iter()
            .chain([&raw.orphan_file_inum, &raw.journal_inum]);
        own.any(|number| number.get() == self.ino.get())
    }

    /// Returns whether the inode is a user's file or directory on a volume with `bigalloc`: Linux
    /// gives it no blocks by a block map.
    fn needs_extents(&self, core: &InodeCore) -> bool {
        let sb = &self.volume.sb;
        let of_users = self.ino == Ino::ROOT || self.ino.get() >= sb.first_inode();
        let has_data = matches!(
            FileKind::from_mode(core.mode),
            Some(FileKind::Regular | FileKind::Directory)
        );
        of_users && has_data && sb.features().has_ro_compat(RoCompat::BIGALLOC)
    }

    /// Claims blocks for the inode. Returns false, after a finding, if they do not lie in the file
    /// system or have another owner.
    pub(crate) fn claim(&self, first: Pblk, count: u32, map: &mut Map) -> bool {
        if !self.volume.holds(first, u64::from(count)) {
            let blocks = count;
            let damage = MapDamage::Outside { first, blocks };
            self.findings.add(Location::Inode(self.ino), damage);
            return false;
        }
        map.claimed += self.clusters(first, count);
        self.is_granted(self.usage.claim_clusters(first, u64::from(count)))
    }

    /// Clusters that `count` blocks from `first` on touch.
    fn clusters(&self, first: Pblk, count: u32) -> u64 {
        let bits = self.volume.sb.cluster_bits();
        let last = first.get() + u64::from(count) - 1;
        (last >> bits) - (first.get() >> bits) + 1
    }

    /// As [`MapWalker::claim`], for data at block `lblk` of the file, which several files have
    /// where the volume allows it. A cluster of the file is one on the volume, block by block; runs
    /// in one of them claim it once.
    fn claim_data(&self, lblk: Lblk, first: Pblk, count: u32, map: &mut Map) -> bool {
        let bits = self.volume.sb.cluster_bits();
        if bits > 0 && self.volume.holds(first, u64::from(count)) {
            return self.claim_in_clusters(lblk, first, count, map);
        }
        if !map.shares || !self.volume.holds(first, u64::from(count)) {
            return self.claim(first, count, map);
        }
        map.claimed += u64::from(count);
        self.is_granted(self.usage.share(first, u64::from(count)))
    }

    /// Returns false, after a finding, if a claim met a block of another owner.
    fn is_granted(&self, taken: Option<Pblk>) -> bool {
        if let Some(block) = taken {
            let place = Location::Inode(self.ino);
            self.findings.add(place, MapDamage::Shared { block });
        }
        taken.is_none()
    }

    /// [`MapWalker::claim_data`] where a cluster has several blocks.
    fn claim_in_clusters(&self, lblk: Lblk, first: Pblk, count: u32, map: &mut Map) -> bool {
        let bits = self.volume.sb.cluster_bits();
        let (of_file, of_volume) = (u64::from(lblk.get()) >> bits, first.get() >> bits);
        let inside = |block: u64| block & ((1 << bits) - 1);
        let known = map.last_cluster.filter(|last| last.0 == of_file);
        let elsewhere = known.is_some_and(|last| last.1 != of_volume);
        let again = known.is_none() && map.last_cluster.is_some_and(|last| last.1 == of_volume);
        if elsewhere || inside(lblk.get().into()) != inside(first.get()) {
            let damage = MapDamage::Cluster { lblk, first };
            self.findings.add(Location::Inode(self.ino), damage);
            return self.claim(first, count, map);
        }
        let last = u64::from(count) - 1;
        map.last_cluster = Some((
            (u64::from(lblk.get()) + last) >> bits,
            (first.get() + last) >> bits,
        ));
        if known.is_none() && !again {
            return self.claim(first, count, map);
        }
        if again {
            let damage = MapDamage::ClusterTwice { lblk, first };
            self.findings.add(Location::Inode(self.ino), damage);
        }
        // What lies behind the cluster that the run before it claimed.
        let next = (of_volume + 1) << bits;
        let here = at_most_u32(next - first.get());
        let rest = here >= count || self.claim(Pblk::new(next), count - here, map);
        rest && !again
    }

    /// Walks an extent tree, with a stack of its own.
    fn extents(&self, root: &[u8; 60], map: &mut Map) -> Result<()> {
        let anywhere = |_: Pblk, _: u32| true;
        let root = match Node::check_root(root, anywhere) {
            Ok(root) => root,
            Err(error) => {
                self.findings.add(Location::Inode(self.ino), error);
                return Ok(());
            }
        };
        if root.max() + SPARE < extent::ROOT_CAPACITY {
            let entries = root.max();
            let damage = MapDamage::RootCapacity { entries };
            self.findings.add_alone(Location::Inode(self.ino), damage);
        }
        let mut pending = Vec::new();
        self.node(&root, Expect::ROOT.end, map, &mut pending);
        let bs = self.volume.sb.block_size();
        let seed = self.volume.owner_seed(self.ino, self.generation);
        while let Some((index, expect)) = pending.pop() {
            if !self.claim(index.child, 1, map) {
                continue;
            }
            let place = Location::ExtentNode(self.ino, index.child);
            let mut block = self.volume.block(index.child)?;
            let known = self.wrong_depth(place, &mut block, &expect, seed)
                || self.wrong_checksum(place, &block, seed);
            let seed = if known { None } else { seed };
            match Node::check_block(&block, bs, seed, anywhere) {
                Ok(node) if node.max() + SPARE < extent::block_capacity(bs) => {
                    let entries = node.max();
                    self.findings
                        .add(place, MapDamage::NodeCapacity { entries });
                }
                Ok(node) => match node.agrees(&expect) {
                    Ok(()) => self.node(&node, expect.end, map, &mut pending),
                    Err(error) => self.findings.add(place, error),
                },
                Err(error) => self.findings.add(place, error),
            }
        }
        Ok(())
    }

    /// Reports a node of which only the checksum is wrong, and returns true.
    fn wrong_checksum(&self, place: Location, block: &[u8], seed: Option<Crc32c>) -> bool {
        let bs = self.volume.sb.block_size();
        let (Location::ExtentNode(ino, pblk), Some(seed)) = (place, seed) else {
            return false;
        };
        match extent::verify_checksum(block, seed) {
            Err(error @ ExtentError::BadChecksum { .. })
                if Node::check_block(block, bs, None, |_, _| true).is_ok() =>
            {
                let repair = || Repair::ExtentChecksum(ino, pblk);
                self.findings.add_repairable(place, error, repair);
                true
            }
            _ => false,
        }
    }

    /// Reports a node whose depth differs from the one that its parent implies. Then it also checks
    /// the checksum, stores the implied depth in `block`, so that the entries can be read, and
    /// returns true.
    fn wrong_depth(
        &self,
        place: Location,
        block: &mut [u8],
        expect: &Expect,
        seed: Option<Crc32c>,
    ) -> bool {
        let depth = offset_of!(RawHeader, depth);
        let stored = block.get(depth..).and_then(|rest| rest.first_chunk::<2>());
        let (Some(expected), Some(stored)) = (expect.depth, stored) else {
            return false;
        };
        let found = u16::from_le_bytes(*stored);
        if found == expected {
            return false;
        }
        self.findings
            .add(place, ExtentError::BadDepth { found, expected });
        if let Some(Err(error)) = seed.map(|seed| extent::verify_checksum(block, seed)) {
            self.findings.add(place, error);
        }
        if let Some(stored) = block.get_mut(depth..depth + 2) {
            stored.copy_from_slice(&expected.to_le_bytes());
        }
        true
    }

    /// Adds the extents of a leaf to `map`, or the children of an index node to `pending`, the
    /// first on top.
    fn node(&self, node: &Node<'_>, end: u64, map: &mut Map, pending: &mut Vec<(Index, Expect)>) {
        if node.depth() == 0 {
            for extent in node.extents() {
                if self.claim_data(extent.lblk, extent.pblk, extent.len, map) {
                    map.runs.push(extent);
                }
            }
            return;
        }
        let below = node.depth() - 1;
        for at in (0..node.len()).rev() {
            let Some(index) = node.index(at) else {
                continue;
            };
            let expect = Expect {
                depth: Some(below),
                first: Some(index.lblk),
                end: node.next_start(at, end),
            };
            pending.push((index, expect));
        }
    }

    /// The map of ext2 and ext3: twelve blocks, then one, two and three levels of pointers.
    fn pointers(&self, area: &[u8; 60], map: &mut Map) -> Result<()> {
        let per_block = (self.volume.sb.block_size().bytes() / 4) as u64;
        let mut lblk = 0;
        for (at, pointer) in words(area).enumerate() {
            let level = match at {
                0..DIRECT => 0,
                DIRECT => 1,
                13 => 2,
                _ => 3,
            };
            self.pointer(pointer, level, lblk, map)?;
            lblk += per_block.pow(level);
        }
        Ok(())
    }

    /// One pointer with `level` levels of pointers below it (at most three).
    fn pointer(&self, pointer: u32, level: u32, lblk: u64, map: &mut Map) -> Result<()> {
        if pointer == 0 {
            return Ok(());
        }
        let pblk = Pblk::new(u64::from(pointer));
        let Ok(start) = u32::try_from(lblk) else {
            self.findings
                .add(Location::Inode(self.ino), MapDamage::PastLargestFile);
            return Ok(());
        };
        if level == 0 && self.spare.binary_search(&pblk.get()).is_ok() {
            return Ok(());
        }
        if level == 0 {
            if self.claim_data(Lblk::new(start), pblk, 1, map) {
                push(&mut map.runs, Lblk::new(start), pblk);
            }
            return Ok(());
        }
        if !self.claim(pblk, 1, map) {
            return Ok(());
        }
        let block = self.volume.block(pblk)?;
        let span = ((block.len() / 4) as u64).pow(level - 1);
        for (at, below) in words(&block).enumerate() {
            self.pointer(below, level - 1, lblk + at as u64 * span, map)?;
        }
        Ok(())
    }
}

/// The blocks of an internal file, or `None` after a finding: of an inode that cannot be read, or
/// of a block that is not mapped, as a mount refuses it. Other faults of the map are not reported
/// here: the scan finds them again.
pub(crate) fn runs_of(
    volume: &Volume,
    ino: Ino,
    findings: &Findings,
) -> Result<Option<(Vec<Extent>, u32)>> {
    let (core, mut runs) = match map_of(volume, ino)? {
        Ok(found) => found,
        Err(error) => {
            findings.add(Location::Inode(ino), error);
            return Ok(None);
        }
    };
    let blocks = volume.sb.block_size().blocks_for(core.disk_size).get();
    if let Some(hole) = cut(&mut runs, blocks) {
        let damage = ReservedDamage::NotMapped { block: hole };
        findings.add(Location::Inode(ino), damage);
        return Ok(None);
    }
    Ok(Some((runs, core.generation)))
}

/// An inode and the blocks of its map, as far as it can be read.
pub(crate) fn map_of(
    volume: &Volume,
    ino: Ino,
) -> Result<Result<(InodeCore, Vec<Extent>), InodeError>> {
    let core = match volume.inode(ino)? {
        Ok(core) => core,
        Err(error) => return Ok(Err(error)),
    };
    let runs = runs_beside(volume, ino, &core, &Usage::empty(volume))?;
    Ok(Ok((core, runs)))
}

/// The blocks of the map of `core`, which is inode `ino`, without those that have an owner in
/// `usage`.
pub(crate) fn runs_beside(
    volume: &Volume,
    ino: Ino,
    core: &InodeCore,
    usage: &Usage,
) -> Result<Vec<Extent>> {
    let walker = MapWalker {
        volume,
        usage,
        findings: &Findings::new(0),
        ino,
        generation: core.generation,
        spare: &[],
    };
    let mut runs = walker.walk(core)?.runs;
    runs.retain(|run| volume.holds(run.pblk, u64::from(run.len)));
    Ok(runs)
}

/// Cuts runs behind the first `blocks` blocks of a file. Returns the first of these that has no
/// content: a hole, or unwritten. A file without a block has none at its beginning.
fn cut(runs: &mut Vec<Extent>, blocks: u64) -> Option<u64> {
    let mut end = 0;
    for run in runs.iter_mut() {
        if u64::from(run.lblk.get()) != end || run.unwritten {
            break;
        }
        let left = blocks - end;
        run.len = u32::try_from(left).map_or(run.len, |left| run.len.min(left));
        end += u64::from(run.len);
    }
    runs.retain(|run| run.len > 0 && run.end() <= blocks);
    (end < blocks || blocks == 0).then_some(end)
}

/// Bytes of the largest file that a map of this kind can express.
pub(crate) fn largest_file(bs: BlockSize, extents: bool) -> u64 {
    if extents {
        return (bs.bytes_u64() << 32) - 1;
    }
    let per_block = bs.bytes_u64() / 4;
    let blocks = 12 + per_block + per_block.pow(2) + per_block.pow(3);
    blocks * bs.bytes_u64()
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| u32::from_le_bytes(*word))
}

/// The blocks of a run of a map: where each is in the file, and on the volume. For runs that lie in
/// the file system; their logical blocks do, because neither kind of map reaches past 2^32 blocks.
pub(crate) fn blocks_of(run: &Extent) -> impl Iterator<Item = (Lblk, Pblk)> + use<> {
    let (lblk, pblk) = (run.lblk.get(), run.pblk.get());
    (0..run.len).map(move |at| (Lblk::new(lblk + at), Pblk::new(pblk + u64::from(at))))
}

/// Adds one block to the runs: to the last one, if the block continues it.
fn push(runs: &mut Vec<Extent>, lblk: Lblk, pblk: Pblk) {
    if let Some(last) = runs.last_mut()
        && last.end() == u64::from(lblk.get())
        && last.pblk.checked_add(u64::from(last.len)) == Some(pblk)
    {
        last.len += 1;
        return;
    }
    runs.push(Extent {
        lblk,
        len: 1,
        pblk,
        unwritten: false,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs of blocks in the file, which lie at the block of ten times their number.
    fn runs(parts: &[(u32, u32)]) -> Vec<Extent> {
        let run = |&(lblk, len)| Extent {
            lblk: Lblk::new(lblk),
            len,
            pblk: Pblk::new(u64::from(lblk) * 10),
            unwritten: false,
        };
        parts.iter().map(run).collect()
    }

    /// A mount refuses an internal file that has not all of its blocks.
    #[test]
    fn an_internal_file_has_every_block_up_to_its_end() {
        for (parts, blocks, hole, left) in [
            (&[(0, 4), (4, 4)][..], 8, None, &[(0, 4), (4, 4)][..]),
            (&[(0, 4), (4, 4)], 6, None, &[(0, 4), (4, 2)]),
            (&[(0, 4), (4, 4)], 4, None, &[(0, 4)]),
            (&[(0, 4), (4, 4)], 9, Some(8), &[(0, 4), (4, 4)]),
            (&[(0, 4), (5, 3)], 8, Some(4), &[(0, 4), (5, 3)]),
            (&[(1, 3)], 4, Some(0), &[(1, 3)]),
            (&[(0, 4)], 0, Some(0), &[]),
            (&[], 3, Some(0), &[]),
        ] {
            let mut all = runs(parts);
            assert_eq!(cut(&mut all, blocks), hole, "{parts:?} to {blocks}");
            assert_eq!(all, runs(left), "{parts:?} to {blocks}");
        }
        let mut all = runs(&[(0, 4), (4, 4)]);
        all[1].unwritten = true;
        assert_eq!(cut(&mut all, 8), Some(4));
        assert_eq!(cut(&mut all, 4), None);
    }

    #[test]
    fn a_block_continues_a_run_in_the_file_and_on_the_volume() {
        let mut all = Vec::new();
        for (lblk, pblk) in [(0, 50), (1, 51), (3, 52), (4, 54), (5, 55)] {
            push(&mut all, Lblk::new(lblk), Pblk::new(pblk));
        }
        let parts: Vec<_> = all
            .iter()
            .map(|run| (run.lblk.get(), run.len, run.pblk.get()))
            .collect();
        assert_eq!(parts, [(0, 2, 50), (3, 1, 52), (4, 2, 54)]);
    }

    #[test]
    fn the_largest_files_are_those_of_the_maps() {
        let size = |bytes, extents| largest_file(BlockSize::from_bytes(bytes).unwrap(), extents);
        assert_eq!(size(4096, true), (16 << 40) - 1);
        assert_eq!(size(1024, true), (4 << 40) - 1);
        assert_eq!(size(4096, false), 4_402_345_721_856);
        assert_eq!(size(1024, false), 17_247_252_480);
    }
}
