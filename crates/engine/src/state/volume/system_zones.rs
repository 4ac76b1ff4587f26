//! System zones: blocks that no file may own.
//!
//! Copies of the superblock and the descriptors, bitmaps, inode tables and the journal. A hostile
//! or damaged extent that points into one is refused before anything is read or written through it.
//! Built at mount; those of groups that a grow adds come behind them.
//!
//! # Locks
//! `added` is a leaf. Blocks that the volume had at the mount are judged without it.

use std::ops::Range;

use extant_sync::RwLock;
use extant_units::{Blocks, Ino, Pblk};

/// Blocks that no file may own: disjoint, sorted ranges; neighbours of one owner are merged.
#[derive(Default, Debug)]
pub(crate) struct SystemZones {
    zones: Box<[Zone]>,
    /// Those of groups that were added, all behind `added_from`.
    added: RwLock<Vec<Zone>>,
    /// The end of the volume at the mount.
    added_from: Pblk,
}

/// A range of blocks that belongs to the format itself, or to one internal inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Zone {
    /// First block.
    pub(crate) start: Pblk,
    /// One past the last block.
    pub(crate) end: Pblk,
    /// The inode that may map it (the journal's), if any.
    pub(crate) owner: Option<Ino>,
}

/// Two parts of the format claim the same block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Overlap {
    /// The first such block.
    pub(crate) at: Pblk,
}

impl SystemZones {
    /// The zones made of `parts`, in any order, of a volume that ends at `end`.
    ///
    /// # Errors
    /// [`Overlap`] if two of them share a block.
    pub(crate) fn build(parts: Vec<Zone>, end: Pblk) -> Result<Self, Overlap> {
        Ok(Self {
            zones: merged(parts)?.into_boxed_slice(),
            added: RwLock::default(),
            added_from: end,
        })
    }

    /// Adds `parts`, of groups behind those that are there.
    ///
    /// # Errors
    /// [`Overlap`] if two of them share a block.
    pub(crate) fn add(&self, parts: Vec<Zone>) -> Result<(), Overlap> {
        let parts = merged(parts)?;
        let mut added = self.added.write();
        debug_assert!(
            parts
                .first()
                .zip(added.last())
                .is_none_or(|(new, old)| new.start >= old.end),
            "new groups come last"
        );
        added.extend(parts);
        Ok(())
    }

    /// Calls `each` for the zones that meet `start..end`, in order, until it returns `false`.
    fn each_meeting(&self, start: Pblk, end: Pblk, mut each: impl FnMut(&Zone) -> bool) -> bool {
        meeting(&self.zones, start, end).all(&mut each)
            && (end <= self.added_from || meeting(&self.added.read(), start, end).all(&mut each))
    }

    /// Returns whether `ino` may map `len` blocks from `start`: none of them lies in a zone of
    /// another owner. `None` asks for a block that belongs to no particular inode. Says nothing
    /// about the volume's end: see `Layout::contains`.
    pub(crate) fn may_map(&self, ino: Option<Ino>, start: Pblk, len: Blocks) -> bool {
        self.each_meeting(start, start.saturating_add(len.get()), |zone| {
            zone.owner.is_some() && zone.owner == ino
        })
    }

    /// The parts of `len` blocks from `start` that lie in a zone, as indices from `start`.
    pub(crate) fn within(&self, start: Pblk, len: u32) -> Vec<Range<u32>> {
        // A zone that begins before `start` has all from there on.
        let index = move |p: Pblk| {
            let distance = p.distance_from(start).unwrap_or(0);
            u32::try_from(distance).map_or(len, |distance| distance.min(len))
        };
        let mut parts = Vec::new();
        self.each_meeting(start, start.saturating_add(u64::from(len)), |zone| {
            parts.push(index(zone.start)..index(zone.end));
            true
        });
        parts
    }

    /// Blocks in all zones, in whole clusters of `1 << cluster_bits`.
    pub(crate) fn total(&self, cluster_bits: u32) -> Blocks {
        let added = self.added.read();
        let (mut clusters, mut next) = (0, 0);
        for zone in self.zones.iter().chain(added.iter()) {
            // Two zones may share a cluster.
            let start = (zone.start.get() >> cluster_bits).max(next);
            next = zone.end.get().div_ceil(1 << cluster_bits);
            clusters += next.saturating_sub(start);
        }
        Blocks::new(clusters << cluster_bits)
    }
}

