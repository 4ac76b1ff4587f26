//! The file system by inodes: what `extant` and the front ends (FUSE, a VMM) stand on.
//!
//! A [`Volume`] is a mounted file system; its calls take [`Node`]s, names in directories, and byte positions. It replays and writes the
//! journal, allocates, caches, and serves any number of threads without a global lock. A damaged image is an [`Error`], never a panic.
//! Paths are the business of the crate `extant`.
//!
//! ```no_run
//! use extant_engine::{Cred, VolumeOptions};
//!
//! # fn main() -> extant_engine::Result<()> {
//! let volume = VolumeOptions::new().write(true).open("disk.img")?;
//! let file = volume.create(&volume.root()?, b"hello", 0o644, &Cred::root())?;
//! volume.write(&file, 0, b"hi", &Cred::root())?;
//! volume.fsync(&file, false)?;
//! volume.unmount()?;
//! # Ok(())
//! # }
//! ```
//!
//! Diagnostics are events of [`tracing`]; without a subscriber they go nowhere.
//!
//! # How it is cut
//!
//! The public face is `api`; the way of a write can be followed through the modules in this order:
//! `api` → `file` (limits, data path, writeback) → `map` (extent status, extent tree) → `alloc` (blocks) →
//! the journal (`extant-jbd2`) → the device (`extant-blockdev`).
//! Names go `api` → `namei` → `dir` → `inode`. `mount` builds the shared state in `fs`. `docs/ARCHITECTURE.md` has the order of the modules,
//! which `cargo xtask tidy` checks.
#![forbid(unsafe_code)]

mod alloc;
mod api;
mod attr;
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
mod interrupt;
mod layout;
mod map;
mod mmp;
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

/// What a file system can stand on: files and block devices of the host, memory, and whatever implements [`BlockDevice`](device::BlockDevice).
pub mod device {
    pub use extant_blockdev::{
        BlockDevice, Completion, CowDevice, FileDevice, FileIo, IoOp, IoQueue, IoRequest, LoopUse,
        MemoryDevice, OpenError, OpenMode, Queueing,
    };
    pub use extant_units::DevOff;
}

pub use api::*;
pub use cred::Cred;
pub use error::{Error, Location, Result};
pub use extant_blockdev::IoBuf;
pub use extant_extent_io_tree::ClearProbe;
pub use extant_iomap::{MAX_VIEW, ReadView};
pub use file::Finished;
pub use interrupt::Interrupt;
pub use options::{AtimeMode, Backend, DataMode, ErrorsPolicy, MountOptions};
pub use tuning::{BufferedPath, Tuning};
pub use types::{
    Attr, Defragmented, Dirent, FallocateMode, FileKind, FsStat, RenameFlags, SeekTarget, SetAttr,
    SetTime, Timestamp, XattrMode,
};
#[doc(hidden)]
pub use verify::Verifier;
