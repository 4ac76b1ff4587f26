//! From a file's blocks to the device's: what of a file has blocks, and the extents that say where.

use std::ops::Range;

use extant_disk::extent::{Extent, MAX_WRITTEN};
use extant_disk::file_kind::FileKind;
use extant_units::{Lblk, Pblk, exact_u32};

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

/// The runs of a node's clusters, of `cluster` blocks each, that have a block of `logical`.
pub(crate) fn in_clusters(logical: &[Range<u64>], cluster: u64) -> Vec<Range<u64>> {
    let mut runs: Vec<Range<u64>> = Vec::with_capacity(logical.len());
    for run in logical {
        let run = run.start / cluster * cluster..run.end.next_multiple_of(cluster);
        match runs.last_mut() {
            Some(last) if cluster > 1 && last.end >= run.start => last.end = run.end,
            _ => runs.push(run),
        }
    }
    runs
}

/// The extents of a file whose clusters lie, one after the other, in runs of the device's, which
/// have as many blocks.
pub(crate) fn extents(
    logical: &[Range<u64>],
    physical: &[Range<u64>],
    cluster: u64,
) -> Vec<Extent> {
    let all = mapped(&in_clusters(logical, cluster), physical);
    if cluster == 1 {
        return all;
    }
    // Only blocks that hold something are mapped.
    let mut extents = Vec::with_capacity(all.len());
    let mut pieces = all.into_iter().peekable();
    for run in logical {
        while let Some(piece) = pieces
            .peek()
            .filter(|piece| u64::from(piece.lblk.get()) < run.end)
        {
            let first = u64::from(piece.lblk.get());
            let (start, end) = (run.start.max(first), run.end.min(piece.end()));
            if start < end {
                extents.push(Extent {
                    lblk: Lblk::new(exact_u32(start)),
                    len: exact_u32(end - start),
                    pblk: piece.pblk.plus(start - first),
                    unwritten: false,
                });
            }
            // The next run may have blocks in the same piece.
            if piece.end() > run.end {
                break;
            }
            pieces.next();
        }
    }
    assert_eq!(
        extents
            .iter()
            .map(|extent| u64::from(extent.len))
            .sum::<u64>(),
        count(logical),
        "each block of a file is mapped"
    );
    extents
}

/// The extents of whole runs.
fn mapped(runs: &[Range<u64>], physical: &[Range<u64>]) -> Vec<Extent> {
    let mut all = Vec::new();
    let mut device_runs = physical.iter().cloned();
    let mut here = 0..0;
    for run in runs {
        let mut at = run.start;
        while at < run.end {
            while here.is_empty() {
                here = device_runs.next().expect("each block of a file was placed");
            }
            let most = u64::from(MAX_WRITTEN);
            let len = (run.end - at).min(here.end - here.start).min(most);
            all.push(Extent {
                lblk: Lblk::new(exact_u32(at)),
                len: exact_u32(len),
                pblk: Pblk::new(here.start),
                unwritten: false,
            });
            at += len;
            here.start += len;
        }
    }
    assert!(
        here.is_empty() && device_runs.all(|run| run.is_empty()),
        "each block that was taken for a file is one of it"
    );
    all
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "lists of runs")]
mod tests {
    use super::*;

    /// The extents as their first block in the file, their length and their first block on the
    /// device.
    fn of(logical: &[Range<u64>], physical: &[Range<u64>]) -> Vec<(u32, u32, u64)> {
        let all = extents(logical, physical, 1);
        assert!(all.iter().all(|one| !one.unwritten));
        let parts = |one: &Extent| (one.lblk.get(), one.len, one.pblk.get());
        all.iter().map(parts).collect()
    }

    /// A longer one would be read as unwritten.
    #[test]
    fn an_extent_has_at_most_32768_blocks() {
        assert_eq!(of(&[0..32_768], &[9..32_777]), [(0, 32_768, 9)]);
        assert_eq!(
            of(&[0..32_769], &[9..32_778]),
            [(0, 32_768, 9), (32_768, 1, 32_777)]
        );
        assert_eq!(
            of(&[5..70_005], &[100..70_100]),
            [
                (5, 32_768, 100),
                (32_773, 32_768, 32_868),
                (65_541, 4464, 65_636)
            ]
        );
    }

    #[test]
    fn an_extent_ends_with_a_run_of_the_file_or_of_the_device() {
        assert_eq!(
            of(&[0..4, 8..10], &[50..53, 60..60, 70..73]),
            [(0, 3, 50), (3, 1, 70), (8, 2, 71)]
        );
        assert_eq!(count(&[0..4, 8..10]), 6);
        assert!(of(&[], &[]).is_empty());
    }

    #[test]
    fn only_what_holds_something_is_mapped_in_its_cluster() {
        let logical = [1..2, 3..4, 7..13, 20..21];
        assert_eq!(in_clusters(&logical, 4), [0..16, 20..24]);
        assert_eq!(in_clusters(&logical, 1), logical);
        let all = extents(&logical, &[100..108, 200..212], 4);
        let parts = |one: &Extent| (one.lblk.get(), one.len, one.pblk.get());
        let all: Vec<_> = all.iter().map(parts).collect();
        let second = [(7, 1, 107), (8, 5, 200), (20, 1, 208)];
        assert_eq!(all[..2], [(1, 1, 101), (3, 1, 103)]);
        assert_eq!(all[2..], second);
    }
}
