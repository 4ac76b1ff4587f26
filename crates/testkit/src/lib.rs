//! Kit that the behaviour suites and the benchmarks share. Development only: nothing here ships.
//!
//! The kit knows file systems from the outside only: images made by `mke2fs`, mounts by Linux, by
//! `extant mount` and by its peers, trees compared entry by entry, storms of operations that
//! remember what was promised to them. It does not depend on the crate `extant`, so that it
//! cannot share a misunderstanding with it.
//!
//! Every guard (temporary directory, mount, process) cleans up when dropped, also while a test
//! panics. What a machine lacks is skipped with a reason and counted ([`need()`]).
#![forbid(unsafe_code)]

pub mod apart;
pub mod crash;
pub mod failing_host;
pub mod faults;
pub mod fuse_file;
pub mod gate;
pub mod generations;
pub mod inject;
pub mod limit;
pub mod lossy;
pub mod mount;
pub mod mutate;
pub mod need;
pub mod odd;
pub mod promise;
pub mod recorded_linux;
pub mod recorder;
#[cfg(extant_shuttle)]
pub mod schedules;
pub mod stacks;
pub mod storm;
pub mod tools;
pub mod tree;

pub use extant_host::{
    Cmd, Context, Error, FuseRings, Image, LoopDevice, Mount, Result, Rng, TempDir, bail, cmd,
    content, encryption, ensure, image, patience, tmp,
};
pub use faults::{Fault, FaultyDevice, Request, RequestKind};
pub use gate::{Closed, Gate, GatedDevice};
pub use limit::{Stop, Watchdog, is_listening, wait_until};
pub use lossy::{Loss, LossyDevice};
pub use mount::Subject;
pub use need::{Need, need, report};
pub use recorded_linux::RecordedLinux;
pub use recorder::{Event, Recorder};
pub use tree::Tree;
