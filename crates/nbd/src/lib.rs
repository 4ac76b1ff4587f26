//! A block device over the network: a client of the NBD protocol, and a server.
//!
//! # Responsibility
//! [`NbdDevice`] is a [`BlockDevice`](extant_blockdev::BlockDevice) whose bytes a server keeps:
//! `nbdkit`, `qemu-nbd`, `nbd-server` and others. [`Address`] is how one is written:
//! `nbd://host[:port]/export`, `nbd+unix:///export?socket=PATH`, and `nbds` for TLS.
//!
//! The path of a request: the device cuts it to what the server takes and starts it in a flight;
//! the flight sends it by a connection of the session; a thread per connection reads the replies
//! and puts a letter into the flight's mailbox.
//!
//! The other side is in `server`: [`Server`] and [`serve_stream`] let clients use a device of this
//! process.
//!
//! # Invariants
//! - Only a reply believes a request. A write whose reply has come is kept in the write log until
//!   the reply of a flush that was sent later. When a connection is lost, the log is written again
//!   over new connections before any other request is sent.
//! - If a write may still be carried out by the server later (its reply timed out), or the log
//!   cannot be written again, the device fails for good: no later flush succeeds.
//! - The server is not trusted. A reply of it fills at most the buffer of the request that it
//!   names; every wait has an end.
//!
//! # Locks
//! Each module's locks are leaves, but `sending` of a connection, which is held while the table of
//! requests in flight is locked.
//!
//! # Errors
//! Errors of the server are those of the host's system calls with the same number. Others say what
//! the server did.
#![forbid(unsafe_code)]

mod address;
mod channel;
mod connection;
mod counters;
mod coverage;
mod device;
mod error;
mod export;
mod flight;
mod in_flight;
mod link;
mod loss;
mod mailbox;
mod message;
mod negotiation;
mod pending;
mod protocol;
mod queue;
mod remote;
mod replay;
mod replies;
mod server;
mod session;
mod socket;
mod tls;
mod write_log;

pub use address::{Address, AddressError, Dial};
pub use device::{NbdDevice, dial, read_certificates};
pub use error::NbdError;
pub use message::harmless;
pub use server::{ClientStream, ServeOptions, Server, Service, Stopper, serve_stream};
