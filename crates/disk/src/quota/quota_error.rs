//! Damage of a file of quotas.

/// Damage of a file of quotas that its own bytes show.
#[derive(thiserror::Error, Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum QuotaError {
    /// The file ends before a block that it needs.
    #[error("block {block} of the quotas is behind the end")]
    Short {
        /// The block of [`super::BLOCK`] bytes.
        block: u32,
    },
    /// The magic number is not that of the kind.
    #[error("quotas with magic {found:#010x}")]
    Magic {
        /// As stored.
        found: u32,
    },
    /// The version is not 1.
    #[error("quotas of version {found}")]
    Version {
        /// As stored.
        found: u32,
    },
    /// The header counts more blocks than the file has, or too few for a tree.
    #[error("quotas of {blocks} blocks in a file of {bytes} bytes")]
    Blocks {
        /// As stored.
        blocks: u32,
        /// The file's size.
        bytes: u64,
    },
    /// A reference leads to a block that cannot be there.
    #[error("block {block} of the quotas leads to block {target}")]
    Reference {
        /// The block that has it.
        block: u32,
        /// As stored.
        target: u32,
    },
    /// The tree, or the list of blocks with room, leads to a block twice.
    #[error("block {block} of the quotas has two places")]
    Repeated {
        /// That block.
        block: u32,
    },
    /// A block counts other entries than it has.
    #[error("block {block} of the quotas counts {counted} entries and has {found}")]
    Count {
        /// The block.
        block: u32,
        /// As stored.
        counted: u16,
        /// In use.
        found: u16,
    },
    /// The tree leads to a block of entries that has none for the id.
    #[error("block {block} of the quotas has no entry for id {id}")]
    NoEntry {
        /// The block.
        block: u32,
        /// The id.
        id: u32,
    },
    /// A block of entries has some that the tree does not lead to.
    #[error("block {block} of the quotas has entries that nothing leads to")]
    Unreached {
        /// The block.
        block: u32,
    },
    /// A list of blocks with room, or without use, has a block that does not belong there, or whose
    /// way back is wrong.
    #[error("block {block} of the quotas is in the wrong list")]
    List {
        /// The block.
        block: u32,
    },
    /// No more blocks can be numbered.
    #[error("the file of quotas is full")]
    Full,
}
