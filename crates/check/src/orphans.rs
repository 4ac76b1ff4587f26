//! Orphans: the list and the file to which the superblock leads, read before any table is scanned.

use std::collections::BTreeSet;

use extant_disk::damage::OrphanDamage;
use extant_disk::features::{Compat, RoCompat};
use extant_disk::inode::RawInode;
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
        let of_users = volume.sb.first_inode()..=volume.sb.inodes_count();
        if !of_users.contains(&ino.get()) || is_unused(&volume.record(ino)?) {
            findings.add(Location::Orphans, OrphanDamage::ListTarget { ino });
            break;
        }
        if !all.insert(ino) {
            findings.add(Location::Orphans, OrphanDamage::ListCircle { ino });
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
    if !all.is_empty() {
        let inodes = all.len();
        findings.note(Location::Orphans, OrphanDamage::Waiting { inodes });
    }
    Ok(all)
}

/// Returns whether a record has no kind: it was never used, or cleared. Linux goes no further at a
/// free inode.
fn is_unused(record: &[u8]) -> bool {
    RawInode::of(record).is_none_or(|raw| raw.mode.get() == 0)
}

fn from_file(volume: &Volume, findings: &Findings, all: &mut BTreeSet<Ino>) -> Result<()> {
    let Some(ino) = volume.sb.orphan_file_inode() else {
        findings.add(Location::Orphans, OrphanDamage::NoFile);
        return Ok(());
    };
    let Some((runs, generation)) = runs_of(volume, ino, findings)? else {
        return Ok(());
    };
    let blocks: u64 = runs.iter().map(|run| u64::from(run.len)).sum();
    if blocks > orphan::MAX_BLOCKS {
        findings.add(Location::Orphans, OrphanDamage::FileSize { blocks });
        return Ok(());
    }
    let seed = volume.owner_seed(ino, generation);
    let present = volume.sb.features().has_ro_compat(RoCompat::ORPHAN_PRESENT);
    for (_, block) in runs.iter().flat_map(blocks_of) {
        let bytes = volume.block(block)?;
        if let Err(error) = orphan::check(seed, block, &bytes) {
            findings.add(Location::Orphans, OrphanDamage::Block { block, error });
            continue;
        }
        for (slot, ino) in orphan::orphans(&bytes).into_iter().flatten() {
            if !present {
                findings.add(
                    Location::Orphans,
                    OrphanDamage::SlotWithoutFeature { slot, block },
                );
            }
            if ino.get() > volume.sb.inodes_count() || ino.get() < volume.sb.first_inode() {
                findings.add(Location::Orphans, OrphanDamage::Slot { slot, block, ino });
            } else if !all.insert(ino) {
                findings.add(Location::Orphans, OrphanDamage::Repeated { ino });
            }
        }
    }
    Ok(())
}
