//! A line to an object store that is slow, fails and lies by plan.
//!
//! [`StoreProxy`] stands between a client of S3 and its server, on the loopback. It forwards each
//! request as it is: the signature of S3 covers the header `Host`, so the server sees the name that
//! the client used. A plan decides the [`StoreFault`] of each request, and what crosses the line is
//! counted. [`DelayedLine`] delays bytes of any protocol. [`MemoryStore`] is a small server of S3
//! that keeps objects in memory; it knows what `extant-store` asks, and no signatures.
//!
//! # Concurrency
//! A thread for each connection, two for each way of a delayed line. All connections end when the
//! value is dropped.
#![forbid(unsafe_code)]

mod acceptor;
mod counts;
mod delayed_line;
mod fault;
mod memory_store;
mod message;
mod proxy;

pub use counts::Traffic;
pub use delayed_line::DelayedLine;
pub use fault::{RequestLine, StoreFault};
pub use memory_store::MemoryStore;
pub use proxy::StoreProxy;
