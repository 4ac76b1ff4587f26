//! The server against clients: the own one, ones that speak byte by byte, and hostile ones.

mod handshakes;
mod raw_client;
mod use_of_devices;
