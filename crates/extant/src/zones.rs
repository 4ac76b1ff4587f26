//! Blocks that no file may claim.

/// Blocks that no file may claim.
#[derive(Default)]
pub(crate) struct SystemZones {}
