//! A line to an object store that is slow, fails and lies by plan.
//!
//! [`DelayedLine`] delays bytes of any protocol. [`MemoryStore`] is a small server of S3 that keeps
//! objects in memory; it knows what `extant-store` asks, and no signatures.
//!
//! # Concurrency
//! A thread for each connection, two for each way of a delayed line. All connections end when the
//! value is dropped.
#![forbid(unsafe_code)]

mod acceptor;
mod delayed_line;
mod memory_store;
mod message;

pub use delayed_line::DelayedLine;
pub use memory_store::MemoryStore;
