//! Extant: ext4 outside of the kernel.
//!
//! This crate opens ext4 images and block devices inside of the calling process. It replays and
//! writes the journal, allocates, caches, and serves any number of threads without a global lock. A
//! damaged image is an [`Error`], never a panic.
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
//! fs.unmount()?; // a drop does the same, and logs the error
//! # Ok(())
//! # }
//! ```
//!
//! `extant mkfs disk.img 1G`, or [`mkfs::make`], makes an image. The directory `examples` has whole
//! programs.
//!
//! # Where to look
//!
//! | for | see |
//! |---|---|
//! | opening: read-only or not, mount options by Linux's names, credentials | [`Options`] |
//! | paths, as `std::fs` | [`Filesystem`], [`File`], [`OpenOptions`], [`Metadata`] |
//! | inodes and names, for front ends (FUSE, a VMM), beside paths | [`Volume`], [`Node`] |
//! | copies of trees: from the host, to it, between volumes | [`Filesystem::copy_in`], [`copy()`] |
//! | another device than an image file | [`device`] |
//! | ending a call that takes long | [`Interrupt`], [`Volume::interrupt_all`] |
//! | content and soundness of an image, without mounting it | [`ImageInfo`], [`check_image`] |
//! | kinds of damage, for code that decides by them | [`Error::corrupt_kind`], [`damage`] |
//! | repair of an image | [`fix_image`] |
//! | another size for an image | [`mod@resize`] |
//! | many direct requests in flight | [`DirectQueue`] |
//! | bytes in the page cache, without a copy | [`File::view`], [`File::edit`] |
//! | tests of programs that use this crate | [`testing`] |
//! | making an image | [`mkfs`] |
//! | building one from a folder, an archive or a container image | [`mod@build`] |
//! | switches and counters of the engine | [`Tuning`], [`Volume::stats`] |
//!
//! # Responsibility
//!
//! This crate is the level of paths. `extant-engine` is the file system by inodes, `extant-check`
//! the check, `extant-fix` the repair; their public items are exported here too.
//! `docs/ARCHITECTURE.md` has the map.
//!
//! # Invariants
//!
//! - After a crash at any moment the journal makes the file system consistent. It then has
//!   everything for which `sync_all` returned.
//! - An image has one writer or many readers; other openers get [`Error::InUse`].
//! - Damage that is found later stops changes ([`Error::Shutdown`], or [`Error::ReadOnly`]), of
//!   that file system only.
//! - Opening for reading never writes to the image: a journal that holds transactions is replayed
//!   in memory.
//!
//! Diagnostics are events of [`tracing`]; without a subscriber they go nowhere.
#![forbid(unsafe_code)]
#![warn(missing_debug_implementations)]

mod check;
mod contents;
mod copy;
mod cursor;
mod dir_names;
mod encrypted_files;
mod file;
mod file_attributes;
mod filesystem;
mod fix;
mod last_name;
mod metadata;
mod open_options;
mod options;
mod position;
mod read_dir;
mod rename;
mod sealed_files;
pub mod testing;
mod trees;
mod vectored;
mod walk;
mod walk_dir;

/// Building volumes from folders, archives and container images: [`build::build`].
pub use extant_build as build;
/// Making file systems: [`mkfs::make`] on a file or block device, [`mkfs::Options`] for what it is
/// to be like.
pub use extant_mkfs as mkfs;
/// Growing and shrinking of volumes that are not mounted: [`resize::resize_image`].
pub use extant_resize as resize;

pub use check::{
    CheckOptions, Finding, Report, check, check_image, find_superblock_copy, with_superblock_copy,
};
pub use copy::{
    CopyEnd, CopyError, CopyOptions, CopyRefusal, CopySide, CopyWatch, Existing, FileIdentity,
    Sparse, copy, copy_size,
};
pub use extant_engine::{
    AfterWrite, AtimeMode, Attr, Backend, BufferedPath, ClearProbe, ContentsMode, Cred, DataMode,
    Defragmented, DirectQueue, DirectTarget, Dirent, DirtyBound, EncryptionContext,
    EncryptionPolicy, Error, ErrorsPolicy, Extent, ExtentState, Extents, FallocateMode, Fiemap,
    FiemapExtent, FiemapFlags, FileKind, Finished, FsStat, GroupInfo, ImageInfo, Ino, Interrupt,
    IoBuf, IoFailure, Ivs, JournalInfo, KeyId, KeyStatus, Location, MAX_SALT, MAX_SIGNATURE,
    MAX_VIEW, MountOptions, NamesMode, Node, Padding, QuotaEntry, QuotaKind, QuotaLimits,
    QuotaTimes, QuotaUsage, ReadView, RenameFlags, Result, SeekTarget, SetAttr, SetTime,
    StopReason, Timestamp, TreeHash, Tuning, VerityMetadata, VerityParams, Volume, VolumeOptions,
    WriteAccess, XattrMode, damage, device,
};
/// The sides of a copy, for comparisons of trees.
#[doc(hidden)]
pub mod sides {
    pub use crate::copy::sides::*;
    pub use crate::copy::{HostTree, VolumeTree, device_number, device_numbers, filled};
    pub use crate::dir_names::DirNames;
}
#[doc(hidden)]
pub use extant_engine::{DataBudget, Verifier};
pub use file::File;
pub use filesystem::Filesystem;
pub use fix::{FixOptions, FixReport, fix, fix_image};
pub use metadata::{FileTimes, Metadata, Permissions};
pub use open_options::OpenOptions;
pub use options::Options;
pub use read_dir::{DirEntry, ReadDir};
pub use walk_dir::WalkDir;
