//! The public face of the library.
//!
//! Two levels, one engine. [`Volume`] speaks of inodes and names in directories: what a front end (FUSE, a
//! C ABI, a VMM) needs. [`Filesystem`] stands on it and speaks of paths, with the habits of `std::fs`.
//! Nothing in here knows the disk format; every call ends in one function of the engine.
//!
//! Locks: none of its own. Concurrency: every type is `Send + Sync`, and calls on different inodes run in
//! parallel.

mod bounds;
mod direct;
mod extents;
mod fiemap;
mod file;
mod filesystem;
mod info;
mod layout;
mod metadata;
mod node;
mod options;
mod read_dir;
mod space;
mod trees;
mod vectored;
mod volume;
mod walk;

pub use direct::DirectQueue;
pub use extant_units::Ino;
pub use extents::{Extent, ExtentState, Extents};
pub use fiemap::{Fiemap, FiemapExtent, FiemapFlags};
pub use file::{File, OpenOptions};
pub use filesystem::Filesystem;
pub use info::{GroupInfo, ImageInfo, JournalInfo};
pub use metadata::{FileTimes, Metadata, Permissions};
pub use node::Node;
pub use options::Options;
pub use read_dir::{DirEntry, ReadDir};
pub use volume::Volume;
