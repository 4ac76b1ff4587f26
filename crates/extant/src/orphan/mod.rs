//! Inodes that a crash would leave unlinked or half truncated.

/// Inodes that a crash would leave unlinked or half truncated.
#[derive(Default)]
pub(crate) struct Orphans {}
