//! The public face of the engine: [`Volume`], with inodes and names in directories.
//!
//! Nothing in here knows the disk format; every call ends in one function of the engine.
//!
//! # Locks
//! None of its own.
//!
//! # Concurrency
//! Every type is `Send + Sync`, and calls on different inodes run in parallel.

mod bounds;
mod data_budget;
mod defragment;
mod dir_batch;
mod direct;
mod encryption;
mod extents;
mod fast_commits;
mod fiemap;
mod file_data;
mod free_space;
mod info;
pub(crate) mod inspect;
mod label;
mod node;
mod options;
mod permission;
mod protection;
mod resizing;
mod usage_limits;
mod vectored;
mod volume;

pub use data_budget::DataBudget;
pub use dir_batch::DirBatch;
pub use direct::{DirectQueue, DirectTarget};
pub use extant_units::Ino;
pub use extents::{Extent, ExtentState, Extents};
pub use fast_commits::{AfterFastCommits, after_fast_commits, replay_fast_commits};
pub use fiemap::{Fiemap, FiemapExtent, FiemapFlags};
pub use info::{GroupInfo, ImageInfo, JournalInfo};
pub use node::Node;
pub use options::VolumeOptions;
pub use protection::WriteAccess;
pub use volume::Volume;
