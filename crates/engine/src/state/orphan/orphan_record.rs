//! Where an inode is recorded as an orphan.

/// How an inode is recorded as an orphan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum OrphanRecord {
    /// Not at all: it is no orphan.
    #[default]
    None,
    /// In the list.
    Listed,
    /// In the orphan file: block and slot.
    Slot {
        /// Which of the file's blocks.
        block: usize,
        /// Which slot.
        slot: usize,
    },
}
