//! The fields of the superblock that say whether the volume is in use.

use std::sync::Arc;

use extant_blockdev::BlockDevice;
use extant_disk::features::Incompat;
use extant_disk::superblock::{RawSuperblock, State};
use extant_units::{Blocks, at_most_u32};

use crate::state::group::Totals;
use crate::state::volume::mounted_superblock::{now, write_directly};
use crate::types::error::Result;

pub(super) fn set_recover(raw: &mut RawSuperblock, on: bool) {
    let mut features = raw.features();
    features.incompat.set(Incompat::RECOVER, on);
    raw.set_features(features);
}

/// Marks the volume on the device as in use, before the first transaction: it needs its journal, or
/// without one a check, if this mount does not end in order. The totals are the groups'. A mount
/// that only recovers does not count.
pub(super) fn mark_in_use(
    dev: &Arc<dyn BlockDevice>,
    has_journal: bool,
    totals: Totals,
    counts: bool,
) -> Result<()> {
    write_directly(dev, |raw| {
        if !raw.state().contains(State::VALID) || raw.state().contains(State::ERROR) {
            tracing::warn!(
                "the volume was not checked after an error or an unclean end: running e2fsck is \
                 recommended"
            );
        }
        if has_journal {
            set_recover(raw, true);
        } else {
            raw.set_state(raw.state() - State::VALID);
        }
        if counts {
            raw.set_mount_time(now());
            raw.mnt_count.set(raw.mnt_count.get().saturating_add(1));
        }
        set_totals(raw, totals);
    })
}

pub(super) fn set_totals(raw: &mut RawSuperblock, totals: Totals) {
    raw.set_free_blocks_count(Blocks::new(totals.free_blocks));
    // The sum of the groups is at most the number of inodes, which fits.
    raw.free_inodes_count.set(at_most_u32(totals.free_inodes));
}
