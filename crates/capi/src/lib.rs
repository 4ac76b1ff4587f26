//! The C interface: `libextant` and `include/extant.h`.
//!
//! Each exported function takes C's values apart, calls the crate `extant`, and turns the result
//! into a number: 0 or a count, or a negative errno. The header documents the functions for C;
//! the page `extant.3` is their manual.
//!
//! # Invariants
//! - Nothing unwinds into C: each function runs inside of `outcome::of_call`, which turns a panic
//!   into `-EIO`.
//! - A pointer that is null where a value is needed gives `-EFAULT`. A string is read up to the
//!   longest that the call accepts, and never further. A length that no object can have gives
//!   `-EINVAL`.
//! - The functions here and the declarations of the header agree, which `tests/interface` checks.
//!
//! # Concurrency
//! Every handle may be used by many threads at once. A call that takes a handle away
//! (`extant_unmount`, `extant_close`, `extant_closedir`, `extant_queue_close`) must be the only
//! call on that handle, and the last one. Open files, listings and queues outlive their file
//! system: their calls then fail.
//!
//! # Safety
//! The one contract of all exported functions: a pointer is null, or it points to memory of the
//! type and the length that the header says, which no other thread changes during the call. A
//! handle is null, or it came from the call that opens one and was not closed.
#![deny(unsafe_op_in_unsafe_fn)]

pub mod attributes;
pub mod directory;
pub mod file;
pub mod filesystem;
pub mod maker;
pub mod message;
pub mod names;
pub mod position;
pub mod queue;
pub mod vectored;
pub mod xattr;

mod arguments;
mod outcome;
