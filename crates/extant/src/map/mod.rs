//! From file blocks to disk blocks.

/// From file blocks to disk blocks.
#[derive(Default)]
pub(crate) struct ExtentStatusTree {}
