//! The clusters of a file's blocks: space that a new extent shares with extents that are there, and
//! clusters that a removal leaves without a block.
//!
//! # Invariants
//! A cluster of a file is one cluster of the volume, and a block has the same place in both: the
//! format gives the rest of a cluster to the file that has one block of it. Where a cluster is a
//! block, all of this says "nothing".

use std::ops::Range;

use extant_disk::damage::MapDamage;
use extant_disk::extent::{Extent, MAX_END};
use extant_units::{Blocks, Ino, Lblk, Pblk, at_most_u32};

use super::extent_tree::{self, Found, Nodes};
use crate::state::alloc::Run;
use crate::state::volume::Layout;
use crate::types::error::{Error, Location, Result};

/// The space of a hole's blocks, from the first on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HoleSpace {
    /// The location of the first block, if its cluster is the file's already.
    pub(super) shared: Option<Pblk>,
    /// Blocks that have their space alike: in that cluster, or in clusters that are not the file's.
    pub(super) len: u32,
}

/// Space that a removal frees.
#[derive(Debug, Default)]
pub(super) struct FreedSpace {
    /// The runs, from right to left.
    pub(super) runs: Vec<FreedRun>,
    /// The first failure. What it concerns stays in use.
    pub(super) failure: Option<Error>,
}

/// A run that a removal frees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FreedRun {
    /// Its clusters on the volume.
    pub(super) run: Run,
    /// The file blocks that they had.
    pub(super) clusters: Range<u64>,
}

impl FreedRun {
    /// `run` of a file whose clusters are blocks.
    pub(super) fn without_clusters(run: Run) -> Self {
        Self {
            run,
            clusters: 0..0,
        }
    }
}

/// Blocks from a place in two files on, where space may be in clusters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ClusterPart {
    /// So many, in one extent of each file, with all that is mapped of their clusters.
    Whole(u32),
    /// So many, in a cluster of which more is mapped: they can only move with the rest.
    Torn(u32),
}

/// A file's map, as a user of clusters.
pub(super) struct ClusterMap<'a, N> {
    pub(super) layout: &'a Layout,
    pub(super) ino: Ino,
    pub(super) nodes: &'a N,
}

/// The file blocks of the cluster that holds block `at`.
pub(super) fn cluster_around(layout: &Layout, at: u64) -> Range<u64> {
    let start = at >> layout.cluster_bits << layout.cluster_bits;
    start..start + layout.cluster_blocks().get()
}

