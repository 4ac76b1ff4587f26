//! The block of multiple mount protection.

use extant_disk::damage::{BlockDamage, SuperblockDamage};
use extant_disk::features::Incompat;
use extant_disk::location::Location;
use extant_disk::mmp::{Mmp, MmpState};
use extant_units::Pblk;

use crate::error::Result;
use crate::findings::Findings;
use crate::volume::Volume;

/// Checks the block. Returns its location, if the volume has one in its bounds.
pub(crate) fn check(volume: &Volume, findings: &Findings) -> Result<Option<Pblk>> {
    if !volume.sb.features().has_incompat(Incompat::MMP) {
        return Ok(None);
    }
    let block = Pblk::new(volume.sb.raw().mmp_block.get());
    if block == volume.sb.first_data_block() || !volume.holds(block, 1) {
        findings.add(Location::Superblock, SuperblockDamage::MmpOutside { block });
        return Ok(None);
    }
    let bytes = volume.block(block)?;
    match Mmp::parse(&bytes, volume.csum_seed) {
        Ok(mmp) if mmp.state() == MmpState::Clean => {}
        Ok(_) => findings.note(Location::Block(block), BlockDamage::HostUses),
        Err(error) => findings.add(Location::Block(block), error),
    }
    Ok(Some(block))
}
