//! System zones: blocks that no file may own.
//!
//! Copies of the superblock and the descriptors, bitmaps, inode tables and the journal. A hostile
//! or damaged extent that points into one is refused before anything is read or written through it.
//! Built at mount, immutable afterwards, no locks.

use std::ops::Range;

use extant_units::{Blocks, Ino, Pblk};

/// Blocks that no file may own: disjoint, sorted ranges; neighbours of one owner are merged.
#[derive(Default, Debug)]
pub(crate) struct SystemZones {
    zones: Box<[Zone]>,
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
    /// The zones made of `parts`, in any order.
    ///
    /// # Errors
    /// [`Overlap`] if two of them share a block.
    pub(crate) fn build(mut parts: Vec<Zone>) -> Result<Self, Overlap> {
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
        Ok(Self {
            zones: zones.into_boxed_slice(),
        })
    }

    /// The zones that meet `start..end`, in order.
    fn meeting(&self, start: Pblk, end: Pblk) -> impl Iterator<Item = &Zone> {
        let first = self.zones.partition_point(|zone| zone.end <= start);
        self.zones
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take_while(move |zone| zone.start < end)
    }

    /// Whether `ino` may map `len` blocks from `start`: none of them lies in a zone of another
    /// owner. `None` asks for a block that belongs to no particular inode. Says nothing about the
    /// volume's end: see `Layout::contains`.
    pub(crate) fn may_map(&self, ino: Option<Ino>, start: Pblk, len: Blocks) -> bool {
        self.meeting(start, start.saturating_add(len.get()))
            .all(|zone| zone.owner.is_some() && zone.owner == ino)
    }

    /// The parts of `len` blocks from `start` that lie in a zone, as indices from `start`.
    pub(crate) fn within(&self, start: Pblk, len: u32) -> impl Iterator<Item = Range<u32>> {
        let index = move |p: Pblk| {
            let distance = p.distance_from(start).unwrap_or(0);
            u32::try_from(distance).map_or(len, |distance| distance.min(len))
        };
        self.meeting(start, start.saturating_add(u64::from(len)))
            .map(move |zone| index(zone.start)..index(zone.end))
    }

    /// Blocks in all zones.
    pub(crate) fn total(&self) -> Blocks {
        Blocks::new(
            self.zones
                .iter()
                .map(|zone| zone.end.get() - zone.start.get())
                .sum(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            SystemZones::build(vec![zone(20, 30, 0), zone(10, 20, 0), zone(30, 40, 8)]).unwrap();
        assert_eq!(*zones.zones, [zone(10, 30, 0), zone(30, 40, 8)]);
        assert_eq!(zones.total(), Blocks::new(30));
        let error = SystemZones::build(vec![zone(10, 20, 0), zone(19, 21, 0)]).unwrap_err();
        assert_eq!(error, Overlap { at: Pblk::new(19) });
    }

    #[test]
    fn only_the_owner_may_map() {
        let zones = SystemZones::build(vec![zone(10, 20, 0), zone(30, 40, 8)]).unwrap();
        let may =
            |ino: u32, start, len| zones.may_map(Ino::new(ino), Pblk::new(start), Blocks::new(len));
        assert!(may(12, 20, 10) && may(12, 0, 10) && may(12, 40, 1 << 40));
        assert!(!may(12, 9, 2) && !may(12, 19, 1) && !may(12, 0, 100) && !may(0, 15, 1));
        assert!(may(8, 30, 10) && !may(12, 39, 1) && !may(8, 15, 20));
    }

    #[test]
    fn parts_within_a_group_are_clipped() {
        let zones = SystemZones::build(vec![zone(10, 20, 0), zone(30, 40, 8)]).unwrap();
        let parts: Vec<_> = zones.within(Pblk::new(15), 20).collect();
        assert_eq!(parts, [0..5, 15..20]);
    }
}
