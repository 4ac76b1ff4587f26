//! System zones: blocks that no file may claim.
//!
//! Superblock and descriptor copies, bitmaps, inode tables and the journal. A hostile or damaged extent that
//! points into one is refused before anything is read or written through it. Built at mount, immutable
//! afterwards, no locks.

use extant_units::{Blocks, Ino, Pblk};

/// Blocks that no file may claim: disjoint, sorted ranges.
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

impl SystemZones {
    /// Whether `ino` may map `len` blocks from `start`: none of them lies in a zone of another owner.
    /// `None` asks for a block that belongs to no particular inode. Says nothing about the volume's end:
    /// see `Layout::contains`.
    pub(crate) fn may_map(&self, ino: Option<Ino>, start: Pblk, len: Blocks) -> bool {
        let end = start.saturating_add(len.get());
        let first = self.zones.partition_point(|zone| zone.end <= start);
        self.zones
            .get(first..)
            .unwrap_or_default()
            .iter()
            .take_while(|zone| zone.start < end)
            .all(|zone| zone.owner.is_some() && zone.owner == ino)
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