impl<N: Nodes> ClusterMap<'_, N> {
    /// The space of `len` blocks from `lblk` on, a hole.
    ///
    /// # Errors
    /// Damage, or a failed read.
    pub(super) fn space_of_hole(&self, lblk: Lblk, len: u32) -> Result<HoleSpace> {
        let layout = self.layout;
        let at = u64::from(lblk.get());
        if !layout.has_clusters() {
            return Ok(HoleSpace { shared: None, len });
        }
        let first = cluster_around(layout, at);
        if let Some(extent) = self.any_extent(&first)? {
            let start = self.cluster_of(&extent, first.start)?;
            return Ok(HoleSpace {
                shared: Some(start.plus(at - first.start)),
                len: at_most_u32(first.end - at).min(len),
            });
        }
        let last = cluster_around(layout, at + u64::from(len) - 1);
        // In between, the hole has whole clusters.
        let is_free = last == first || self.any_extent(&last)?.is_none();
        Ok(HoleSpace {
            shared: None,
            len: match is_free {
                true => len,
                false => at_most_u32(last.start - at),
            },
        })
    }

    /// The clusters of `parts`, which were removed from the map from right to left, of which no
    /// block is mapped any more.
    pub(super) fn freed_space(&self, parts: &[Extent]) -> FreedSpace {
        let mut freed = FreedSpace::default();
        for part in parts {
            let behind = freed.runs.last().map(|behind| behind.clusters.start);
            match self.freed_of(part, behind) {
                Ok(run) => freed.runs.extend(run),
                Err(error) => freed.failure = freed.failure.or(Some(error)),
            }
        }
        freed
    }

    /// The same of one part. What begins at file block `behind` is freed already.
    fn freed_of(&self, part: &Extent, behind: Option<u64>) -> Result<Option<FreedRun>> {
        let layout = self.layout;
        if !layout.has_clusters() {
            return Ok(Some(FreedRun {
                run: Run {
                    start: part.pblk,
                    len: Blocks::new(u64::from(part.len)),
                },
                clusters: u64::from(part.lblk.get())..part.end(),
            }));
        }
        let start = cluster_around(layout, part.lblk.get().into()).start;
        let end = cluster_around(layout, part.end() - 1).end;
        let mut clusters = start..behind.map_or(end, |behind| end.min(behind));
        let one = layout.cluster_blocks().get();
        let has_other =
            |at| Ok::<_, Error>(self.any_extent(&cluster_around(layout, at))?.is_some());
        if !clusters.is_empty() && has_other(clusters.start)? {
            clusters.start += one;
        }
        if !clusters.is_empty() && has_other(clusters.end - 1)? {
            clusters.end -= one;
        }
        if clusters.is_empty() {
            return Ok(None);
        }
        let run = Run {
            start: self.cluster_of(part, clusters.start)?,
            len: Blocks::new(clusters.end - clusters.start),
        };
        Ok(Some(FreedRun { run, clusters }))
    }

    /// The first of `len` mapped blocks from `lblk` on whose clusters have no other mapped block.
    pub(super) fn closed_part(&self, lblk: Lblk, len: u32) -> Result<ClusterPart> {
        let (layout, at) = (self.layout, u64::from(lblk.get()));
        let first = cluster_around(layout, at);
        if self.any_extent(&(first.start..at))?.is_some() {
            return Ok(ClusterPart::Torn(at_most_u32(first.end - at).min(len)));
        }
        let end = at + u64::from(len);
        let last = cluster_around(layout, end - 1);
        if self.any_extent(&(end..last.end))?.is_none() {
            return Ok(ClusterPart::Whole(len));
        }
        Ok(match last.start.checked_sub(at).filter(|&len| len > 0) {
            Some(len) => ClusterPart::Whole(at_most_u32(len)),
            None => ClusterPart::Torn(len),
        })
    }

    /// An extent with a block in the file blocks `range`.
    fn any_extent(&self, range: &Range<u64>) -> Result<Option<Extent>> {
        let mut at = range.start;
        while at < range.end.min(MAX_END) {
            match extent_tree::find(self.nodes, Lblk::new(at_most_u32(at)))? {
                Found::Extent(extent) => return Ok(Some(extent)),
                Found::Hole { end, .. } => at = end.max(at + 1),
            }
        }
        Ok(None)
    }

    /// The first block of the cluster that `extent` gives to the file's cluster from block `start`
    /// on.
    fn cluster_of(&self, extent: &Extent, start: u64) -> Result<Pblk> {
        let layout = self.layout;
        let place = u64::from(layout.place_in_cluster(extent.lblk));
        let first = layout.cluster_floor(extent.pblk);
        let begin = u64::from(extent.lblk.get()) - place;
        debug_assert!(begin <= start, "{extent:?} has a block in the cluster");
        let cluster = first.saturating_add(start.saturating_sub(begin));
        let blocks = at_most_u32(layout.cluster_blocks().get());
        // The extent's own blocks are usable; the rest of the cluster may be the format's.
        if extent.pblk.distance_from(first) != Some(place) || !self.nodes.usable(cluster, blocks) {
            let (lblk, first) = (extent.lblk, extent.pblk);
            let damage = MapDamage::Cluster { lblk, first };
            return Err(Error::corrupt(Location::Inode(self.ino), damage));
        }
        Ok(cluster)
    }
}
