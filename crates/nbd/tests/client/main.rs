//! The client against servers of its own: sound ones that die and forget, and hostile ones.

mod encryption;
mod hostile_server;
mod reconnects;
mod requests;
mod server;
