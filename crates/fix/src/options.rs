//! How a repair runs.

use extant_check::CheckOptions;

/// How to repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixOptions<'a> {
    /// Finds out what would be done, and writes nothing.
    pub dry_run: bool,
    /// The byte of a copy of the superblock that takes the place of the first, which cannot be
    /// used.
    pub superblock: Option<u64>,
    /// How each check on the way runs. Its limit of findings is that of repairs in one round.
    pub check: CheckOptions<'a>,
}
