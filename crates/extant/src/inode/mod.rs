//! Inodes: in memory, on disk, and between the two.

mod core;
mod object;

pub(crate) use self::core::InodeCore;
pub(crate) use self::object::Inode;

/// The inodes in memory (filled in by this module).
#[derive(Default)]
pub(crate) struct InodeCache {}
