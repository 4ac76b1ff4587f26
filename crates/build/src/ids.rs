//! Numbers of a tree's nodes and names.

/// A node's number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct NodeId(pub(crate) u32);

/// A name's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NameId(pub(crate) u32);

impl NodeId {
    /// The root directory.
    pub(crate) const ROOT: Self = Self(0);
}
