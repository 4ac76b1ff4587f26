//! Orphans: the list and the file to which the superblock leads, read before any table is scanned.

use std::collections::BTreeSet;

use extant_disk::features::{Compat, RoCompat};
use extant_disk::location::Location;
use extant_disk::orphan;
use extant_units::Ino;

use crate::error::Result;
use crate::findings::Findings;
use crate::maps::{blocks_of, runs_of};
use crate::volume::Volume;

/// All inodes on the orphan list and in the orphan file: unlinked, or truncated in part, until the
/// next mount finishes that.
pub(crate) fn read(volume: &Volume, findings: &Findings) -> Result<BTreeSet<Ino>> {
    let mut all = BTreeSet::new();
    let mut next = volume.sb.last_orphan();
    while let Some(ino) = next {
        if ino.get() > volume.sb.inodes_count() || ino.get() < volume.sb.first_inode() {
            findings.add(
                Location::Orphans,
                format_args!("the list leads to inode {ino}"),
            );
            break;
        }
        if !all.insert(ino) {
            findings.add(
                Location::Orphans,
                format_args!("the list meets inode {ino} twice"),
            );
            break;
        }
        next = match volume.inode(ino)? {
            Ok(core) => Ino::new(core.dtime),
            Err(error) => {
                findings.add(Location::Inode(ino), error);
                None
            }
        };
    }
    if volume.sb.features().has_compat(Compat::ORPHAN_FILE) {
        from_file(volume, findings, &mut all)?;
    }
    match all.len() {
        0 => {}
        1 => findings.note(
            Location::Orphans,
            "1 inode waits to be deleted or truncated, which the next mount does",
        ),
        count => findings.note(
            Location::Orphans,
            format_args!(
                "{count} inodes wait to be deleted or truncated, which the next mount does"
            ),
        ),
    }
    Ok(all)
}

fn from_file(volume: &Volume, findings: &Findings, all: &mut BTreeSet<Ino>) -> Result<()> {
    let Some(ino) = volume.sb.orphan_file_inode() else {
        findings.add(
            Location::Orphans,
            "the feature orphan_file without an orphan file",
        );
        return Ok(());
    };
    let Some((runs, generation)) = runs_of(volume, ino, findings)? else {
        return Ok(());
    };
    let blocks: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
    if blocks > orphan::MAX_BLOCKS {
        let what = format_args!("an orphan file of {blocks} blocks");
        findings.add(Location::Orphans, what);
        return Ok(());
    }
    let seed = volume.owner_seed(ino, generation);
    let present = volume.sb.features().has_ro_compat(RoCompat::ORPHAN_PRESENT);
    for (_, pblk) in runs.iter().flat_map(blocks_of) {
        let block = volume.block(pblk)?;
        if let Err(error) = orphan::check(seed, pblk, &block) {
            findings.add(Location::Orphans, format_args!("block {pblk}: {error}"));
            continue;
        }
        for (slot, orphan) in orphan::orphans(&block).into_iter().flatten() {
            if !present {
                findings.add(
                    Location::Orphans,
                    format_args!("slot {slot} of block {pblk} is taken without orphan_present"),
                );
            }
            if orphan.get() > volume.sb.inodes_count() || orphan.get() < volume.sb.first_inode() {
                findings.add(
                    Location::Orphans,
                    format_args!("slot {slot} of block {pblk} holds inode {orphan}"),
                );
            } else if !all.insert(orphan) {
                findings.add(
                    Location::Orphans,
                    format_args!("inode {orphan} stands there twice"),
                );
            }
        }
    }
    Ok(())
}
