//! How a repair runs.

use extant_check::CheckOptions;

/// How to repair.
#[derive(Clone, Copy, Debug, Default)]
pub struct FixOptions<'a> {
    /// Finds out what would be done, and writes nothing.
    pub dry_run: bool,
    /// How each check on the way runs. Its limit of findings is that of repairs in one round.
    pub check: CheckOptions<'a>,
}
