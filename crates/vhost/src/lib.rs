//! Devices of virtual machines, served by this process: back-ends of the vhost-user protocol.
//!
//! # Responsibility
//! A virtual machine monitor (qemu, cloud-hypervisor, crosvm) connects to a
//! Unix socket ([`Socket`]) and shares the guest's memory. [`serve_block`] serves a virtio-blk
//! device over a [`BlockDevice`](extant_blockdev::BlockDevice) then, and [`serve_fs`] a virtio-fs
//! device over a [`GuestVolume`](extant_fuse::GuestVolume).
//!
//! From the monitor down: `connection` (one monitor after the other) → the rust-vmm crates, which
//! speak the protocol and map the guest's memory → `block_backend` (queues and their threads) →
//! `chain` (a request as bytes) → `block` (requests); and for file systems `fs_backend` → `jobs`
//! → `sessions`, whose workers call the server of the FUSE mount.
//!
//! # Invariants
//! - All that lies in the guest's memory is untrusted, and may change while it is looked at. Each
//!   descriptor is read once, each length is bounded before memory is taken for it, and a queue
//!   whose ring contradicts the rules is not served any more (`broken`).
//! - A queue of a block device completes its requests in the order in which the guest made them
//!   available. So the ring itself says which are done: a back-end that died is started again, and
//!   the monitor has it begin behind the last completed one.
//! - A queue that the monitor has stopped writes no more to the guest's memory.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "tests"))]

mod block;
mod block_backend;
mod block_config;
mod broken;
mod chain;
mod connection;
mod fs_backend;
#[cfg(test)]
mod guest_rig;
mod jobs;
mod queue;
mod sessions;

pub use block_backend::{BlockOptions, serve_block};
pub use connection::{Error, Socket, Stopper};
pub use fs_backend::{FsOptions, fs_workers, serve_fs};
