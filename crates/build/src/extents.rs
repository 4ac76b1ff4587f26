//! From a file's blocks to the device's: what of a file has blocks, and the tree that says where.

use std::ops::Range;

use extant_disk::csum::Crc32c;
use extant_disk::extent::{
    Extent, ExtentError, Index, MAX_WRITTEN, NodeMut, ROOT_BYTES, ROOT_CAPACITY, Slot,
    block_capacity, set_checksum,
};
use extant_disk::file_kind::FileKind;
use extant_units::{BlockSize, Lblk, Pblk};

use crate::tree::{NodeId, Tree};

/// Bytes of a link's target that an inode holds itself, less one.
const FAST_LINK: u64 = 60;

/// The runs of a node's blocks that hold something, by their numbers in the file.
pub(crate) fn logical(tree: &Tree, id: NodeId, bs: u64) -> Vec<Range<u64>> {
    let node = tree.node(id);
    let whole = |len: u64| {
        let all = Some(0..len.div_ceil(bs)).filter(|all| !all.is_empty());
        all.into_iter().collect()
    };
    match node.kind() {
        FileKind::Directory => whole(node.size),
        FileKind::Symlink if node.size >= FAST_LINK => whole(1),
        FileKind::Regular => match tree.parts.get(id) {
            None => whole(node.size),
            Some(parts) => {
                let mut runs: Vec<Range<u64>> = Vec::new();
                for part in parts {
                    let run = part.start / bs..(part.start + part.len).div_ceil(bs);
                    match runs.last_mut() {
                        Some(last) if last.end >= run.start => last.end = run.end.max(last.end),
                        _ => runs.push(run),
                    }
                }
                runs
            }
        },
        _ => Vec::new(),
    }
}

/// How many blocks a node has.
pub(crate) fn count(runs: &[Range<u64>]) -> u64 {
    runs.iter().map(|run| run.end - run.start).sum()
}

/// The extents of a file whose runs of blocks lie, one after the other, in runs of the device's.
pub(crate) fn extents(logical: &[Range<u64>], physical: &[Range<u64>]) -> Vec<Extent> {
    let mut all = Vec::new();
    let mut places = physical.iter().cloned();
    let mut place = 0..0;
    for run in logical {
        let mut at = run.start;
        while at < run.end {
            while place.is_empty() {
                match places.next() {
                    Some(next) => place = next,
                    None => return all,
                }
            }
            let most = u64::from(MAX_WRITTEN);
            let len = (run.end - at).min(place.end - place.start).min(most);
            all.push(Extent {
                lblk: Lblk::new(u32::try_from(at).unwrap_or(u32::MAX)),
                len: u32::try_from(len).unwrap_or(u32::MAX),
                pblk: Pblk::new(place.start),
                unwritten: false,
            });
            at += len;
            place.start += len;
        }
    }
    all
}

/// How many blocks the tree over so many extents takes.
pub(crate) fn map_blocks(extents: usize, bs: BlockSize) -> usize {
    let per_node = usize::from(block_capacity(bs));
    let mut level = extents;
    let mut nodes = 0;
    while level > usize::from(ROOT_CAPACITY) {
        level = level.div_ceil(per_node);
        nodes += level;
    }
    nodes
}

/// A block of a map: its place and its bytes.
type MapBlock = (u64, Vec<u8>);

/// The tree over `extents`: what the inode holds, and blocks at `places`.
///
/// # Errors
/// Extents that cannot be stored.
pub(crate) fn store(
    extents: &[Extent],
    places: &[u64],
    bs: BlockSize,
    seed: Option<Crc32c>,
) -> Result<([u8; ROOT_BYTES], Vec<MapBlock>), ExtentError> {
    let mut level: Vec<(Lblk, Slot)> = Vec::with_capacity(extents.len());
    for extent in extents {
        level.push((extent.lblk, extent.encode()?));
    }
    let mut places = places.iter();
    let mut blocks = Vec::new();
    let mut depth = 0;
    while level.len() > usize::from(ROOT_CAPACITY) {
        let capacity = block_capacity(bs);
        let mut above = Vec::new();
        for part in level.chunks(usize::from(capacity)) {
            let place = places.next().copied().unwrap_or_default();
            let mut bytes = vec![0; bs.bytes()];
            fill(&mut bytes, depth, capacity, part)?;
            if let Some(seed) = seed {
                set_checksum(&mut bytes, seed)?;
            }
            blocks.push((place, bytes));
            let lblk = part.first().map_or(Lblk::ZERO, |(lblk, _)| *lblk);
            let child = Pblk::new(place);
            above.push((lblk, Index { lblk, child }.encode()?));
        }
        (level, depth) = (above, depth + 1);
    }
    let mut root = [0; ROOT_BYTES];
    fill(&mut root, depth, ROOT_CAPACITY, &level)?;
    Ok((root, blocks))
}

fn fill(
    bytes: &mut [u8],
    depth: u16,
    max: u16,
    entries: &[(Lblk, Slot)],
) -> Result<(), ExtentError> {
    let slots: Vec<Slot> = entries.iter().map(|(_, slot)| *slot).collect();
    NodeMut::init(bytes, depth, max)?.insert(0, &slots)
}
