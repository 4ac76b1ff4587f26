//! Other programs on this host, and the guards around them.
//!
//! Images that `mke2fs` makes, mounts by Linux, by `extant mount`, by fuse2fs and by libfuse's
//! pass-through, commands with a time limit, temporary directories, and what a machine may lack
//! ([`Need`]). The benchmarks compare with these programs, the behaviour suites test with them. The
//! crate does not depend on the file system, so that it cannot share a misunderstanding with it.
//!
//! Every guard (temporary directory, mount, process) cleans up when dropped, also while a test
//! panics; [`clean_up`] does so for all of them when a signal ends the process.
#![forbid(unsafe_code)]

pub mod cmd;
pub mod content;
pub mod encryption;
mod ending;
pub mod error;
pub mod fuse_rings;
pub mod image;
mod lookup;
pub mod loop_device;
mod made;
pub mod mount;
pub mod need;
pub mod patience;
pub mod programs;
pub mod rng;
pub mod tmp;

pub use cmd::Cmd;
pub use ending::clean_up;
pub use error::{Context, Error, Result};
pub use fuse_rings::FuseRings;
pub use image::Image;
pub use loop_device::LoopDevice;
pub use mount::Mount;
pub use need::Need;
pub use patience::patience;
pub use rng::Rng;
pub use tmp::TempDir;
