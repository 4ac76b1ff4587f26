//! Rings of the kernel (io_uring) whose requests own the memory that they name.
//!
//! # Responsibility
//! A [`Ring`] has slots for items, the file that its requests are for, and the calls into the
//! kernel. It reads, writes and syncs the file (`transfers`), or it gives commands to the file's
//! driver ([`CommandRing`]).
//!
//! # Invariants
//! Why the `unsafe` calls are sound: the kernel reads and writes the memory of a request at any
//! time between its submission and its completion.
//!
//! 1. A request names memory of an item, which the ring owns, in a slot. The slot's number travels
//!    with the request.
//! 2. The item is lent before the request is pushed. It is here again when the completion with that
//!    number has come, or when it is known that the kernel never takes the request. In between
//!    nothing touches, moves or frees it.
//! 3. No borrowed memory is given to the kernel (`T: 'static`), so nothing depends on a caller that
//!    waits. A ring that is forgotten leaks its items with it.
//! 4. Dropping a ring of transfers waits for every completion before an item is freed. Commands do
//!    not end by themselves: their ring is closed, then its items are freed. The kernel works for
//!    it in calls of its thread only (`IORING_SETUP_DEFER_TASKRUN`), and for a closed one no more.
#![deny(unsafe_code)]

mod commands;
mod ring;
mod transfers;

pub use commands::{CommandProbe, CommandRing};
pub use ring::{Ended, Ring};
pub use transfers::Transfer;
