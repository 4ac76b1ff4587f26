//! The FUSE front end: an [`extant_engine::Volume`] as a mounted file system.
//!
//! The protocol is spoken here, on `/dev/fuse`, and not through a library: what a mount costs is
//! round trips and wake-ups, and the loop that reads requests (`pool`) decides about the second.
//! `docs/DECISIONS.md` says why.
//!
//! From the kernel up: `device` (the queue) → `pool` (threads) → `request` (bytes into checked
//! operations) → `server` (calls of the file system) → `reply`. `uring` takes the places of the
//! first two where the kernel allows it, and `traffic` is what the others know of it. `serve` is
//! what both ways have in common. `node_table` counts what the kernel
//! knows, `in_flight` what is being served, `init` is the first message, `mount` attaches and
//! detaches, `control` reports to a `waiter` how an unmount ended, `live` serves the counters,
//! `guest` serves the kernel of a virtual machine in place of this host's,
//! `resize` is the request to grow, `quotas` are those about quotas, `keeper` does for a confined
//! daemon what needs privileges, `session` puts them together. `testing` serves requests that no
//! kernel has sent.
#![deny(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod abi;
mod capabilities;
mod control;
mod counters;
mod descriptors;
mod device;
mod errno;
mod fd_passing;
mod full_volume;
mod guest;
mod in_flight;
mod init;
mod keeper;
mod keeper_service;
mod keys;
mod live;
mod mount;
mod node_table;
mod open_writers;
mod pool;
mod quotas;
mod reply;
mod request;
mod resize;
mod sealing;
mod serve;
mod server;
mod session;
#[doc(hidden)]
pub mod testing;
mod traffic;
mod unmounter;
mod uring;
mod waiter;

pub use control::CONTROL_ATTRIBUTE;
pub use descriptors::take_inherited_and_close_rest;
pub use guest::{GuestSession, GuestVolume};
pub use keeper::Keeper;
pub use keeper_service::{Left, keep};
pub use keys::{add_key, encryption, key_status, remove_key, set_encryption_policy};
pub use live::{STATS_ATTRIBUTE, stats};
pub use mount::{
    Connection, MountEntry, MountOptions, OptionError, detach, is_dead, remount, take_off_dead,
    would_replace_dead,
};
pub use quotas::{QuotaChange, quotas, set_quota};
pub use resize::grow;
pub use sealing::{enable_verity, measure_verity};
pub use session::{HostSide, Mount, MountError, Requests};
pub use unmounter::Unmounter;
pub use waiter::UnmountWaiter;
