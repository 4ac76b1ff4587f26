//! The bitmap of a group while its volume is resized.

/// The blocks of a group.
pub(crate) struct Bits {
    /// In use as it becomes. Bits past the end of the group are set.
    pub(crate) now: Vec<u8>,
    /// In use as it was, or as it becomes.
    pub(crate) busy: Vec<u8>,
    /// Free blocks as it becomes: counted by what was taken and released.
    pub(crate) free: u32,
    /// Set if the bitmap has to be stored.
    pub(crate) changed: bool,
}
