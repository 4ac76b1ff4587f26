//! Features of volumes that are checked, and of those that may be changed.

use extant_disk::features::{FeatureSets, Incompat, RoCompat};
use extant_disk::superblock::Superblock;

use crate::error::{Error, Result};

/// Ro-compat features of volumes that may be changed without a mount: those that are supported, and
/// `read-only`, which changes nothing in the structures.
const WRITTEN_RO_COMPAT: RoCompat = RoCompat::SUPPORTED.union(RoCompat::READONLY);

/// Ro-compat features of volumes that are checked and repaired: those, and some that change little.
const CHECKED_RO_COMPAT: RoCompat = WRITTEN_RO_COMPAT.union(RoCompat::SHARED_BLOCKS);

/// Fails for a volume that cannot be checked.
pub(crate) fn require_checked_features(features: FeatureSets) -> Result<()> {
    require(features, Incompat::SUPPORTED, CHECKED_RO_COMPAT)
}

/// Fails for a volume with a feature that is at most read: it may be checked, and not changed.
///
/// # Errors
/// [`Error::UnsupportedFeature`] names it.
pub fn require_written_features(sb: &Superblock) -> Result<()> {
    require(sb.features(), Incompat::SUPPORTED, WRITTEN_RO_COMPAT)
}

/// Fails for a volume that cannot be repaired. Beside those that may be changed, ones whose files
/// share blocks can: a repair gives none of these back.
///
/// # Errors
/// [`Error::UnsupportedFeature`] names the feature.
pub fn require_repaired_features(sb: &Superblock) -> Result<()> {
    require(sb.features(), Incompat::SUPPORTED, CHECKED_RO_COMPAT)
}

fn require(features: FeatureSets, incompat: Incompat, ro_compat: RoCompat) -> Result<()> {
    let unknown = (features.incompat - incompat).names();
    match unknown
        .chain((features.ro_compat - ro_compat).names())
        .next()
    {
        Some(name) => Err(Error::UnsupportedFeature(name)),
        None => Ok(()),
    }
}
