//! What one mount shares: the volume's shape, its superblock, the latched failure, and [`Fs`],
//! which holds the state of every part.
//!
//! [`Fs`] parts the engine's files in two:
//!
//! * State, below it: plain data with its own locks. [`Fs`] and [`Inode`](crate::state::inode::Inode) are
//!   made of it, so it names neither. Each module has its state in files of their own, such as
//!   `alloc/allocator.rs` and `file/data_state.rs`.
//! * Operations, above it: functions and methods that take [`Fs`].
//!
//! Where state must reach upwards, it calls a trait object or a function that is handed in when it
//! is made: an inode its cache (`InodeHome`), the page cache and the journal a file's writeback
//! (`FileCallbacks`). [`Upcalls`] are two functions of upper modules that lower ones call.
//!
//! # Invariants
//! Nothing here changes a file or a directory. Every operation takes [`Fs`] as its first argument.

pub(crate) mod credits;
pub(crate) mod fs;
mod handles;
mod report_fault;
mod superblock_update;

pub(crate) use self::fs::{Fs, Upcalls};
pub(crate) use self::handles::{stop, whole};
pub(crate) use self::superblock_update::set_label;