/// `parts`, in order, with neighbours of one owner merged.
fn merged(mut parts: Vec<Zone>) -> Result<Vec<Zone>, Overlap> {
    parts.retain(|zone| zone.start < zone.end);
    parts.sort_unstable_by_key(|zone| zone.start);
    let mut zones: Vec<Zone> = Vec::new();
    for zone in parts {
        match zones.last_mut() {
            Some(last) if zone.start < last.end => return Err(Overlap { at: zone.start }),
            Some(last) if zone.start == last.end && zone.owner == last.owner => {
                last.end = zone.end;
            }
            _ => zones.push(zone),
        }
    }
    debug_assert!(zones.windows(2).all(|two| two[0].end <= two[1].start));
    Ok(zones)
}

/// The zones that meet `start..end`, in order.
fn meeting(zones: &[Zone], start: Pblk, end: Pblk) -> impl Iterator<Item = &Zone> {
    let first = zones.partition_point(|zone| zone.end <= start);
    zones
        .get(first..)
        .unwrap_or_default()
        .iter()
        .take_while(move |zone| zone.start < end)
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: Pblk = Pblk::new(100);

    fn zone(start: u64, end: u64, owner: u32) -> Zone {
        Zone {
            start: Pblk::new(start),
            end: Pblk::new(end),
            owner: Ino::new(owner),
        }
    }

    #[test]
    fn neighbours_merge_and_overlaps_are_errors() {
        let zones =
            SystemZones::build(vec![zone(20, 30, 0), zone(10, 20, 0), zone(30, 40, 8)], END)
                .unwrap();
        assert_eq!(*zones.zones, [zone(10, 30, 0), zone(30, 40, 8)]);
        assert_eq!(zones.total(0), Blocks::new(30));
        assert_eq!(zones.total(4), Blocks::new(48), "from block 0 on");
        let error = SystemZones::build(vec![zone(10, 20, 0), zone(19, 21, 0)], END).unwrap_err();
        assert_eq!(error, Overlap { at: Pblk::new(19) });
    }

    #[test]
    fn only_the_owner_may_map() {
        let zones = SystemZones::build(vec![zone(10, 20, 0), zone(30, 40, 8)], END).unwrap();
        let may =
            |ino: u32, start, len| zones.may_map(Ino::new(ino), Pblk::new(start), Blocks::new(len));
        assert!(may(12, 20, 10) && may(12, 0, 10) && may(12, 40, 1 << 40));
        assert!(!may(12, 9, 2) && !may(12, 19, 1) && !may(12, 0, 100) && !may(0, 15, 1));
        assert!(may(8, 30, 10) && !may(12, 39, 1) && !may(8, 15, 20));
    }

    #[test]
    fn parts_within_a_group_are_clipped() {
        let zones = SystemZones::build(vec![zone(10, 20, 0), zone(30, 40, 8)], END).unwrap();
        assert_eq!(zones.within(Pblk::new(15), 20), [0..5, 15..20]);
    }

    #[test]
    fn added_zones_count_from_the_old_end_on() {
        let zones = SystemZones::build(vec![zone(10, 20, 0), zone(90, 100, 0)], END).unwrap();
        let may = |start, len| zones.may_map(None, Pblk::new(start), Blocks::new(len));
        assert!(may(100, 20));
        zones
            .add(vec![zone(110, 112, 0), zone(100, 104, 0)])
            .unwrap();
        zones.add(vec![zone(200, 204, 0)]).unwrap();
        assert!(may(104, 6) && may(112, 88) && !may(103, 1) && !may(80, 40) && !may(150, 51));
        assert_eq!(zones.within(Pblk::new(95), 16), [0..5, 5..9, 15..16]);
        assert_eq!(zones.total(0), Blocks::new(20 + 6 + 4));
        assert!(
            zones
                .add(vec![zone(300, 302, 0), zone(301, 303, 0)])
                .is_err()
        );
    }
}
