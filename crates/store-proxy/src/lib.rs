//! A line to an object store that is slow, fails and lies by plan.
//!
//! [`DelayedLine`] delays bytes of any protocol.
//!
//! # Concurrency
//! A thread for each connection, two for each way of a delayed line. All connections end when the
//! value is dropped.
#![forbid(unsafe_code)]

mod acceptor;
mod delayed_line;

pub use delayed_line::DelayedLine;
