//! State that one mount shares: the volume's shape, its superblock, the latched failure, and
//! [`Fs`], which holds the state of every part.
//!
//! [`Fs`] parts the engine's files in two: [state](crate::state) below it, and above it operations,
//! which take [`Fs`]. [`Upcalls`] are two functions of upper modules that lower ones call.
//!
//! # Invariants
//! Nothing here changes a file or a directory. Every operation takes [`Fs`] as its first argument.

pub(crate) mod credits;
pub(crate) mod fs;
mod handles;
mod report_fault;
mod superblock_update;

pub(crate) use self::fs::{Fs, Upcalls};
pub(crate) use self::handles::{PendingCommit, all_or_abort, stop};
pub(crate) use self::superblock_update::set_label;
