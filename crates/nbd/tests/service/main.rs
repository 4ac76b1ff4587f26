//! The server against clients: the own one, ones that speak byte by byte, and hostile ones.

mod endings;
mod garbage;
mod handshakes;
mod raw_client;
mod use_of_devices;

use peak_alloc::PeakAlloc;

/// The memory that clients cost.
#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;
