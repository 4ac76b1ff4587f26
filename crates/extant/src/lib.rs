//! Extant: ext4 outside of the kernel.
//!
//! This crate opens ext4 images and block devices inside of the calling process: it replays and writes the journal, allocates,
//! caches, and serves any number of threads without a global lock. A damaged image is an [`Error`], never a panic.
//!
//! [`Filesystem`] has the habits of [`std::fs`]; a [`File`] reads, writes and seeks:
//!
//! ```no_run
//! use std::io::Write;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fs = extant::Filesystem::options().write(true).open("disk.img")?;
//! fs.create_dir_all("/srv/site")?;
//! let mut file = fs.create("/srv/site/hello")?;
//! file.write_all(b"hi")?;
//! file.sync_all()?;
//! for entry in fs.read_dir("/srv")? {
//!     println!("{}", entry?.file_name().display());
//! }
//! fs.unmount()?; // dropping it does the same, and logs what it would have returned
//! # Ok(())
//! # }
//! ```
//!
//! An image is made by `mke2fs -t ext4 disk.img 1G`, which needs no root either. The directory `examples` has whole programs.
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | opening: read-only or not, mount options by Linux's names, who operations run as | [`Options`] |
//! | paths, as `std::fs` | [`Filesystem`], [`File`], [`OpenOptions`], [`Metadata`] |
//! | inodes and names in directories, for front ends (FUSE, a VMM): all of them at once are fine | [`Volume`], [`Node`] |
//! | a device of one's own in the place of an image file | [`device`] |
//! | ending a call that takes long | [`Interrupt`], [`Volume::interrupt_all`] |
//! | what an image is made of, and whether it is sound, without mounting it | [`ImageInfo`], [`check_image`] |
//! | many direct requests in flight | [`DirectQueue`] |
//! | bytes in the page cache, without a copy | [`File::view`], [`File::edit`] |
//! | switches of the engine, and what it counts | [`Tuning`], [`Volume::stats`] |
//!
//! # What holds
//!
//! - After a crash at any moment the journal makes the file system consistent, with everything in it that `sync_all` has returned for.
//! - An image has one writer or many readers; the others get [`Error::InUse`].
//! - Damage that is found later stops changes ([`Error::Shutdown`], or [`Error::ReadOnly`]), of that file system only.
//! - Opening for reading never writes to the image: a journal that was left dirty is replayed in
//!   memory.
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
pub use check::{CheckOptions, Finding, Report, check, check_image};
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
