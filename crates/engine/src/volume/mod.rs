//! What one mount shares: the volume's shape, its superblock, the latched failure, and [`Fs`],
//! which holds the state of every part.
//!
//! # Invariants
//! Nothing here changes a file or a directory. Every module above takes [`Fs`] as its first
//! argument.

pub(crate) mod credits;
pub(crate) mod edit_marks;
pub(crate) mod fault;
pub(crate) mod fs;
pub(crate) mod layout;
pub(crate) mod metadata_kind;
pub(crate) mod mmp;
pub(crate) mod mounted_superblock;
pub(crate) mod stats;
pub(crate) mod system_zones;

pub(crate) use self::fs::Fs;
