//! TODO

pub(crate) mod alloc;
pub(crate) mod file;
pub(crate) mod group;
pub(crate) mod inode;
pub(crate) mod map;
pub(crate) mod orphan;
pub(crate) mod volume;
pub(crate) mod xattr;
