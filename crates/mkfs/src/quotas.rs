//! The files of quotas of a new volume: whose they are, what they say, and where they lie.

use std::collections::BTreeMap;
use std::ops::Range;

use extant_disk::features::{Incompat, RoCompat};
use extant_disk::quota::{BLOCK, MemoryQuotas, QuotaEntry, QuotaKind, QuotaTimes, QuotaUsage};
use extant_units::index;

use crate::error::{Error, Result};
use crate::file_map::Map;
use crate::geometry::FIRST_INO;
use crate::quota_kinds::QuotaKinds;
use crate::tables::Ground;

/// The root of a file's tree, which is written when the first entry stands.
const ROOT: usize = 1;
/// The blocks of a file with one entry: the header, four levels of nodes, the entries.
const OF_ONE_ENTRY: usize = 6;

/// A file of quotas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct QuotaFile {
    pub(crate) kind: QuotaKind,
    pub(crate) ino: u32,
    pub(crate) map: Map,
    pub(crate) bytes: Vec<u8>,
}

/// Inputs of the files of quotas, beside the volume.
#[derive(Clone, Copy)]
pub(crate) struct Quotas {
    pub(crate) kinds: QuotaKinds,
    /// Owner and group of the root directory.
    pub(crate) owner: (u32, u32),
}

impl Quotas {
    /// Allocates the files, where there are any. They say what `dirs`, which are the root directory
    /// and lost+found, take.
    pub(crate) fn allocate(
        self,
        ground: &mut Ground<'_>,
        dirs: [&Map; 2],
        bytes: u64,
    ) -> Result<Vec<QuotaFile>> {
        let features = ground.geometry.features;
        if !features.has_ro_compat(RoCompat::QUOTA) {
            return Ok(Vec::new());
        }
        let mut made = Vec::new();
        for kind in QuotaKind::ALL {
            let wanted = match kind {
                QuotaKind::Project => features.has_ro_compat(RoCompat::PROJECT),
                _ => self.kinds.has(kind),
            };
            if !wanted {
                continue;
            }
            let content = self.content(ground, dirs, kind);
            let what = "the files of quotas";
            let map = allocate_file(ground, content.bytes().len());
            made.push(QuotaFile {
                kind,
                ino: kind.fixed_inode().unwrap_or(FIRST_INO + 1),
                map: map.ok_or(Error::TooSmall { bytes, what })?,
                bytes: content.bytes().to_vec(),
            });
        }
        Ok(made)
    }

    /// The file of `kind` of an empty volume.
    fn content(self, ground: &Ground<'_>, dirs: [&Map; 2], kind: QuotaKind) -> MemoryQuotas {
        let of_root = match kind {
            QuotaKind::User => self.owner.0,
            QuotaKind::Group => self.owner.1,
            QuotaKind::Project => 0,
        };
        // Lost+found is root's, whatever owner the root directory has.
        let mut usage = BTreeMap::<u32, QuotaUsage>::new();
        for (id, map) in [of_root, 0].into_iter().zip(dirs) {
            let usage = usage.entry(id).or_default();
            usage.bytes += map.blocks(ground.geometry) * ground.geometry.block_size.bytes_u64();
            usage.inodes += 1;
        }
        let entries = usage.into_iter().map(|(id, usage)| QuotaEntry {
            usage,
            ..QuotaEntry::of(id)
        });
        let file = MemoryQuotas::new(kind, QuotaTimes::default(), entries);
        file.expect("two ids have room, each once")
    }
}

/// Takes the blocks of a file of `len` bytes, in the order in which mke2fs writes them: the root of
/// the tree after the first entry. Each lies in the cluster that its neighbours in the file have,
/// or behind the block before it, if that is there, or else where the first room is.
fn allocate_file(ground: &mut Ground<'_>, len: usize) -> Option<Map> {
    let per_block = ground.geometry.block_size.bytes() / BLOCK;
    let mut order: Vec<usize> = (0..len / BLOCK).collect();
    order.remove(ROOT);
    order.insert(OF_ONE_ENTRY - 1, ROOT);
    let blocks = (len / BLOCK).div_ceil(per_block);
    let mut taken: Vec<Option<u64>> = vec![None; blocks];
    let mut pieces = Pieces::default();
    let cluster = index(ground.geometry.cluster_blocks());
    for lblk in order.into_iter().map(|block| block / per_block) {
        if taken[lblk].is_some() {
            continue;
        }
        let neighbours = taken.chunks(cluster).nth(lblk / cluster)?;
        let first = match neighbours.iter().flatten().next() {
            Some(block) => ground.geometry.cluster_start(*block),
            None => {
                let before = lblk.checked_sub(1).and_then(|before| taken[before]);
                ground.take_one(before.unwrap_or(ground.geometry.first_block()))?
            }
        };
        let block = first + (lblk % cluster) as u64;
        taken[lblk] = Some(block);
        pieces.add(lblk as u64, block);
    }
    let mut map = Map::default();
    if ground.geometry.features.has_incompat(Incompat::EXTENTS) {
        map.runs = pieces.0.into_iter().map(|(_, run)| run).collect();
        map.take_nodes(ground)?;
        return Some(map);
    }
    for block in taken {
        let block = block?;
        map.push(block..block + 1);
    }
    Some(map)
}

/// Extents of a file that gets its blocks one by one, as mke2fs leaves them: a block makes the one
/// before it longer, or the one behind it, and never one of both.
#[derive(Default)]
struct Pieces(Vec<(u64, Range<u64>)>);

impl Pieces {
    fn add(&mut self, lblk: u64, block: u64) {
        let at = self.0.partition_point(|(first, _)| *first < lblk);
        if let Some((first, run)) = at.checked_sub(1).and_then(|before| self.0.get_mut(before))
            && *first + (run.end - run.start) == lblk
            && run.end == block
        {
            run.end += 1;
            return;
        }
        if let Some((first, run)) = self.0.get_mut(at)
            && *first == lblk + 1
            && run.start == block + 1
        {
            (*first, run.start) = (lblk, block);
            return;
        }
        self.0.insert(at, (lblk, block..block + 1));
    }
}
