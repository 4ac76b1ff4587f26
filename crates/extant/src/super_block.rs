//! The superblock's changing fields.

/// The superblock's changing fields.
#[derive(Default)]
pub(crate) struct SuperBlock {}
