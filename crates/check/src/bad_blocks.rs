//! Bad blocks of the device in inode tables, as inode 1 lists them.
//!
//! A list that was made, or has grown, after the tables is no damage. The inodes in such a block
//! are not read, as in e2fsck: they count as in use, so that none of them is given to a new file.

use std::ops::Range;

use extant_disk::damage::ReservedDamage;
use extant_disk::location::Location;
use extant_units::{Ino, Pblk, index};

use crate::error::Result;
use crate::findings::Findings;
use crate::maps::map_of;
use crate::remedy::{Doubt, Remedy};
use crate::role::Role;
use crate::volume::Volume;

/// The blocks, in order.
pub(crate) struct BadBlocks(Vec<u64>);

impl BadBlocks {
    /// Reads the list, and notes how many of its blocks lie in tables. A list that cannot be read
    /// is reported by the scan.
    pub(crate) fn read(volume: &Volume, findings: &Findings) -> Result<Self> {
        let Some(ino) = Ino::new(Role::BAD_BLOCKS) else {
            return Ok(Self(Vec::new()));
        };
        let Ok((_, mut runs)) = map_of(volume, ino)? else {
            return Ok(Self(Vec::new()));
        };
        runs.sort_unstable_by_key(|run| run.pblk);
        let mut tables: Vec<u64> = volume.groups().map(|(_, g)| g.inode_table.get()).collect();
        tables.sort_unstable();
        let mut bad = Vec::new();
        // Damaged descriptors may let tables overlap: no block counts twice.
        let mut done = 0;
        for table in tables {
            let end = table.saturating_add(volume.table_blocks());
            let table = table.max(done)..end;
            let first = runs.partition_point(|run| run.pblk.plus(run.len.into()).get() <= done);
            let inside = runs.iter().skip(first).map(|run| {
                let end = run.pblk.plus(run.len.into()).get().min(table.end);
                run.pblk.get().max(table.start)..end
            });
            let end = table.end;
            bad.extend(inside.take_while(|run| run.start < end).flatten());
            done = done.max(end);
        }
        if !bad.is_empty() {
            let kind = ReservedDamage::BadBlocksInTables { blocks: bad.len() };
            findings.push_note(Location::Inode(ino), kind, Remedy::Left(Doubt::Maps));
        }
        Ok(Self(bad))
    }

    /// The blocks, in order.
    pub(crate) fn blocks(&self) -> &[u64] {
        &self.0
    }

    /// Splits `count` blocks of a table into runs of good ones, and bad ones.
    pub(crate) fn split(&self, first: Pblk, count: usize) -> Vec<Piece> {
        let range = first.get()..first.get().saturating_add(count as u64);
        let from = self.0.partition_point(|bad| *bad < range.start);
        let inside = self.0.iter().skip(from).take_while(|bad| **bad < range.end);
        let (mut pieces, mut at) = (Vec::new(), range.start);
        for bad in inside {
            pieces.push(Piece::good(at..*bad));
            pieces.push(Piece {
                first: Pblk::new(*bad),
                count: 1,
                good: false,
            });
            at = bad + 1;
        }
        pieces.push(Piece::good(at..range.end));
        pieces.retain(|piece| piece.count > 0);
        pieces
    }
}

/// Blocks of a table in a row.
pub(crate) struct Piece {
    pub(crate) first: Pblk,
    pub(crate) count: usize,
    pub(crate) good: bool,
}

impl Piece {
    fn good(range: Range<u64>) -> Piece {
        Piece {
            first: Pblk::new(range.start),
            count: index(range.end - range.start),
            good: true,
        }
    }
}
