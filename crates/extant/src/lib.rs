//! Extant: ext4 outside of the kernel.
//!
//! This crate mounts ext4 images and block devices inside of the calling process: it replays and writes
//! the journal, allocates, caches, and serves any number of threads without a global lock. The public
//! face is `api`; the way of a write can be followed through the modules in this order:
//!
//! `api` → `file` (limits, data path, writeback) → `map` (extent status, extent tree) → `alloc` (blocks) →
//! the journal (`extant-jbd2`) → the device (`extant-blockdev`).
//!
//! Names go `api` → `namei` → `dir` → `inode`. `mount` builds the shared state in `fs`. `docs/ARCHITECTURE.md` has the order of the modules,
//! which `cargo xtask tidy` checks.
#![forbid(unsafe_code)]

mod alloc;
mod api;
mod attr;
mod check;
mod check_kind;
mod counters;
mod cred;
mod credits;
mod deletion;
mod dir;
mod editing;
mod error;
mod fault;
mod file;
mod fs;
mod group;
mod inode;
mod layout;
mod map;
mod mount;
mod namei;
mod new_inode;
mod options;
mod orphan;
mod privileges;
mod statfs;
mod stats;
mod super_block;
mod symlink;
#[cfg(test)]
mod test_mount;
#[cfg(test)]
mod test_rig;
mod tuning;
mod types;
mod verify;
mod way;
mod xattr;
mod zones;

pub use api::*;
pub use check::{CheckOptions, Finding, Report, check, check_image};
pub use cred::Cred;
pub use error::{Error, Place, Result};
pub use extant_blockdev::IoBuf;
pub use extant_extent_io_tree::ClearProbe;
pub use extant_iomap::{MAX_VIEW, ReadView};
pub use file::Finished;
pub use options::{AtimeMode, Backend, DataMode, ErrorsPolicy, MountOptions};
pub use tuning::{BufferedPath, Tuning};
pub use types::{
    Attr, Defragmented, Dirent, FallocateMode, FileKind, FsStat, RenameFlags, SeekTarget, SetAttr,
    SetTime, Timestamp, XattrMode,
};
#[doc(hidden)]
pub use verify::Verifier;
