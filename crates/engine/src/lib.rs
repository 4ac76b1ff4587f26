//! The file system by inodes, under `extant` and the front ends (FUSE, a VMM).
//!
//! A [`Volume`] is a mounted file system; its calls take [`Node`]s, names in directories, and byte
//! positions. It replays and writes the journal, allocates, caches, and serves any number of
//! threads without a global lock. A damaged image is an [`Error`], never a panic. Paths are the
//! business of the crate `extant`.
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
//! # Modules
//!
//! The public face is `api`. A write passes through `api` → `file` (limits, data path, writeback) →
//! `map` (extent status, extent tree) → `alloc` (blocks) → the journal (`extant-jbd2`) → the device
//! (`extant-blockdev`). Names pass through `api` → `namei` → `dir` → `inode`. `mount` builds the
//! shared state, `volume::Fs`. `docs/ARCHITECTURE.md` has the order of the modules, which `cargo
//! xtask tidy` checks.
#![forbid(unsafe_code)]

mod alloc;
mod api;
mod attr;
mod config;
mod crypt;
mod dir;
mod file;
mod grow;
mod inline_data;
mod inode;
mod map;
mod mount;
mod namei;
mod new_inode;
mod orphan;
mod quota;
mod state;
mod symlink;
#[cfg(test)]
mod test_support;
mod types;
mod volume;
mod xattr;

/// The devices of a file system: files and block devices of the host, memory, and every other
/// [`BlockDevice`](device::BlockDevice).
pub mod device {
    pub use extant_blockdev::{
        BlockDevice, Completion, CowDevice, FileDevice, FileIo, IoOp, IoQueue, IoRequest, LoopUse,
        MemoryDevice, OpenError, OpenMode, Queueing, open_exclusively, refuse_file_in_use,
        refuse_in_use, refuse_target_in_use,
    };
    pub use extant_units::DevOff;
}

pub use crate::state::alloc::dirty_bound::DirtyBound;
#[doc(hidden)]
pub use api::inspect::verifier::Verifier;
pub use api::*;
pub use config::{AtimeMode, Backend, BufferedPath, DataMode, ErrorsPolicy, MountOptions, Tuning};
pub use extant_blockdev::IoBuf;
pub use extant_crypt::{
    ContentsMode, Context as EncryptionContext, Ivs, KeyId, NamesMode, Padding,
    Policy as EncryptionPolicy,
};
pub use extant_disk::damage;
pub use extant_disk::quota::{QuotaEntry, QuotaKind, QuotaLimits, QuotaTimes, QuotaUsage};
pub use extant_disk::verity::{MAX_SALT, MAX_SIGNATURE, TreeHash, VerityParams};
pub use extant_iomap::{MAX_VIEW, ReadView};
pub use extant_range_lock::ClearProbe;
pub use file::Finished;
pub use types::error::{Error, IoFailure, Location, Result, StopReason};
pub use types::interrupt::Interrupt;
pub use types::{
    AfterWrite, Attr, Cred, Defragmented, Dirent, FallocateMode, FileKind, FsStat, KeyStatus,
    RenameFlags, SeekTarget, SetAttr, SetTime, Timestamp, VerityMetadata, XattrMode,
};
