//! A file's whole map, on disk and in memory, for checking one against the other.

use std::collections::BTreeSet;
use std::ops::Range;

use extant_disk::extent::MAX_END;
use extant_disk::inode::InodeFlags;
use extant_units::Lblk;

use super::locked_map::SharedMap;
use super::lookup::on_disk;
use crate::state::inode::Inode;
use crate::state::map::{MapState, MapView, Status};
use crate::volume::Fs;

/// Ranges without holes, sorted, joined where they continue each other.
pub(crate) struct KnownMap {
    /// The ranges on disk, and the delayed ones.
    ranges: Vec<Status>,
    /// Blocks that are reserved for the delayed ones.
    reserved: u64,
    sequence: u64,
}

/// Takes the map of `inode`, and checks what is known of it in memory against the tree on disk, and
/// the account of its delayed blocks (J9, J13, J14).
///
/// # Locks
/// `map_lock` shared, then the status tree.
pub(crate) fn known(fs: &Fs, inode: &Inode) -> Result<KnownMap, String> {
    let map = SharedMap::lock(inode);
    let mut disk: Vec<Status> = Vec::new();
    // Data inside of the inode has no map.
    let inside = inode.flags().contains(InodeFlags::INLINE_DATA);
    let mut at = if inside { MAX_END } else { 0 };
    while at < MAX_END {
        let lblk = u32::try_from(at).map_err(|error| error.to_string())?;
        let found = on_disk(fs, &map, Lblk::new(lblk)).map_err(|error| error.to_string())?;
        if found.end() <= at {
            return Err(format!("the map on disk stands still at block {at}"));
        }
        at = found.end();
        push(&mut disk, found);
    }
    let view = MapView::lock(&fs.maps, &inode.known);
    let delayed = view.verify()?;
    let below = |status: &Status| -> Vec<Status> {
        let (from, to) = (u64::from(status.lblk.get()), status.end());
        let ranges = disk.iter();
        ranges.filter_map(|range| range.cut(from, to)).collect()
    };
    for status in view.on_disk().chain(delayed.iter().copied()) {
        let below = below(&status);
        let agrees = match status.state {
            MapState::Hole | MapState::Delayed => below.is_empty(),
            MapState::Written(_) | MapState::Unwritten(_) => below == [status],
        };
        if !agrees {
            return Err(format!("{status:?} in memory, {below:?} on disk (J14)"));
        }
    }
    if view.sequence() != inode.known.cookie(MapState::Delayed) {
        return Err("the sequence was not published (J16)".into());
    }
    check_shared_clusters(fs, &view, &disk, &delayed)?;
    let sequence = view.sequence();
    let reserved = inode.known.delayed().reserved();
    let mut ranges = disk;
    ranges.extend(delayed);
    ranges.sort_by_key(|range| range.lblk);
    Ok(KnownMap {
        ranges,
        reserved,
        sequence,
    })
}

/// Checks that the delayed clusters without a reservation are those with a block on disk (J10).
fn check_shared_clusters(
    fs: &Fs,
    view: &MapView<'_>,
    disk: &[Status],
    delayed: &[Status],
) -> Result<(), String> {
    if !fs.layout.has_clusters() {
        return Ok(());
    }
    let clusters = |ranges: &[Status]| -> BTreeSet<u64> {
        let bits = fs.layout.cluster_bits;
        let of = |range: &Status| u64::from(range.lblk.get()) >> bits..=(range.end() - 1) >> bits;
        ranges.iter().flat_map(of).collect()
    };
    let (disk, delayed) = (clusters(disk), clusters(delayed));
    let expected: Vec<u64> = delayed.intersection(&disk).copied().collect();
    let shared = view.shared_clusters();
    if shared != expected {
        return Err(format!(
            "clusters {shared:?} need no reservation, {expected:?} have blocks on disk (J10)"
        ));
    }
    Ok(())
}

fn push(ranges: &mut Vec<Status>, next: Status) {
    match ranges.last_mut() {
        _ if next.state == MapState::Hole => {}
        Some(last) if last.merges_with(&next) => last.len += next.len,
        _ => ranges.push(next),
    }
}

impl KnownMap {
    /// The delayed ranges.
    pub(crate) fn delayed(&self) -> impl Iterator<Item = &Status> {
        let ranges = self.ranges.iter();
        ranges.filter(|range| range.state == MapState::Delayed)
    }

    /// Blocks that are reserved for the delayed ones.
    pub(crate) fn reserved_blocks(&self) -> u64 {
        self.reserved
    }

    /// The first block of `blocks` without space, neither allocated nor reserved.
    pub(crate) fn first_hole(&self, blocks: Range<u64>) -> Option<u64> {
        let mut at = blocks.start;
        let after = |range: &Status| range.end() <= blocks.start;
        let first = self.ranges.partition_point(after);
        for range in self.ranges.get(first..).unwrap_or_default() {
            if u64::from(range.lblk.get()) > at {
                break;
            }
            at = range.end();
        }
        (at < blocks.end).then_some(at)
    }

    /// Checks that `newer`, the map of the same file taken later, differs only if the sequence has
    /// grown (J16).
    pub(crate) fn explains(&self, newer: &KnownMap) -> Result<(), String> {
        if newer.sequence < self.sequence
            || (newer.sequence == self.sequence && newer.ranges != self.ranges)
        {
            return Err(format!(
                "the map changed from sequence {} to {} (J16)",
                self.sequence, newer.sequence
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use extant_units::Pblk;

    use super::*;

    #[test]
    fn a_map_changes_only_with_its_sequence() {
        let map = |sequence, blocks: &[u32]| {
            let range = |&lblk: &u32| Status {
                lblk: Lblk::new(lblk),
                len: 1,
                state: MapState::Written(Pblk::new(100)),
            };
            KnownMap {
                ranges: blocks.iter().map(range).collect(),
                reserved: 0,
                sequence,
            }
        };
        let old = map(5, &[3]);
        for (sequence, blocks, explained) in [
            (5, &[3][..], true),
            (5, &[], false),
            (5, &[4], false),
            (6, &[3], true),
            (6, &[4], true),
            (4, &[3], false),
            (4, &[4], false),
        ] {
            let newer = map(sequence, blocks);
            assert_eq!(
                old.explains(&newer).is_ok(),
                explained,
                "sequence {sequence}, {blocks:?}"
            );
        }
    }
}
