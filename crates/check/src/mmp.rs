//! The block of multiple mount protection.

use extant_disk::features::Incompat;
use extant_disk::mmp::{Mmp, MmpState};
use extant_units::Pblk;

use super::report::Findings;
use super::volume::Volume;
use extant_disk::location::Location;

/// Checks the block; where it lies, if the volume has one in its bounds.
pub(super) fn check(volume: &Volume, findings: &Findings) -> Option<Pblk> {
    if !volume.sb.features().has_incompat(Incompat::MMP) {
        return None;
    }
    let block = Pblk::new(volume.sb.raw().mmp_block.get());
    if block == volume.sb.first_data_block() || !volume.holds(block, 1) {
        let what = format_args!("the block of multiple mount protection, {block}, lies outside");
        findings.add(Location::Superblock, what);
        return None;
    }
    let bytes = volume.block(block).ok()?;
    match Mmp::parse(&bytes, volume.csum_seed) {
        Ok(mmp) if mmp.state() == MmpState::Clean => {}
        Ok(_) => findings.note(
            Location::Block(block),
            "another host uses the volume, or it was not unmounted",
        ),
        Err(error) => findings.add(Location::Block(block), error),
    }
    Some(block)
}
