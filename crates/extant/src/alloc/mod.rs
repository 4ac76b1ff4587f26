//! Blocks and inodes: free space, reservations.

/// Blocks and inodes: free space, reservations.
#[derive(Default)]
pub(crate) struct Allocator {}
