//! What is known of a file's map in memory.

/// What is known of a file's map in memory.
#[derive(Default)]
pub(crate) struct ExtentStatus {}

impl ExtentStatus {
    /// The sequence.
    pub(crate) fn sequence(&self) -> u64 {
        0
    }

    /// Blocks in delayed state.
    pub(crate) fn delayed_blocks(&self) -> u64 {
        0
    }
}
